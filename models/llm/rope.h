// Rotary position embedding (Su et al. 2021): what a file says of it, and the
// angles that follow. A rope that is scaled depends on how long sequences may
// become: it is one for as long as the model is loaded, so that keys in the
// cache and the bits of a token depend on nothing else.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "config/base/status.h"
#include "models/llm/backend.h"
#include "models/llm/source.h"

namespace millrace::models {

// How a model reaches beyond the context that it was first trained for.
enum class RopeScaling {
  kNone,
  kLinear,   // positions are divided by the factor
  kDynamic,  // the base grows with the context that is served (dynamic NTK)
  kYarn,     // slow pairs are stretched, fast ones are not (Peng et al. 2023)
  kLong,     // factors by pair, of two sets (LongRoPE, Ding et al. 2024)
};

struct RopeConfig {
  float freq_base = 10000.0f;
  // Whether the factors that some files hold for each pair (Llama 3.1) divide
  // its frequencies.
  bool file_factors = true;
  RopeScaling scaling = RopeScaling::kNone;
  float factor = 1;
  // Tokens before scaling, of kDynamic, kYarn and kLong.
  int32_t original_context = 0;
  // Turns within the original context above which a pair stays as it is and
  // below which it is stretched whole; between, it is mixed. Of kYarn.
  float beta_fast = 32;
  float beta_slow = 1;
  bool whole_pairs = true;  // the range between begins and ends at a pair
  float magnitude = 1;      // multiplies what is rotated
};

// Reads the rope that all layers share unless a recipe says otherwise. `dims`
// of each head are rotated. INVALID_ARGUMENT or UNIMPLEMENTED names the key.
StatusOr<RopeConfig> ReadRope(const ModelSource& source, int32_t dims);
// The longest sequence that the rope was made for, of a file that says it was
// trained for `trained` tokens.
int32_t ScaledContext(const RopeConfig& rope, int32_t trained);

// Factors that a file holds for each pair; empty: none. Each divides a
// frequency.
struct RopeFactors {
  std::vector<float> all;       // whatever the length
  std::vector<float> of_short;  // LongRoPE: up to the original context
  std::vector<float> of_long;   // and beyond
};
// The table of a rope over `dims` values of each head, for sequences of up to
// `context` tokens.
RopeTable MakeRopeTable(const RopeConfig& rope, const RopeFactors& factors,
                        int32_t dims, int32_t context);

}  // namespace millrace::models
