// Frequencies are worked out in f32, step by step as the models' training code
// does: at a position of thousands the angle of a more exact frequency would be
// a different one.
#include "models/llm/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>

namespace millrace::models {
namespace {

StatusOr<float> Positive(const ModelSource& source, const char* key,
                         double otherwise) {
  ASSIGN_OR_RETURN(const double x, source.Float(key, otherwise));
  if (!(x > 0) || !(x < 1e30)) {
    return InvalidArgument(source.KeyName(key) + " is " + std::to_string(x) +
                           "; expected a number above 0");
  }
  return static_cast<float>(x);
}

StatusOr<int32_t> OriginalContext(const ModelSource& source) {
  constexpr const char* kKey = "rope.scaling.original_context_length";
  ASSIGN_OR_RETURN(const int64_t trained, source.Int("context_length"));
  ASSIGN_OR_RETURN(const int64_t n, source.Int(kKey, trained));
  if (n < 2 || n > (1 << 27)) {
    return InvalidArgument(source.KeyName(kKey) + " is " + std::to_string(n) +
                           ", 2 to 134217728 is allowed");
  }
  return static_cast<int32_t>(n);
}

Status ReadYarn(const ModelSource& source, RopeConfig& rope) {
  ASSIGN_OR_RETURN(rope.beta_fast,
                   Positive(source, "rope.scaling.yarn_beta_fast", 32));
  ASSIGN_OR_RETURN(rope.beta_slow,
                   Positive(source, "rope.scaling.yarn_beta_slow", 1));
  ASSIGN_OR_RETURN(rope.whole_pairs,
                   source.Bool("rope.scaling.truncate", true));
  // Section 3.4: scores are a little hotter. The file's own number multiplies
  // that.
  const double by_factor =
      rope.factor <= 1 ? 1 : 0.1 * std::log(rope.factor) + 1;
  ASSIGN_OR_RETURN(const float own,
                   Positive(source, "rope.scaling.attn_factor", 1));
  rope.magnitude = static_cast<float>(by_factor * own);
  return OkStatus();
}

Status ReadLong(const ModelSource& source, RopeConfig& rope) {
  ASSIGN_OR_RETURN(const int64_t trained, source.Int("context_length"));
  const double ratio = static_cast<double>(trained) / rope.original_context;
  const double by_ratio =
      ratio <= 1 ? 1
                 : std::sqrt(1 + std::log(ratio) /
                                     std::log(double(rope.original_context)));
  ASSIGN_OR_RETURN(rope.magnitude,
                   Positive(source, "rope.scaling.attn_factor", by_ratio));
  return OkStatus();
}

// Where in the pairs one makes so many turns within the original context.
double PairOf(double turns, const RopeConfig& rope, int32_t dims) {
  return dims *
         std::log(rope.original_context / (turns * 2 * std::numbers::pi)) /
         (2 * std::log(double(rope.freq_base)));
}

void StretchSlowPairs(const RopeConfig& rope, int32_t dims,
                      std::vector<float>& frequencies) {
  double low = PairOf(rope.beta_fast, rope, dims);
  double high = PairOf(rope.beta_slow, rope, dims);
  if (rope.whole_pairs) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, double(dims - 1));
  if (low == high) high += 0.001;
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const auto stretched = static_cast<float>(
        std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0));
    const float before = frequencies[i];
    frequencies[i] =
        before / rope.factor * stretched + before * (1 - stretched);
  }
}

// Source: "NTK-aware" scaling as Hugging Face's rope_type "dynamic" has it.
float DynamicBase(const RopeConfig& rope, int32_t dims, int32_t context) {
  const double tokens = std::max(context, rope.original_context);
  const double growth =
      rope.factor * tokens / rope.original_context - (rope.factor - 1);
  return static_cast<float>(rope.freq_base *
                            std::pow(growth, dims / (dims - 2.0)));
}

}  // namespace

StatusOr<RopeConfig> ReadRope(const ModelSource& source, int32_t dims) {
  RopeConfig rope;
  ASSIGN_OR_RETURN(rope.freq_base, Positive(source, "rope.freq_base", 10000));
  ASSIGN_OR_RETURN(rope.factor, Positive(source, "rope.scaling.factor", 1));
  ASSIGN_OR_RETURN(std::string type,
                   source.String("rope.scaling.type", "none"));
  // GGUF files with factors of LongRoPE need not name it.
  if (source.FindTensor("rope_factors_long.weight") != nullptr) {
    type = "longrope";
  }
  if (type == "none") {
    rope.factor = 1;
    return rope;
  }
  if (type == "linear") {
    rope.scaling = RopeScaling::kLinear;
    return rope;
  }
  ASSIGN_OR_RETURN(rope.original_context, OriginalContext(source));
  if (type == "yarn") {
    rope.scaling = RopeScaling::kYarn;
    if (!(rope.freq_base > 1)) {
      return InvalidArgument(source.KeyName("rope.freq_base") +
                             " must be above 1 for YaRN");
    }
    RETURN_IF_ERROR(ReadYarn(source, rope));
    return rope;
  }
  if (type == "longrope") {
    rope.scaling = RopeScaling::kLong;
    RETURN_IF_ERROR(ReadLong(source, rope));
    return rope;
  }
  if (type == "dynamic" && dims > 2) {
    rope.scaling = RopeScaling::kDynamic;
    return rope;
  }
  return Unimplemented(source.KeyName("rope.scaling.type") + " is '" + type +
                       "'; none, linear, dynamic, yarn and longrope are "
                       "supported");
}

int32_t ScaledContext(const RopeConfig& rope, int32_t trained) {
  if (rope.scaling != RopeScaling::kDynamic &&
      rope.scaling != RopeScaling::kYarn) {
    return trained;
  }
  const double reach =
      std::min(double(rope.factor) * rope.original_context, 1e8);
  return std::max(trained, static_cast<int32_t>(reach));
}

RopeTable MakeRopeTable(const RopeConfig& rope, const RopeFactors& factors,
                        int32_t dims, int32_t context) {
  RopeTable table;
  table.magnitude = rope.magnitude;
  const float base = rope.scaling == RopeScaling::kDynamic
                         ? DynamicBase(rope, dims, context)
                         : rope.freq_base;
  std::span<const float> divisors;
  if (rope.scaling == RopeScaling::kLong) {
    divisors =
        context > rope.original_context ? factors.of_long : factors.of_short;
  } else if (rope.file_factors) {
    divisors = factors.all;
  }
  for (int32_t i = 0; i < dims / 2; ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(dims);
    float frequency = 1.0f / std::pow(base, exponent);
    if (rope.scaling == RopeScaling::kLinear) {
      frequency *= 1.0f / rope.factor;
    }
    if (!divisors.empty()) frequency /= divisors[static_cast<size_t>(i)];
    table.frequencies.push_back(frequency);
  }
  if (rope.scaling == RopeScaling::kYarn) {
    StretchSlowPairs(rope, dims, table.frequencies);
  }
  return table;
}

}  // namespace millrace::models
