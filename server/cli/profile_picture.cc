#include "server/cli/profile_picture.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <map>
#include <utility>
#include <vector>

#include "config/base/html.h"

namespace millrace::server {
namespace {

// In pixels.
constexpr double kBoxWidth = 250;
constexpr double kBoxHeight = 40;
constexpr double kBendWidth = 12;
constexpr double kGap = 16;
constexpr double kLayerHeight = 72;
constexpr double kMargin = 20;
constexpr size_t kShownLetters = 38;
constexpr int kSweeps = 12;

template <typename... Args>
std::string Line(const char* format, Args... args) {
  char text[256];
  std::snprintf(text, sizeof(text), format, args...);
  return text;
}

double LongestMs(const Profile& profile) {
  double longest = 0;
  for (const ProfiledStep& step : profile.steps) {
    longest = std::max(longest, step.ms);
  }
  return longest;
}

// The end of a long text is kept: names of nodes differ there.
std::string Shown(const std::string& text, bool keep_end) {
  if (text.size() <= kShownLetters) return text;
  size_t from = keep_end ? text.size() - kShownLetters : 0;
  size_t count = kShownLetters;
  const auto is_inside = [&](size_t at) {  // of a letter of several bytes
    return at < text.size() && (text[at] & 0xC0) == 0x80;
  };
  while (is_inside(from)) ++from, --count;
  while (is_inside(from + count)) --count;
  const std::string kept = text.substr(from, count);
  return keep_end ? "…" + kept : kept + "…";
}

// A box, or the bend of an edge in a layer that it passes.
struct Spot {
  int32_t step = -1;  // -1: a bend
  size_t layer = 0;
  double x = 0;  // of its middle
  std::vector<size_t> above = {};
  std::vector<size_t> below = {};

  double width() const { return step >= 0 ? kBoxWidth : kBendWidth; }
  double top() const {
    return kMargin + static_cast<double>(layer) * kLayerHeight;
  }
  double bottom() const { return top() + kBoxHeight; }
};

class Layout {
 public:
  explicit Layout(const std::vector<ProfiledStep>& steps) {
    PlaceInLayers(steps);
    AddEdges(steps);
    for (int sweep = 0; sweep < kSweeps; ++sweep) Order(sweep % 2 == 0);
    for (int sweep = 0; sweep < kSweeps; ++sweep) Shift(sweep % 2 == 0);
    MoveToMargin();
  }

  const std::vector<Spot>& spots() const { return spots_; }
  double width() const { return width_; }
  double height() const {
    return 2 * kMargin + static_cast<double>(layers_.size()) * kLayerHeight;
  }

 private:
  // Below everything it reads; what reads nothing right above its first reader.
  void PlaceInLayers(const std::vector<ProfiledStep>& steps) {
    std::vector<size_t> layer(steps.size());
    std::vector<size_t> reader(steps.size(), SIZE_MAX);
    size_t num_layers = steps.empty() ? 0 : 1;
    for (size_t i = 0; i < steps.size(); ++i) {
      for (const int32_t source : steps[i].info.sources) {
        layer[i] = std::max(layer[i], layer[static_cast<size_t>(source)] + 1);
      }
      num_layers = std::max(num_layers, layer[i] + 1);
      for (const int32_t source : steps[i].info.sources) {
        auto& first = reader[static_cast<size_t>(source)];
        first = std::min(first, layer[i]);
      }
    }
    layers_.resize(num_layers);
    for (size_t i = 0; i < steps.size(); ++i) {
      if (steps[i].info.sources.empty() && reader[i] != SIZE_MAX) {
        layer[i] = reader[i] - 1;
      }
      Add(static_cast<int32_t>(i), layer[i]);
    }
  }

  size_t Add(int32_t step, size_t layer) {
    spots_.push_back({.step = step, .layer = layer});
    layers_[layer].push_back(spots_.size() - 1);
    return spots_.size() - 1;
  }

  // The spot of a step has the step's number. Edges of one step share bends.
  void AddEdges(const std::vector<ProfiledStep>& steps) {
    std::map<std::pair<size_t, size_t>, size_t> bends;  // by step and layer
    for (size_t i = 0; i < steps.size(); ++i) {
      for (const int32_t source : steps[i].info.sources) {
        auto from = static_cast<size_t>(source);
        for (size_t at = spots_[from].layer + 1; at < spots_[i].layer; ++at) {
          const auto [row, is_new] =
              bends.try_emplace({static_cast<size_t>(source), at}, 0);
          if (is_new) {
            row->second = Add(-1, at);
            Connect(from, row->second);
          }
          from = row->second;
        }
        Connect(from, i);
      }
    }
  }
  void Connect(size_t from, size_t to) {
    spots_[from].below.push_back(to);
    spots_[to].above.push_back(from);
  }

  // Sorts each layer by the mean place of the neighbours in the one before.
  void Order(bool down) {
    std::vector<double> place(spots_.size());
    const auto number = [&](const std::vector<size_t>& layer) {
      for (size_t i = 0; i < layer.size(); ++i) {
        place[layer[i]] = static_cast<double>(i);
      }
    };
    for (const auto& layer : layers_) number(layer);
    for (size_t i = 0; i < layers_.size(); ++i) {
      auto& layer = layers_[down ? i : layers_.size() - 1 - i];
      std::vector<double> wanted(spots_.size());
      for (const size_t spot : layer) {
        const auto& near = down ? spots_[spot].above : spots_[spot].below;
        wanted[spot] = Mean(near, place, place[spot]);
      }
      std::stable_sort(layer.begin(), layer.end(), [&](size_t a, size_t b) {
        return wanted[a] < wanted[b];
      });
      number(layer);
    }
  }
  static double Mean(const std::vector<size_t>& of,
                     const std::vector<double>& values, double otherwise) {
    if (of.empty()) return otherwise;
    double sum = 0;
    for (const size_t i : of) sum += values[i];
    return sum / static_cast<double>(of.size());
  }

  // Moves each layer as near to its neighbours as its order and the gaps allow:
  // least squares by pooling those that touch.
  void Shift(bool down) {
    std::vector<double> x(spots_.size());
    for (size_t i = 0; i < spots_.size(); ++i) x[i] = spots_[i].x;
    for (size_t i = 0; i < layers_.size(); ++i) {
      const auto& layer = layers_[down ? i : layers_.size() - 1 - i];
      struct Pool {
        double sum;
        double count;
        double mean() const { return sum / count; }
      };
      std::vector<Pool> pools;
      std::vector<double> offset(layer.size());  // from the first, packed
      for (size_t j = 0; j < layer.size(); ++j) {
        const Spot& spot = spots_[layer[j]];
        if (j > 0) {
          const Spot& left = spots_[layer[j - 1]];
          offset[j] = offset[j - 1] + (left.width() + spot.width()) / 2 + kGap;
        }
        const auto& near = down ? spot.above : spot.below;
        pools.push_back({Mean(near, x, x[layer[j]]) - offset[j], 1});
        while (pools.size() > 1 &&
               pools[pools.size() - 2].mean() > pools.back().mean()) {
          const Pool last = pools.back();
          pools.pop_back();
          pools.back().sum += last.sum;
          pools.back().count += last.count;
        }
      }
      size_t j = 0;
      for (const Pool& pool : pools) {
        for (double n = 0; n < pool.count; ++n, ++j) {
          x[layer[j]] = spots_[layer[j]].x = pool.mean() + offset[j];
        }
      }
    }
  }

  void MoveToMargin() {
    double left = 0;
    double right = 0;
    for (const Spot& spot : spots_) {
      left = std::min(left, spot.x - spot.width() / 2);
      right = std::max(right, spot.x + spot.width() / 2);
    }
    for (Spot& spot : spots_) spot.x += kMargin - left;
    width_ = right - left + 2 * kMargin;
  }

  std::vector<Spot> spots_;
  std::vector<std::vector<size_t>> layers_;  // spots from left to right
  double width_ = 0;
};

// From the bottom of one spot to the top of a box or past a bend.
std::string EdgePath(const Spot& from, const Spot& to) {
  const double middle = (from.bottom() + to.top()) / 2;
  std::string path =
      Line("M%.1f,%.1f C%.1f,%.1f %.1f,%.1f %.1f,%.1f", from.x, from.bottom(),
           from.x, middle, to.x, middle, to.x, to.top());
  if (to.step < 0) path += Line(" V%.1f", to.bottom());
  return path;
}

std::string Box(const Spot& spot, const ProfiledStep& step, double heat,
                double run_ms) {
  const double left = spot.x - kBoxWidth / 2;
  const auto cool = static_cast<int>(255 - 150 * heat);
  const std::string& name =
      step.info.name.empty() ? step.info.text : step.info.name;
  std::string text =
      "<g><title>" + EscapeHtml(step.info.name + "\n" + step.info.text) +
      "</title>" +
      Line(
          "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.0f\" height=\"%.0f\" "
          "rx=\"6\" fill=\"rgb(255,%d,%d)\"/>",
          left, spot.top(), kBoxWidth, kBoxHeight, cool, cool);
  const auto line = [&](double y, const std::string& letters) {
    text += Line("<text x=\"%.1f\" y=\"%.1f\">", spot.x, y) +
            EscapeHtml(letters) + "</text>";
  };
  const double share = run_ms > 0 ? 100 * step.ms / run_ms : 0;
  line(spot.top() + 16, Shown(name, true));
  const std::string time = Line("%.3f ms, %.1f%%", step.ms, share);
  line(spot.top() + 32,
       step.info.name.empty()
           ? time
           : Shown(step.info.text.substr(0, step.info.text.find(' ')), false) +
                 "  " + time);
  return text + "</g>\n";
}

}  // namespace

std::string PictureDot(const Profile& profile) {
  const double longest = LongestMs(profile);
  std::string text =
      "digraph plan {\n"
      "  node [shape=box, style=\"filled,rounded\", fontname=Helvetica];\n";
  for (size_t i = 0; i < profile.steps.size(); ++i) {
    const ProfiledStep& step = profile.steps[i];
    const double heat = longest > 0 ? step.ms / longest : 0;
    std::string label;
    const std::string shown = step.info.name.empty()
                                  ? step.info.text
                                  : step.info.text + "\n" + step.info.name;
    for (const char c : shown) {
      if (c == '"' || c == '\\') label += '\\';
      if (c == '\n') {
        label += "\\n";
      } else {
        label += c;
      }
    }
    const std::string name = "  s" + std::to_string(i);
    text += name + " [label=\"" + label +
            Line("\\n%.3f ms\", fillcolor=\"0.02 %.3f 1.0\"];\n", step.ms,
                 0.05 + 0.65 * heat);
    for (const int32_t source : step.info.sources) {
      text += "  s" + std::to_string(source) + " ->" + name + ";\n";
    }
  }
  return text + "}\n";
}

std::string PictureSvg(const Profile& profile) {
  const Layout layout(profile.steps);
  const double longest = LongestMs(profile);
  std::string text =
      Line(
          "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" "
          "height=\"%.0f\" viewBox=\"0 0 %.0f %.0f\" "
          "font-family=\"Helvetica, Arial, sans-serif\" font-size=\"12\">\n",
          layout.width(), layout.height(), layout.width(), layout.height()) +
      "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
      "<g fill=\"none\" stroke=\"#888\" stroke-width=\"1.2\">\n";
  const std::vector<Spot>& spots = layout.spots();
  for (const Spot& spot : spots) {
    for (const size_t to : spot.below) {
      text += "<path d=\"" + EdgePath(spot, spots[to]) + "\"/>\n";
    }
  }
  text += "</g>\n<g stroke=\"#555\" stroke-width=\"0.8\">\n";
  std::string boxes;
  for (const Spot& spot : spots) {
    if (spot.step < 0) continue;
    const ProfiledStep& step = profile.steps[static_cast<size_t>(spot.step)];
    boxes +=
        Box(spot, step, longest > 0 ? step.ms / longest : 0, profile.run_ms);
  }
  return text +
         "<style>text{text-anchor:middle;stroke:none;fill:#111}</style>\n" +
         boxes + "</g>\n</svg>\n";
}

}  // namespace millrace::server
