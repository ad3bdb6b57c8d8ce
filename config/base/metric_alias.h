// The same counts under other names: series that are made from our own at each
// scrape, so that dashboards, autoscalers and routers written for another
// server work unchanged. Counting costs nothing more.
//
//   {.name = "vllm:num_requests_running", .help = "Requests being computed.",
//    .kind = MetricKind::kGauge, .source = "millrace_requests_running",
//    .labels = {{"model", "model_name"}}, .fixed = {{"engine", "0"}}}
//
// Rows of one name make one family; series of it that end up with the same
// labels are added.
//
// Thread-safe.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/base/mutex.h"

namespace prometheus {
struct MetricFamily;
}  // namespace prometheus

namespace millrace {

enum class MetricKind { kCounter, kGauge, kHistogram };

// Which number of the source becomes the alias.
enum class MetricPart {
  kValue,      // of a counter or gauge
  kHistogram,  // the whole histogram; the alias is a histogram, too
  kSum,        // of a histogram
  kCount,      // of a histogram
  kGreatest,   // of a gauge above 0: of series with the same labels
  // Sum by count of what a histogram took in since the last scrape that found
  // something new: what others show as the value of the last request. With
  // `per`, the source's value by that. Where series left, of all that stays.
  kRecentMean,
};

struct MetricAlias {
  std::string_view name;
  std::string_view help = {};
  MetricKind kind = MetricKind::kCounter;
  std::string_view source;  // our own name, or that of an alias made before
  MetricPart part = MetricPart::kValue;
  // An alias made before, whose value with the same labels divides the number;
  // empty: none does.
  std::string_view per = {};
  double scale = 1;  // of values and sums; not of whole histograms
  // Only series of the source with this label value; empty: all.
  std::pair<std::string_view, std::string_view> where = {};
  // Only models that have a series of this metric, too; empty: all.
  std::string_view of_models_with = {};
  // Labels of the source that stay, under their new names.
  std::vector<std::pair<std::string_view, std::string_view>> labels = {};
  std::vector<std::pair<std::string, std::string>> fixed = {};
};

class MetricAliases {
 public:
  void Add(std::vector<MetricAlias> aliases);
  // Appends the aliases' families to what was collected.
  void AppendTo(std::vector<prometheus::MetricFamily>& families);

 private:
  struct Taken {
    double sum = 0;
    double count = 0;
    double mean = 0;
  };

  Mutex mu_;
  std::vector<MetricAlias> aliases_ GUARDED_BY(mu_);
  std::map<std::string, Taken> recent_ GUARDED_BY(mu_);  // by name and labels
};

}  // namespace millrace
