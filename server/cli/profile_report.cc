#include "server/cli/profile_report.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include "config/base/json.h"

namespace millrace::server {
namespace {

using models::graph::Trace;

template <typename... Args>
std::string Line(const char* format, Args... args) {
  char text[160];
  std::snprintf(text, sizeof(text), format, args...);
  return text;
}

double Share(double part, double whole) {
  return whole > 0 ? 100 * part / whole : 0;
}

// Of a step or of the whole run; the least seconds that its multiply-adds and
// its bytes need tell how near they come to the peaks.
struct Work {
  double macs = 0;
  double mac_seconds = 0;
  double bytes = 0;
  double byte_seconds = 0;

  void Add(const models::graph::StepInfo& step,
           const models::graph::TeamPeaks& peaks) {
    macs += step.macs;
    mac_seconds += peaks.MacSeconds(step);
    bytes += step.bytes;
    byte_seconds += peaks.ByteSeconds(step);
  }
  std::string Rates(double ms) const {
    const double seconds = std::max(ms, 1e-9) / 1e3;
    return Line("%9.1f %5.1f%% %8.1f %5.1f%%", 2e-9 * macs / seconds,
                Share(mac_seconds, seconds), 1e-9 * bytes / seconds,
                Share(byte_seconds, seconds));
  }
};

std::string PeaksText(const models::graph::TeamPeaks& peaks) {
  std::string text =
      Line("peaks: %.1f GFLOP/s in f32", 2e-9 * peaks.macs_per_s);
  if (peaks.bf16_macs_per_s > 0) {
    text += Line(", %.1f in bf16", 2e-9 * peaks.bf16_macs_per_s);
  }
  if (peaks.int8_macs_per_s > 0) {
    text += Line(", %.1f Gop/s in int8", 2e-9 * peaks.int8_macs_per_s);
  }
  return text + Line("; %.1f GB/s from memory, %.1f from L2\n",
                     1e-9 * peaks.read_bytes_per_s,
                     1e-9 * peaks.cache_bytes_per_s);
}

}  // namespace

double StepMs(const Trace& trace, size_t i) {
  int64_t longest = 0;
  for (const auto& member : trace.spans) {
    longest = std::max(longest, member[i].end_ns - member[i].begin_ns);
  }
  return static_cast<double>(longest) / 1e6;
}

std::string ProfileTable(const Profile& profile, int64_t top) {
  const auto& steps = profile.steps;
  std::vector<size_t> order(steps.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return steps[a].median_ms > steps[b].median_ms;
  });
  if (top > 0 && order.size() > static_cast<size_t>(top)) {
    order.resize(static_cast<size_t>(top));
  }
  std::string text = Line("%9s %6s %9s %6s %8s %6s  %s\n", "ms", "time",
                          "GFLOP/s", "peak", "GB/s", "peak", "step");
  for (const size_t i : order) {
    const ProfiledStep& step = steps[i];
    Work work;
    work.Add(step.info, profile.peaks);
    text += Line("%9.4f %5.1f%% ", step.median_ms,
                 Share(step.median_ms, profile.run_ms)) +
            work.Rates(step.median_ms) + "  " + step.info.text + "\n";
  }
  double ms = 0;
  Work all;
  for (const ProfiledStep& step : steps) {
    ms += step.median_ms;
    all.Add(step.info, profile.peaks);
  }
  text += Line("%9.4f %5.1f%% ", ms, Share(ms, profile.run_ms)) +
          all.Rates(profile.run_ms) + "  all " + std::to_string(steps.size()) +
          " steps\n";
  return text +
         Line("run %.4f ms; arena %.1f MiB\n", profile.run_ms,
              static_cast<double>(profile.arena_bytes) / (1 << 20)) +
         PeaksText(profile.peaks);
}

std::string TimelineJson(const Trace& trace) {
  auto events = nlohmann::ordered_json::array();
  for (size_t member = 0; member < trace.spans.size(); ++member) {
    for (size_t i = 0; i < trace.steps.size(); ++i) {
      const auto& span = trace.spans[member][i];
      if (span.end_ns == 0) continue;
      const auto& step = trace.steps[i];
      // Microseconds.
      events.push_back(
          {{"name", step.text},
           {"ph", "X"},
           {"ts", static_cast<double>(span.begin_ns) / 1e3},
           {"dur", static_cast<double>(span.end_ns - span.begin_ns) / 1e3},
           {"pid", 0},
           {"tid", member},
           {"args",
            {{"step", i}, {"macs", step.macs}, {"bytes", step.bytes}}}});
    }
  }
  return DumpJson(nlohmann::ordered_json{{"traceEvents", std::move(events)}});
}

std::string PictureDot(const Profile& profile) {
  double longest = 0;
  for (const ProfiledStep& step : profile.steps) {
    longest = std::max(longest, step.median_ms);
  }
  std::string text =
      "digraph plan {\n"
      "  node [shape=box, style=\"filled,rounded\", fontname=Helvetica];\n";
  for (size_t i = 0; i < profile.steps.size(); ++i) {
    const ProfiledStep& step = profile.steps[i];
    const double heat = longest > 0 ? step.median_ms / longest : 0;
    std::string label;
    for (const char c : step.info.text) {
      if (c == '"' || c == '\\') label += '\\';
      label += c;
    }
    const std::string name = "  s" + std::to_string(i);
    text += name + " [label=\"" + label +
            Line("\\n%.3f ms\", fillcolor=\"0.02 %.3f 1.0\"];\n",
                 step.median_ms, 0.05 + 0.65 * heat);
    for (const int32_t source : step.info.sources) {
      text += "  s" + std::to_string(source) + " ->" + name + ";\n";
    }
  }
  return text + "}\n";
}

}  // namespace millrace::server
