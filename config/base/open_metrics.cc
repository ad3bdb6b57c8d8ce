#include "config/base/open_metrics.h"

#include <prometheus/metric_family.h>

#include <charconv>
#include <cmath>
#include <cstdint>
#include <string_view>

namespace millrace {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;
using Labels = std::vector<ClientMetric::Label>;

constexpr std::string_view kTotal = "_total";

void AppendNumber(double value, std::string& text) {
  if (std::isnan(value)) {
    text += "NaN";
  } else if (std::isinf(value)) {
    text += value > 0 ? "+Inf" : "-Inf";
  } else {
    char digits[32];
    const auto end = std::to_chars(digits, digits + sizeof digits, value);
    text.append(digits, end.ptr);
  }
}

// "1.0", "0.005": a bound is the same text everywhere.
std::string BoundText(double bound) {
  std::string text;
  AppendNumber(bound, text);
  if (text.find_first_not_of("-0123456789") == std::string::npos) text += ".0";
  return text;
}

// Of a milli-second's precision, never with an exponent.
void AppendUnixTime(double seconds, std::string& text) {
  char digits[64];
  const auto end = std::to_chars(digits, digits + sizeof digits, seconds,
                                 std::chars_format::fixed, 3);
  text.append(digits, end.ptr);
}

void AppendEscaped(std::string_view value, std::string& text) {
  for (const char c : value) {
    if (c == '\n') {
      text += "\\n";
      continue;
    }
    if (c == '\\' || c == '"') text += '\\';
    text += c;
  }
}

void AppendLabel(std::string_view name, std::string_view value,
                 std::string& text) {
  text += text.back() == '{' ? "" : ",";
  text.append(name).append("=\"");
  AppendEscaped(value, text);
  text += '"';
}

// "NAME{a="b",le="1.0"} "; no braces without labels.
void AppendSeries(std::string_view name, std::string_view suffix,
                  const Labels& labels, std::string_view more_name,
                  std::string_view more_value, std::string& text) {
  text.append(name).append(suffix);
  if (!labels.empty() || !more_name.empty()) {
    text += '{';
    for (const auto& label : labels) AppendLabel(label.name, label.value, text);
    if (!more_name.empty()) AppendLabel(more_name, more_value, text);
    text += '}';
  }
  text += ' ';
}

void AppendSample(std::string_view name, std::string_view suffix,
                  const Labels& labels, double value, std::string& text) {
  AppendSeries(name, suffix, labels, {}, {}, text);
  AppendNumber(value, text);
  text += '\n';
}

void AppendExemplar(const Exemplar& exemplar, std::string& text) {
  text += " # {";
  AppendLabel("trace_id", exemplar.trace_id, text);
  text += "} ";
  AppendNumber(exemplar.value, text);
  text += ' ';
  AppendUnixTime(exemplar.unix_seconds, text);
}

const std::vector<Exemplar>* Find(const ExemplarTable& table,
                                  const std::string& name,
                                  const Labels& labels) {
  ExemplarTable::key_type key(name, {});
  for (const auto& label : labels) key.second[label.name] = label.value;
  const auto found = table.find(key);
  return found == table.end() ? nullptr : &found->second;
}

void AppendHistogram(const std::string& name, const ClientMetric& metric,
                     const std::vector<Exemplar>* exemplars,
                     std::string& text) {
  const ClientMetric::Histogram& histogram = metric.histogram;
  for (size_t i = 0; i < histogram.bucket.size(); ++i) {
    const auto& bucket = histogram.bucket[i];
    AppendSeries(name, "_bucket", metric.label, "le",
                 BoundText(bucket.upper_bound), text);
    AppendNumber(static_cast<double>(bucket.cumulative_count), text);
    const bool has_exemplar = exemplars != nullptr && i < exemplars->size() &&
                              !(*exemplars)[i].trace_id.empty();
    if (has_exemplar) AppendExemplar((*exemplars)[i], text);
    text += '\n';
  }
  AppendSample(name, "_count", metric.label,
               static_cast<double>(histogram.sample_count), text);
  AppendSample(name, "_sum", metric.label, histogram.sample_sum, text);
}

void AppendHead(std::string_view name, std::string_view type,
                std::string_view help, std::string& text) {
  text.append("# TYPE ").append(name).append(" ").append(type).append("\n");
  if (help.empty()) return;
  text.append("# HELP ").append(name).append(" ");
  AppendEscaped(help, text);
  text += '\n';
}

}  // namespace

std::string OpenMetricsText(const std::vector<MetricFamily>& families,
                            const ExemplarTable& exemplars) {
  std::string text;
  for (const MetricFamily& family : families) {
    if (family.metric.empty()) continue;
    std::string_view name = family.name;
    switch (family.type) {
      case MetricType::Histogram:
        AppendHead(name, "histogram", family.help, text);
        for (const ClientMetric& metric : family.metric) {
          AppendHistogram(family.name, metric,
                          Find(exemplars, family.name, metric.label), text);
        }
        break;
      case MetricType::Counter: {
        const bool is_total = name.ends_with(kTotal);
        if (is_total) name.remove_suffix(kTotal.size());
        AppendHead(name, is_total ? "counter" : "unknown", family.help, text);
        for (const ClientMetric& metric : family.metric) {
          AppendSample(family.name, "", metric.label, metric.counter.value,
                       text);
        }
        break;
      }
      default:
        AppendHead(name, "gauge", family.help, text);
        for (const ClientMetric& metric : family.metric) {
          AppendSample(family.name, "", metric.label, metric.gauge.value, text);
        }
    }
  }
  return text + "# EOF\n";
}

}  // namespace millrace
