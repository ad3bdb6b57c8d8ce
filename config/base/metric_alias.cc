// Aliases of metrics: each row of the table looks up its source among the
// collected families and copies the series that it asks for.
#include "config/base/metric_alias.h"

#include <prometheus/metric_family.h>

#include <algorithm>
#include <set>
#include <string>

namespace millrace {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

MetricType TypeOf(MetricKind kind) {
  switch (kind) {
    case MetricKind::kGauge:
      return MetricType::Gauge;
    case MetricKind::kHistogram:
      return MetricType::Histogram;
    case MetricKind::kCounter:
      break;
  }
  return MetricType::Counter;
}

const std::string* LabelOf(const ClientMetric& metric, std::string_view name) {
  for (const ClientMetric::Label& label : metric.label) {
    if (label.name == name) return &label.value;
  }
  return nullptr;
}

const MetricFamily* Find(const std::vector<MetricFamily>& families,
                         std::string_view name) {
  for (const MetricFamily& family : families) {
    if (family.name == name) return &family;
  }
  return nullptr;
}

std::set<std::string> ModelsOf(const MetricFamily* family) {
  std::set<std::string> models;
  if (family == nullptr) return models;
  for (const ClientMetric& metric : family->metric) {
    if (const std::string* model = LabelOf(metric, "model")) {
      models.insert(*model);
    }
  }
  return models;
}

std::vector<ClientMetric::Label> LabelsOf(const MetricAlias& alias,
                                          const ClientMetric& from) {
  std::vector<ClientMetric::Label> labels;
  for (const auto& [ours, theirs] : alias.labels) {
    if (const std::string* value = LabelOf(from, ours)) {
      labels.push_back({std::string(theirs), *value});
    }
  }
  for (const auto& [name, value] : alias.fixed) labels.push_back({name, value});
  std::ranges::sort(labels, {}, &ClientMetric::Label::name);
  return labels;
}

ClientMetric& SeriesOf(MetricFamily& family,
                       std::vector<ClientMetric::Label> labels) {
  for (ClientMetric& metric : family.metric) {
    if (metric.label == labels) return metric;
  }
  family.metric.emplace_back();
  family.metric.back().label = std::move(labels);
  return family.metric.back();
}

// Of the series with these labels; 0: there is none.
double ValueOf(const MetricFamily& family,
               const std::vector<ClientMetric::Label>& labels) {
  for (const ClientMetric& metric : family.metric) {
    if (metric.label != labels) continue;
    return family.type == MetricType::Counter ? metric.counter.value
                                              : metric.gauge.value;
  }
  return 0;
}

// Of the series that become one.
struct Mean {
  std::vector<ClientMetric::Label> label;
  double sum = 0;
  double count = 0;
};

Mean& MeanOf(std::vector<Mean>& means,
             const std::vector<ClientMetric::Label>& label) {
  for (Mean& mean : means) {
    if (mean.label == label) return mean;
  }
  means.push_back({label});
  return means.back();
}

void AddHistogram(const ClientMetric::Histogram& from,
                  ClientMetric::Histogram& to) {
  if (to.bucket.size() != from.bucket.size()) {
    to = from;
    return;
  }
  to.sample_count += from.sample_count;
  to.sample_sum += from.sample_sum;
  for (size_t i = 0; i < to.bucket.size(); ++i) {
    to.bucket[i].cumulative_count += from.bucket[i].cumulative_count;
  }
}

}  // namespace

void MetricAliases::Add(std::vector<MetricAlias> aliases) {
  MutexLock lock(mu_);
  aliases_.insert(aliases_.end(), std::make_move_iterator(aliases.begin()),
                  std::make_move_iterator(aliases.end()));
}

void MetricAliases::AppendTo(std::vector<MetricFamily>& families) {
  MutexLock lock(mu_);
  const size_t num_ours = families.size();
  for (const MetricAlias& alias : aliases_) {
    const MetricFamily* source = Find(families, alias.source);
    if (source == nullptr) continue;
    const MetricFamily* divisor = Find(families, alias.per);
    if (divisor == nullptr && !alias.per.empty()) continue;
    const bool some_models = !alias.of_models_with.empty();
    const std::set<std::string> models =
        ModelsOf(some_models ? Find(families, alias.of_models_with) : nullptr);
    MetricFamily made;
    made.name = alias.name;
    made.help = alias.help;
    made.type = TypeOf(alias.kind);
    const auto known = std::find_if(
        families.begin() + static_cast<std::ptrdiff_t>(num_ours),
        families.end(),
        [&](const MetricFamily& each) { return each.name == alias.name; });
    MetricFamily& family = known == families.end() ? made : *known;
    std::vector<Mean> means;
    for (const ClientMetric& from : source->metric) {
      const auto& [label, wanted] = alias.where;
      const std::string* value = LabelOf(from, label);
      if (!label.empty() && (value == nullptr || *value != wanted)) continue;
      const std::string* model = LabelOf(from, "model");
      if (some_models && (model == nullptr || !models.contains(*model))) {
        continue;
      }
      ClientMetric& to = SeriesOf(family, LabelsOf(alias, from));
      if (alias.part == MetricPart::kHistogram) {
        AddHistogram(from.histogram, to.histogram);
        continue;
      }
      double number = source->type == MetricType::Counter ? from.counter.value
                                                          : from.gauge.value;
      const double sum = from.histogram.sample_sum;
      const auto count = static_cast<double>(from.histogram.sample_count);
      if (divisor != nullptr || alias.part == MetricPart::kRecentMean) {
        // A mean is that of all series with the same labels (versions).
        Mean& mean = MeanOf(means, to.label);
        const bool of_value =
            divisor != nullptr && alias.part != MetricPart::kSum;
        mean.sum += of_value ? number : sum;
        mean.count = divisor != nullptr ? ValueOf(*divisor, to.label)
                                        : mean.count + count;
        continue;
      }
      if (alias.part == MetricPart::kSum) number = sum;
      if (alias.part == MetricPart::kCount) number = count;
      number *= alias.scale;
      if (alias.part == MetricPart::kGreatest) {
        to.counter.value = to.gauge.value = std::max(to.gauge.value, number);
        continue;
      }
      // One of the two is written by the serializer.
      to.counter.value += number;
      to.gauge.value += number;
    }
    for (const Mean& mean : means) {
      double number = mean.count > 0 ? mean.sum / mean.count : 0;
      if (alias.part == MetricPart::kRecentMean) {
        std::string key = family.name;
        for (const auto& each : mean.label) key += '\n' + each.value;
        Taken& taken = recent_[key];
        // Series that left (a model was loaded anew) took their share along:
        // what is there now is new, as Prometheus' rate has it.
        if (mean.count < taken.count || mean.sum < taken.sum) {
          taken.sum = taken.count = 0;
        }
        if (mean.count > taken.count) {
          taken = {mean.sum, mean.count,
                   (mean.sum - taken.sum) / (mean.count - taken.count)};
        }
        number = taken.mean;
      }
      ClientMetric& to = SeriesOf(family, mean.label);
      to.counter.value += number * alias.scale;
      to.gauge.value += number * alias.scale;
    }
    if (known == families.end() && !made.metric.empty()) {
      families.push_back(std::move(made));
    }
  }
}

}  // namespace millrace
