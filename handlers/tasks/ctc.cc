#include "handlers/tasks/ctc.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <string>
#include <utility>

namespace millrace::handlers {
namespace {

constexpr double kNever = -std::numeric_limits<double>::infinity();

double LogAdd(double a, double b) {
  if (a < b) std::swap(a, b);
  return b == kNever ? a : a + std::log1p(std::exp(b - a));
}

Status NoNumber(size_t frame) {
  return Internal("the model's scores of frame " + std::to_string(frame) +
                  " are no numbers");
}

// The logarithm of the sum of exp(score), by which logits become
// log-probabilities. NaN where a score is.
double LogSum(std::span<const float> frame) {
  const double most = *std::max_element(frame.begin(), frame.end());
  double sum = 0;
  for (const float score : frame) sum += std::exp(score - most);
  return most + std::log(sum);
}

std::span<const float> FrameOf(const CtcScores& scores, size_t frame) {
  return scores.values.subspan(frame * scores.num_labels, scores.num_labels);
}

}  // namespace

StatusOr<std::vector<CtcToken>> GreedyCtc(const CtcScores& scores,
                                          int64_t blank) {
  std::vector<CtcToken> tokens;
  int64_t last = blank;
  for (size_t t = 0; t < scores.num_frames(); ++t) {
    const std::span<const float> frame = FrameOf(scores, t);
    const double log_sum = LogSum(frame);
    if (std::isnan(log_sum)) return NoNumber(t);
    const auto best = std::max_element(frame.begin(), frame.end());
    const int64_t label = best - frame.begin();
    const auto at = static_cast<int64_t>(t);
    if (label != blank) {
      if (label != last) {
        tokens.push_back(
            {.label = label, .first_frame = at, .log_prob = kNever});
      }
      CtcToken& token = tokens.back();
      token.end_frame = at + 1;
      token.log_prob = std::max(token.log_prob, *best - log_sum);
    }
    last = label;
  }
  return tokens;
}

namespace {

// A prefix is a node of a tree: its last token, and the node of what stands
// before it. Node 0 is the empty prefix.
struct Node {
  size_t parent = 0;
  CtcToken token = {};
};

// Probabilities of all paths of a prefix that end with a blank or with its last
// label; the token is where the label was most probable.
struct Beam {
  size_t node = 0;  // where there is one already
  bool is_new = false;
  CtcToken token = {};  // the last one
  double blank = kNever;
  double label = kNever;

  double total() const { return LogAdd(blank, label); }
};

// The prefixes of the next frame, by the node before their last label and that
// label (-1: the empty prefix).
using Beams = std::map<std::pair<size_t, int64_t>, Beam>;

class BeamSearch {
 public:
  BeamSearch(const CtcScores& scores, int64_t blank, size_t width)
      : scores_(scores), blank_(blank), width_(width) {
    nodes_.push_back({.token = {.label = -1}});
    live_.push_back({.blank = 0});
  }

  Status Step(size_t t) {
    const std::span<const float> frame = FrameOf(scores_, t);
    const double log_sum = LogSum(frame);
    if (std::isnan(log_sum)) return NoNumber(t);
    const std::vector<int64_t> labels = Best(frame);
    Beams next;
    // Those that stay first, so that extensions find their nodes.
    for (const Beam& beam : live_) Stay(beam, frame, log_sum, t, next);
    for (const Beam& beam : live_) {
      for (const int64_t label : labels) {
        Extend(beam, label, frame[static_cast<size_t>(label)] - log_sum, t,
               next);
      }
    }
    Keep(next);
    return OkStatus();
  }

  std::vector<CtcToken> Result() const {
    std::vector<CtcToken> tokens;
    size_t node = live_.front().node;
    for (; node != 0; node = nodes_[node].parent) {
      tokens.push_back(nodes_[node].token);
    }
    std::reverse(tokens.begin(), tokens.end());
    return tokens;
  }

 private:
  // Without the blank, the best first.
  std::vector<int64_t> Best(std::span<const float> frame) const {
    std::vector<int64_t> labels(frame.size());
    std::iota(labels.begin(), labels.end(), 0);
    labels.erase(labels.begin() + blank_);
    const size_t count = std::min(width_, labels.size());
    std::partial_sort(labels.begin(),
                      labels.begin() + static_cast<ptrdiff_t>(count),
                      labels.end(), [&](int64_t a, int64_t b) {
                        const float x = frame[static_cast<size_t>(a)];
                        const float y = frame[static_cast<size_t>(b)];
                        return x != y ? x > y : a < b;
                      });
    labels.resize(count);
    return labels;
  }

  // The blank, or the last label once more.
  void Stay(const Beam& beam, std::span<const float> frame, double log_sum,
            size_t t, Beams& next) const {
    const Node& node = nodes_[beam.node];
    const std::pair key(node.parent, node.token.label);
    Beam& kept = next[key];
    kept.node = beam.node;
    kept.token = node.token;
    kept.blank = beam.total() + frame[static_cast<size_t>(blank_)] - log_sum;
    if (beam.node == 0) return;
    const double log_prob =
        frame[static_cast<size_t>(node.token.label)] - log_sum;
    kept.label = beam.label + log_prob;
    if (log_prob < kLeastOfRun ||
        kept.token.end_frame != static_cast<int64_t>(t)) {
      return;
    }
    kept.token.end_frame = static_cast<int64_t>(t) + 1;
    kept.token.log_prob = std::max(kept.token.log_prob, log_prob);
  }

  void Extend(const Beam& beam, int64_t label, double log_prob, size_t t,
              Beams& next) const {
    const bool repeats = nodes_[beam.node].token.label == label;
    // The same label again is a new one only behind a blank.
    const double before = repeats ? beam.blank : beam.total();
    if (before == kNever) return;
    const auto [at, is_new] = next.try_emplace({beam.node, label});
    Beam& extended = at->second;
    if (is_new) extended.is_new = true;
    const auto frame = static_cast<int64_t>(t);
    if (log_prob > extended.token.log_prob || is_new) {
      extended.token = {.label = label,
                        .first_frame = frame,
                        .end_frame = frame + 1,
                        .log_prob = log_prob};
    }
    extended.label = LogAdd(extended.label, before + log_prob);
  }

  // The most probable ones; new ones get a node.
  void Keep(Beams& next) {
    std::vector<std::pair<std::pair<size_t, int64_t>, Beam>> all(next.begin(),
                                                                 next.end());
    const size_t count = std::min(width_, all.size());
    std::partial_sort(all.begin(), all.begin() + static_cast<ptrdiff_t>(count),
                      all.end(), [](const auto& a, const auto& b) {
                        const double x = a.second.total();
                        const double y = b.second.total();
                        return x != y ? x > y : a.first < b.first;
                      });
    live_.clear();
    for (size_t i = 0; i < count; ++i) {
      Beam beam = all[i].second;
      if (beam.is_new) {
        beam.node = nodes_.size();
        beam.is_new = false;
        nodes_.push_back({.parent = all[i].first.first});
      }
      if (beam.node != 0) nodes_[beam.node].token = beam.token;
      live_.push_back(beam);
    }
  }

  // A label that is less probable than this does not last on in a frame.
  static constexpr double kLeastOfRun = -0.693147;  // ln(1/2)

  const CtcScores scores_;
  const int64_t blank_;
  const size_t width_;
  std::vector<Node> nodes_;
  std::vector<Beam> live_;  // the most probable first
};

}  // namespace

StatusOr<std::vector<CtcToken>> BeamCtc(const CtcScores& scores, int64_t blank,
                                        size_t width) {
  BeamSearch search(scores, blank, width);
  for (size_t t = 0; t < scores.num_frames(); ++t) {
    RETURN_IF_ERROR(search.Step(t));
  }
  return search.Result();
}

}  // namespace millrace::handlers
