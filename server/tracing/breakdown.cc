// Slices differ by track and name, as StepTimeline, BatchTimeline, the
// handler pool and RequestTraces give them. What reaches beyond the capture
// counts up to its edge, but for requests.
#include "server/tracing/breakdown.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <string_view>
#include <utility>

namespace millrace::server {
namespace {

using Interval = std::pair<Clock::Time, Clock::Time>;

double Seconds(Clock::Duration duration) {
  return std::chrono::duration<double>(duration).count();
}

std::string Format(const char* format, double value) {
  char text[64];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

std::string Percent(double part, double whole) {
  return Format("%.1f%%", whole > 0 ? 100 * part / whole : 0);
}

std::string Millis(double seconds) { return Format("%.1f ms", 1e3 * seconds); }

double NumberOf(const TimelineSlice& slice, std::string_view name) {
  for (const auto& [each, value] : slice.numbers) {
    if (each != nullptr && each == name) return value;
  }
  return 0;
}

struct Sum {
  int64_t count = 0;
  double seconds = 0;

  void Add(double more) {
    ++count;
    seconds += more;
  }
};

struct OfModel {
  bool is_graph = false;
  std::vector<Interval> busy;
  Sum steps;
  double prefill = 0;  // of busy seconds, by rows
  double decode = 0;
  double rows = 0;
  double requests = 0;  // of batches
  double values = 0;    // of inputs, where requests are padded
  double padding = 0;   // behind them
  std::map<std::string, double, std::less<>> phases;  // of worker 0, or all
};

struct Totals {
  std::map<std::string, OfModel> models;
  Sum tasks;
  std::vector<Interval> task_times;
  std::map<std::string, Sum, std::less<>> stages;  // of requests
};

// Sorted and without overlaps.
void Merge(std::vector<Interval>& intervals) {
  std::ranges::sort(intervals);
  std::vector<Interval> merged;
  for (const Interval& each : intervals) {
    if (!merged.empty() && each.first <= merged.back().second) {
      merged.back().second = std::max(merged.back().second, each.second);
    } else {
      merged.push_back(each);
    }
  }
  intervals = std::move(merged);
}

double Length(const std::vector<Interval>& intervals) {
  double seconds = 0;
  for (const auto& [begin, end] : intervals) seconds += Seconds(end - begin);
  return seconds;
}

double Shared(const std::vector<Interval>& a, const std::vector<Interval>& b) {
  double seconds = 0;
  auto at = b.begin();
  for (const auto& [begin, end] : a) {
    while (at != b.end() && at->second <= begin) ++at;
    for (auto each = at; each != b.end() && each->first < end; ++each) {
      seconds +=
          Seconds(std::min(end, each->second) - std::max(begin, each->first));
    }
  }
  return seconds;
}

void AddModelSlice(const TimelineSlice& slice, const std::string& thread,
                   const Interval& time, OfModel& model) {
  const double seconds = Seconds(time.second - time.first);
  if (thread == "steps" || slice.name == "batch") {
    model.is_graph = slice.name == "batch";
    model.busy.push_back(time);
    model.steps.Add(seconds);
    const double rows = NumberOf(slice, "rows");
    model.rows += rows;
    model.requests += NumberOf(slice, "requests");
    model.values += NumberOf(slice, "values");
    model.padding += NumberOf(slice, "padding");
    const double share = rows > 0 ? NumberOf(slice, "prompt_rows") / rows : 0;
    model.prefill += seconds * share;
    model.decode += seconds * (1 - share);
    return;
  }
  // Members of a team run the same phases: one is enough.
  if (!thread.ends_with("worker 0")) return;
  model.phases[std::string(slice.name == "operator" ? slice.label
                                                    : slice.name)] += seconds;
}

Totals Total(const TimelineCapture& capture) {
  Totals totals;
  for (const TimelineSlice& slice : capture.slices) {
    const Interval time = {std::max(slice.begin, capture.begin),
                           std::min(slice.end, capture.end)};
    const TimelineTrack& track =
        capture.tracks[static_cast<size_t>(slice.track)];
    // Whole, wherever they lie: their request ended within the capture.
    if (track.thread == "requests") {
      totals.stages[std::string(slice.name)].Add(
          Seconds(slice.end - slice.begin));
      continue;
    }
    if (time.second < time.first) continue;
    if (track.process.starts_with("model ")) {
      AddModelSlice(slice, track.thread, time, totals.models[track.process]);
    } else {
      totals.tasks.Add(Seconds(time.second - time.first));
      totals.task_times.push_back(time);
    }
  }
  Merge(totals.task_times);
  for (auto& [name, model] : totals.models) Merge(model.busy);
  return totals;
}

std::string PhaseWords(const OfModel& model) {
  double whole = 0;
  std::vector<std::pair<double, std::string>> order;
  for (const auto& [name, seconds] : model.phases) {
    whole += seconds;
    order.emplace_back(seconds, name);
  }
  std::ranges::sort(order, std::greater<>());
  constexpr size_t kShown = 8;
  std::string words;
  for (size_t i = 0; i < std::min(order.size(), kShown); ++i) {
    if (i > 0) words += ", ";
    words += order[i].second + " " + Percent(order[i].first, whole);
  }
  return words;
}

std::string PaddingWords(const Totals& totals) {
  std::string words = "padding waste: ";
  size_t num_padded = 0;
  for (const auto& [name, model] : totals.models) {
    if (model.values == 0) continue;
    if (num_padded++ > 0) words += ", ";
    words += name + " " + Percent(model.padding, model.values + model.padding) +
             " of the elements of its inputs";
  }
  if (num_padded == 0) {
    return words +
           "none; steps and batches hold only rows that requests asked "
           "for";
  }
  return num_padded == totals.models.size() ? words : words + ", others none";
}

}  // namespace

std::vector<std::string> Breakdown(const TimelineCapture& capture) {
  const double whole = Seconds(capture.end - capture.begin);
  const Totals totals = Total(capture);
  std::vector<std::string> words;
  std::vector<Interval> all_busy;
  for (const auto& [name, model] : totals.models) {
    all_busy.insert(all_busy.end(), model.busy.begin(), model.busy.end());
    if (model.steps.count == 0) continue;
    const double busy = Length(model.busy);
    const auto count = static_cast<double>(model.steps.count);
    std::string line = name + ": idle " + Percent(whole - busy, whole) +
                       ", busy " + Percent(busy, whole) + " with " +
                       std::to_string(model.steps.count) +
                       (model.is_graph ? " batches" : " steps") + " of " +
                       Millis(model.steps.seconds / count) + " and " +
                       Format("%.1f", model.rows / count) + " rows on average";
    if (model.is_graph) {
      line += " from " + Format("%.1f", model.requests / count) + " requests";
    } else {
      line += "; prefill " + Percent(model.prefill, model.steps.seconds) +
              ", decode " + Percent(model.decode, model.steps.seconds) +
              " of the steps' time, by rows";
    }
    words.push_back(std::move(line));
    if (!model.phases.empty()) {
      words.push_back(name + (model.is_graph ? ": operators: " : ": phases: ") +
                      PhaseWords(model));
    }
  }
  Merge(all_busy);
  if (words.empty()) {
    words.push_back("no model computed anything during " +
                    Format("%.1f s", whole));
  }
  const auto mean = [&](const char* stage) {
    const auto found = totals.stages.find(stage);
    return found == totals.stages.end()
               ? std::string("none")
               : Millis(found->second.seconds /
                        static_cast<double>(found->second.count));
  };
  if (const auto request = totals.stages.find("request");
      request != totals.stages.end()) {
    words.push_back("requests: " + std::to_string(request->second.count) +
                    " ended; on average in the queue " + mean("queue") +
                    ", prefill " + mean("prefill") + ", decode " +
                    mean("decode") + ", compute " + mean("compute"));
  } else {
    words.push_back("requests: none ended");
  }
  words.push_back(
      "overlap: handlers worked " + Millis(totals.tasks.seconds) + " in " +
      std::to_string(totals.tasks.count) + " tasks, " +
      Percent(Shared(totals.task_times, all_busy), Length(totals.task_times)) +
      " of it while a model computed");
  words.push_back(PaddingWords(totals));
  if (capture.num_dropped > 0) {
    words.push_back(std::to_string(capture.num_dropped) +
                    " slices were dropped: capture for a shorter time");
  }
  return words;
}

}  // namespace millrace::server
