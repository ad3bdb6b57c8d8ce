// Any bytes as the baseline of a drift monitor: refused with a sentence, or
// counts that are written and read again as the same, and whose stability index
// against others is a finite number that is not negative.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string_view>

#include "handlers/drift/prediction_counts.h"

namespace {

void Require(bool condition, const char* why) {
  if (condition) return;
  std::fprintf(stderr, "drift_baseline_fuzz: %s\n", why);
  std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using millrace::handlers::ParseCounts;
  using millrace::handlers::PredictionCounts;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  for (const int64_t max_classes : {1, 100}) {
    const auto counts = ParseCounts(text, "the baseline", max_classes);
    if (!counts.ok()) {
      Require(counts.status().code() == millrace::StatusCode::kInvalidArgument,
              "a bad baseline is INVALID_ARGUMENT");
      continue;
    }
    const auto again =
        ParseCounts(millrace::handlers::CountsJson(*counts).dump(), "the same",
                    max_classes);
    Require(again.ok() && again->classes == counts->classes &&
                again->confidence == counts->confidence,
            "what is written reads back");
    PredictionCounts other(max_classes);
    other.classes[0] = 1;
    const double index =
        millrace::handlers::StabilityIndex(counts->classes, other.classes);
    Require(std::isfinite(index) && index >= 0, "an index is a number");
  }
  return 0;
}
