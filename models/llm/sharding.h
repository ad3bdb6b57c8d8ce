// How a language model is cut for a group of ranks (tensor parallel, Shoeybi et
// al. 2019): which tensors are cut along their outputs, which along their
// inputs, and what every rank keeps whole. A layer so needs two sums over the
// ranks: behind the projection of attention and behind that of the
// feed-forward.
//
//   rank 0   q heads 0…3   kv head 0   ffn 0…511     logits 0…1023
//   rank 1   q heads 4…7   kv head 1   ffn 512…1023  logits 1024…2047
//
// Keys and values of a head stay on the rank that has the head.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/base/status.h"
#include "models/llm/llm_plan.h"
#include "models/tensor/quant.h"

namespace millrace::models {

enum class Cut {
  kWhole,     // every rank has all of it
  kOutputs,   // a part of its outputs ("column parallel")
  kInputs,    // a part of its inputs ("row parallel"): outputs are summed
  kRankZero,  // on rank 0 alone: added once to a sum over the ranks
};
std::string_view NameOf(Cut cut);

// What a cut tensor is counted in: a rank has whole ones.
enum class CutUnit { kNone, kHeads, kKvHeads, kFfn, kVocabulary };

// A line of the table, for people.
struct TensorCut {
  std::string tensor;  // as GGUF names it, without the layer
  std::string cut;     // "outputs"
  std::string unit;    // "heads"; "" where whole
  int64_t of_all = 0;  // units in the model, and at a rank
  int64_t of_rank = 0;
};

struct ShardOptions {
  int32_t rank = 0;
  int32_t size = 1;
  // What float matrices of layers are rounded to, see QuantizeTo.
  std::optional<GgmlType> quantize = {};
};

// The part of one rank. INVALID_ARGUMENT in one sentence, with sizes that work,
// for a size that does not divide the model; UNIMPLEMENTED for families and
// files that are not cut (mixtures of experts, packed form).
StatusOr<LlmPlan> ShardOf(const ModelSource& source, const LlmPlan& whole,
                          const ShardOptions& options);

// All tensors of a part, which is ShardOf's; one that is tied to another once.
std::vector<const FileTensor*> TensorsOfPart(const LlmPlan& part);

// Sizes above 1 up to `most` that ShardOf takes.
std::vector<int32_t> WorkingSizes(const ModelSource& source,
                                  const LlmPlan& whole, int32_t most,
                                  std::optional<GgmlType> quantize = {});

// The table of a model that ShardOf takes, in the order of a step.
std::vector<TensorCut> ShardingTable(const LlmPlan& whole, int32_t size);

}  // namespace millrace::models
