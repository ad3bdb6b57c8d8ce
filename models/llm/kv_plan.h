// How the KV cache of a model is divided, and how large it is.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "config/base/status.h"
#include "config/schema.h"
#include "models/llm/config.h"
#include "models/llm/device.h"
#include "models/llm/page_groups.h"
#include "models/llm/source.h"

namespace millrace::models {

// The page groups of a model. One where pages of all layers are wanted
// together, for a draft model or a folder of pages, and where `several` is
// false.
PageGroups PlanPageGroups(const config::LlmSettings& settings,
                          const ModelConfig& model, bool several);

struct KvPlan {
  int32_t max_context = 0;  // tokens of one sequence
  int32_t num_pages = 0;
  std::string bound_by = {};  // what bounds the pages, for people
};

// What the KV cache takes where kv_cache_memory_bytes says nothing.
struct KvShare {
  int64_t bytes = 0;
  std::string why;  // for people
};
// A quarter; 1 GiB where no limit is known (0).
KvShare ShareOfMemoryLimit(int64_t memory_limit_bytes);

// Of a device with memory of its own: what weights, those of a draft model and
// adapters included, and the buffers of a step leave.
KvShare ShareOfDevice(const Device& device, int64_t weight_bytes,
                      const BackendShape& shape, const StepLimits& limits);
int64_t WeightBytesOn(const Device& device, const FileTensor& tensor);
int64_t WeightBytesOn(const Device& device, const ModelSource& source);
// Of the files of lora_modules, which is what they take of a device, or more:
// values of f32 files become f16 there. Twice that with compute_dtype f32.
// Files that are not there count nothing: their loading says so.
int64_t AdapterBytes(const config::LlmSettings& settings);

// How long a sequence may be and how many pages there are; `windows` and
// `max_rows` tell what a sequence holds of them, see page_groups.h. The pool
// takes
// kv_cache_memory_bytes, or its share, but never more than max_num_seqs
// sequences of full length could use. A context that does not fit is an error
// when it was asked for, and cut with a log line when not.
StatusOr<KvPlan> PlanKv(const config::LlmSettings& settings,
                        const ModelConfig& model, int64_t page_bytes,
                        const KvShare& share, std::span<const int32_t> windows,
                        int32_t max_rows);

}  // namespace millrace::models
