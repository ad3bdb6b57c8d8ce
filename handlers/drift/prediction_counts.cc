#include "handlers/drift/prediction_counts.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include "config/base/json.h"
#include "config/base/utf8.h"
#include "handlers/json_fields.h"

namespace millrace::handlers {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kMaxCount = 1'000'000'000'000'000;
constexpr double kLeastShare = 1e-4;
constexpr const char* kOther = "other";

}  // namespace

size_t PredictionCounts::ClassSlot(int64_t class_idx) const {
  const auto last = static_cast<int64_t>(classes.size()) - 1;
  return static_cast<size_t>(class_idx < 0 ? last : std::min(class_idx, last));
}

size_t PredictionCounts::ConfidenceBin(double confidence) {
  const double bin = confidence * static_cast<double>(kConfidenceBins);
  if (!(bin > 0)) return 0;
  return static_cast<size_t>(
      std::min(bin, static_cast<double>(kConfidenceBins - 1)));
}

Json CountsJson(const PredictionCounts& counts) {
  Json classes = Json::object();
  for (size_t i = 0; i < counts.classes.size(); ++i) {
    if (counts.classes[i] == 0) continue;
    const bool is_other = i + 1 == counts.classes.size();
    classes[is_other ? std::string(kOther) : std::to_string(i)] =
        counts.classes[i];
  }
  return {{"classes", std::move(classes)}, {"confidence", counts.confidence}};
}

StatusOr<PredictionCounts> ParseCounts(std::string_view text,
                                       const std::string& where,
                                       int64_t max_classes) {
  const auto wrong = [&](const std::string& why) {
    return InvalidArgument(where + " " + why +
                           "; GET /v2/models/NAME/drift answers with such a "
                           "file")
        .At("drift");
  };
  const auto json = ParseJson(text, {.max_depth = 8, .unique_keys = true});
  if (!json.ok())
    return wrong("is no JSON: " + std::string(json.status().message()));
  const auto classes = ReadObject(*json, "classes");
  const auto confidence = ReadArray(*json, "confidence");
  if (!classes.ok() || *classes == nullptr || !confidence.ok() ||
      *confidence == nullptr) {
    return wrong("has not both an object 'classes' and a list 'confidence'");
  }
  PredictionCounts counts(max_classes);
  const IntRange range = {.min = 0, .max = kMaxCount};
  for (const auto& [key, value] : (*classes)->items()) {
    int64_t class_idx = -1;
    if (key != kOther) {
      const char* end = key.data() + key.size();
      const auto [stop, error] = std::from_chars(key.data(), end, class_idx);
      if (error != std::errc() || stop != end || class_idx < 0) {
        return wrong("has the class '" + Shortened(key, 100) +
                     "', which is no number and not 'other'");
      }
    }
    const auto count = AsInt(value, "classes." + Shortened(key, 100), range);
    if (!count.ok()) return wrong(std::string(count.status().message()));
    int64_t& sum = counts.classes[counts.ClassSlot(class_idx)];
    sum = std::min(sum + *count, kMaxCount);
  }
  // What it counts as other may be any of the classes that are counted now.
  const auto had = json->find("max_classes");
  const bool had_fewer = had != json->end() && had->is_number_integer() &&
                         had->get<int64_t>() < max_classes;
  const auto other = (*classes)->find(kOther);
  if (had_fewer && other != (*classes)->end() && *other != 0) {
    return wrong("counts classes beyond " + DumpJson(*had) +
                 " as one, but max_classes is " + std::to_string(max_classes) +
                 ": let max_classes be at most " + DumpJson(*had) +
                 ", or save the baseline again");
  }
  if ((*confidence)->size() != counts.confidence.size()) {
    return wrong("has " + std::to_string((*confidence)->size()) +
                 " bins of confidence; expected " +
                 std::to_string(counts.confidence.size()));
  }
  for (size_t i = 0; i < counts.confidence.size(); ++i) {
    const auto count = AsInt((**confidence)[i],
                             "confidence[" + std::to_string(i) + "]", range);
    if (!count.ok()) return wrong(std::string(count.status().message()));
    counts.confidence[i] = *count;
  }
  const auto is_zero = [](int64_t count) { return count == 0; };
  if (std::all_of(counts.classes.begin(), counts.classes.end(), is_zero) ||
      std::all_of(counts.confidence.begin(), counts.confidence.end(),
                  is_zero)) {
    return wrong("counts no predictions");
  }
  return counts;
}

std::string ModelOfCounts(std::string_view text) {
  const auto json = ParseJson(text, {.max_depth = 8, .unique_keys = true});
  if (!json.ok() || !json->is_object()) return {};
  const auto model = json->find("model");
  return model != json->end() && model->is_string() ? model->get<std::string>()
                                                    : std::string();
}

double StabilityIndex(std::span<const int64_t> expected,
                      std::span<const int64_t> actual) {
  const auto total = [](std::span<const int64_t> counts) {
    return std::accumulate(counts.begin(), counts.end(), 0.0);
  };
  const auto share = [](int64_t count, double of) {
    return std::max(static_cast<double>(count) / of, kLeastShare);
  };
  const double of_expected = total(expected);
  const double of_actual = total(actual);
  double sum = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double e = share(expected[i], of_expected);
    const double a = share(actual[i], of_actual);
    sum += (a - e) * std::log(a / e);
  }
  return sum;
}

}  // namespace millrace::handlers
