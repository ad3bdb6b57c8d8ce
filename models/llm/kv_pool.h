// The bytes of the KV cache: physical pages, numbered from 0. Who holds which
// page is the scheduler's business, what is inside is the backend's.
#pragma once

#include <cstdint>

#include "config/base/status.h"
#include "config/schema.h"
#include "models/llm/config.h"
#include "models/memory/huge_buffer.h"

namespace millrace::models {

struct KvPlan {
  int32_t max_context = 0;  // tokens of one sequence
  int32_t num_pages = 0;
};

// How long a sequence may be and how many pages there are. The pool takes
// kv_cache_memory_bytes, or a quarter of the memory limit, but never more than
// max_num_seqs sequences of full length could use. A context that does not fit
// is an error when it was asked for, and cut with a log line when not.
StatusOr<KvPlan> PlanKv(const config::LlmSettings& settings,
                        const ModelConfig& model, int64_t page_bytes,
                        int64_t memory_limit_bytes);

class KvPool {
 public:
  // Reserves address space; a page costs memory when first written.
  static StatusOr<KvPool> Create(int32_t num_pages, int64_t page_bytes,
                                 bool huge_pages);

  // Has the system find memory for some more of the pages from `first_unused`
  // on, which nobody may have been given yet. False once there is enough ahead.
  bool PrepareAhead(int32_t first_unused);

  std::byte* data() const { return memory_.data(); }
  int32_t num_pages() const { return num_pages_; }

 private:
  HugeBuffer memory_;
  int32_t num_pages_ = 0;
  int64_t page_bytes_ = 0;
  int64_t prepared_bytes_ = 0;  // from the beginning
};

}  // namespace millrace::models
