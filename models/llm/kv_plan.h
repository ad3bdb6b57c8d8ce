// How large the KV cache of a model is.
#pragma once

#include <cstdint>
#include <string>

#include "config/base/status.h"
#include "config/schema.h"
#include "models/llm/config.h"

namespace millrace::models {

struct KvPlan {
  int32_t max_context = 0;  // tokens of one sequence
  int32_t num_pages = 0;
  std::string bound_by = {};  // what bounds the pages, for people
};

// How long a sequence may be and how many pages there are. The pool takes
// kv_cache_memory_bytes, or a quarter of the memory limit, but never more than
// max_num_seqs sequences of full length could use. A context that does not fit
// is an error when it was asked for, and cut with a log line when not.
StatusOr<KvPlan> PlanKv(const config::LlmSettings& settings,
                        const ModelConfig& model, int64_t page_bytes,
                        int64_t memory_limit_bytes);

}  // namespace millrace::models
