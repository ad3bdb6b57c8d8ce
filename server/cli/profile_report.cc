#include "server/cli/profile_report.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include "config/base/json.h"

namespace millrace::server {
namespace {

using models::graph::StepInfo;
using models::graph::TeamRoofline;
using models::graph::Trace;

// Longer descriptions of steps do not move the names behind the others.
constexpr size_t kMostTextColumns = 72;

template <typename... Args>
std::string Line(const char* format, Args... args) {
  char text[200];
  std::snprintf(text, sizeof(text), format, args...);
  return text;
}

double Share(double part, double whole) {
  return whole > 0 ? 100 * part / whole : 0;
}

// Of a step or of the whole run.
struct Work {
  double macs = 0;
  double bytes = 0;
  double ceiling_seconds = 0;  // what it takes at least
  std::string ceiling = {};    // that of one step

  void Add(const StepInfo& step, const TeamRoofline& roofline) {
    macs += step.macs;
    bytes += step.bytes;
    const double multiplying = roofline.MacSeconds(step);
    const double reading = roofline.ByteSeconds(step);
    ceiling_seconds += std::max(multiplying, reading);
    if (multiplying == 0 && reading == 0) return;
    ceiling = multiplying >= reading ? FactorsName(step.factors)
                                     : roofline.ByteCeiling(step);
  }
  std::string Rates(double ms) const {
    const double seconds = std::max(ms, 1e-9) / 1e3;
    return Line("%9.1f %8.1f", 2e-9 * macs / seconds, 1e-9 * bytes / seconds);
  }
  double Percent(double ms) const {
    return Share(ceiling_seconds, std::max(ms, 1e-9) / 1e3);
  }

 private:
  static const char* FactorsName(models::graph::Factors factors) {
    switch (factors) {
      case models::graph::Factors::kBf16:
        return "bf16";
      case models::graph::Factors::kInt8:
        return "int8";
      case models::graph::Factors::kF32:
        break;
    }
    return "f32";
  }
};

// "62% f32"; beyond the ceiling only that it is.
std::string PercentText(double percent, const std::string& ceiling) {
  if (percent == 0) return "-";
  const std::string number = percent > 100 ? ">100%" : Line("%.0f%%", percent);
  return ceiling.empty() ? number : number + " " + ceiling;
}

std::string RooflineText(const TeamRoofline& roofline) {
  std::string text = Line("ceilings, measured now: %.1f GFLOP/s f32",
                          2e-9 * roofline.macs_per_s);
  if (roofline.bf16_macs_per_s > 0) {
    text += Line(", %.1f bf16", 2e-9 * roofline.bf16_macs_per_s);
  }
  if (roofline.int8_macs_per_s > 0) {
    text += Line(", %.1f Gop/s int8", 2e-9 * roofline.int8_macs_per_s);
  }
  return text + Line(";\n  %.1f GB/s L2, %.1f %s\n",
                     1e-9 * roofline.cache_bytes_per_s,
                     1e-9 * roofline.read_bytes_per_s, roofline.memory_name);
}

std::string Padded(const std::string& text, size_t columns) {
  return text.size() < columns ? text + std::string(columns - text.size(), ' ')
                               : text;
}

std::string SumLine(const Profile& profile, double ms,
                    const std::string& what) {
  return Line("%9.4f %5.1f%%  ", ms, Share(ms, profile.run_ms)) + what + "\n";
}

// What stands behind the figures of a row: the step and its node, beside each
// other where the terminal is wide enough, else the step in a line of its own.
class Rows {
 public:
  Rows(const std::vector<ProfiledStep>& steps, const std::vector<size_t>& shown,
       int64_t terminal_columns)
      : steps_(steps), terminal_(static_cast<size_t>(terminal_columns)) {
    size_t name = 0;
    for (const size_t i : shown) {
      const auto& info = steps[i].info;
      text_ = std::max(text_, std::min(info.text.size(), kMostTextColumns));
      name = std::max(name, info.name.size());
    }
    is_narrow_ = terminal_ > 0 && kFigureColumns + text_ + 2 + name > terminal_;
  }

  std::string Header() const {
    return is_narrow_ ? "node, its step below\n"
                      : Padded("step", text_) + "  node of the model\n";
  }
  std::string Row(size_t i) const {
    const auto& info = steps_[i].info;
    if (!is_narrow_) return Padded(info.text, text_) + "  " + info.name + "\n";
    const size_t room =
        terminal_ > kFigureColumns + 8 ? terminal_ - kFigureColumns : 8;
    // The ends of names tell them apart. Both are ASCII as a rule.
    const std::string name =
        info.name.size() > room
            ? ".." + info.name.substr(info.name.size() - room + 2)
            : info.name;
    return name + "\n" + std::string(kIndent, ' ') +
           info.text.substr(0, terminal_ - std::min(terminal_, kIndent)) + "\n";
  }

 private:
  static constexpr size_t kFigureColumns = 52;
  static constexpr size_t kIndent = 18;

  const std::vector<ProfiledStep>& steps_;
  const size_t terminal_;
  size_t text_ = 4;
  bool is_narrow_ = false;
};

}  // namespace

RunTimes TimesOf(const Trace& trace, double run_ms) {
  struct Event {
    int64_t at_ns;
    int change;  // +1: a member begins the step, -1: it ends it
    size_t step;
  };
  std::vector<Event> events;
  for (const auto& member : trace.spans) {
    for (size_t i = 0; i < member.size(); ++i) {
      if (member[i].end_ns == 0) continue;
      events.push_back({member[i].begin_ns, 1, i});
      events.push_back({member[i].end_ns, -1, i});
    }
  }
  std::sort(events.begin(), events.end(),
            [](const Event& a, const Event& b) { return a.at_ns < b.at_ns; });
  RunTimes times;
  times.run_ms = run_ms;
  times.step_ms.assign(trace.steps.size(), 0);
  std::vector<int> running(trace.steps.size());
  std::vector<size_t> active;  // steps that run now
  int num_busy = 0;
  const auto members = static_cast<double>(trace.spans.size());
  double in_steps = 0;
  double between = 0;
  for (size_t e = 0; e < events.size(); ++e) {
    if (e > 0) {
      const double ms =
          static_cast<double>(events[e].at_ns - events[e - 1].at_ns) / 1e6;
      if (num_busy == 0) {
        between += ms;
      } else {
        in_steps += ms;
        times.idle_ms += ms * (members - num_busy) / members;
        for (const size_t step : active) {
          times.step_ms[step] += ms * running[step] / num_busy;
        }
      }
    }
    const Event& event = events[e];
    running[event.step] += event.change;
    num_busy += event.change;
    const auto found = std::find(active.begin(), active.end(), event.step);
    if (running[event.step] == 0) {
      if (found != active.end()) active.erase(found);
    } else if (found == active.end()) {
      active.push_back(event.step);
    }
  }
  times.waiting_ms = between;
  times.overhead_ms = std::max(0.0, run_ms - in_steps - between);
  return times;
}

RunTimes MeanOfQuickest(std::vector<RunTimes> runs) {
  std::sort(runs.begin(), runs.end(), [](const RunTimes& a, const RunTimes& b) {
    return a.run_ms < b.run_ms;
  });
  const size_t count = (runs.size() + 1) / 2;
  RunTimes mean;
  const auto weight = 1 / static_cast<double>(count);
  for (size_t i = 0; i < count; ++i) {
    const RunTimes& run = runs[i];
    mean.step_ms.resize(run.step_ms.size());
    for (size_t s = 0; s < run.step_ms.size(); ++s) {
      mean.step_ms[s] += weight * run.step_ms[s];
    }
    mean.waiting_ms += weight * run.waiting_ms;
    mean.overhead_ms += weight * run.overhead_ms;
    mean.run_ms += weight * run.run_ms;
    mean.idle_ms += weight * run.idle_ms;
  }
  return mean;
}

std::string ProfileTable(const Profile& profile, int64_t top,
                         int64_t terminal_columns) {
  const auto& steps = profile.steps;
  std::vector<size_t> order(steps.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return steps[a].ms > steps[b].ms;
  });
  if (top > 0 && order.size() > static_cast<size_t>(top)) {
    order.resize(static_cast<size_t>(top));
  }
  const Rows rows(steps, order, terminal_columns);
  std::string text = Line("%9s %6s %9s %8s  %-13s  ", "ms", "time", "GFLOP/s",
                          "GB/s", "of ceiling") +
                     rows.Header();
  bool is_beyond = false;
  double shown_ms = 0;
  for (const size_t i : order) {
    const ProfiledStep& step = steps[i];
    Work work;
    work.Add(step.info, profile.roofline);
    const double percent = work.Percent(step.ms);
    is_beyond |= percent > 100;
    shown_ms += step.ms;
    text += Line("%9.4f %5.1f%% ", step.ms, Share(step.ms, profile.run_ms)) +
            work.Rates(step.ms) +
            Line("  %-13s  ", PercentText(percent, work.ceiling).c_str()) +
            rows.Row(i);
  }
  double ms = 0;
  Work all;
  for (const ProfiledStep& step : steps) {
    ms += step.ms;
    all.Add(step.info, profile.roofline);
  }
  if (order.size() < steps.size()) {
    text += SumLine(profile, ms - shown_ms,
                    std::to_string(steps.size() - order.size()) +
                        " shorter steps (--top 0 shows all)");
  }
  text += SumLine(profile, profile.waiting_ms,
                  "waiting: between steps, cores meet and none computes");
  text += SumLine(profile, profile.overhead_ms,
                  "overhead: before the first step and after the last");
  const double percent = all.Percent(profile.run_ms);
  text += Line("%9.4f %5.1f%% ", profile.run_ms, 100.0) +
          all.Rates(profile.run_ms) +
          Line("  %-13s  ", PercentText(percent, "").c_str()) + "the run, " +
          std::to_string(steps.size()) + " steps\n";
  text += Line("mean of the quicker %lld of %lld runs; arena %.1f MiB\n",
               static_cast<long long>((profile.num_runs + 1) / 2),
               static_cast<long long>(profile.num_runs),
               static_cast<double>(profile.arena_bytes) / (1 << 20));
  if (profile.num_members > 1) {
    text += Line(
        "while steps ran, %.1f%% of the time of %lld cores was "
        "waiting for each other\n",
        Share(profile.idle_ms, std::max(ms, 1e-9)),
        static_cast<long long>(profile.num_members));
  }
  text += RooflineText(profile.roofline);
  if (is_beyond || percent > 100) {
    text +=
        ">100%: quicker than the measured ceiling: the data lay in a nearer "
        "cache,\n  or other programs held up the measurement\n";
  }
  return text;
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
            {{"step", i},
             {"node", step.name},
             {"macs", step.macs},
             {"bytes", step.bytes}}}});
    }
  }
  return DumpJson(nlohmann::ordered_json{{"traceEvents", std::move(events)}});
}

}  // namespace millrace::server
