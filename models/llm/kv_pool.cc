// Sizing in whole pages. What a reader would guess wrong: with no memory limit
// known and no size given the pool is 1 GiB, not unbounded.
#include "models/llm/kv_pool.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "config/base/log.h"
#include "models/llm/step.h"

namespace millrace::models {
namespace {

constexpr int64_t kPoolWithoutLimit = int64_t{1} << 30;
// A burst of some hundred short requests to a small model, whose pages take
// 1.5 MB (SmolLM2-135M); never more than a quarter of the pool.
constexpr int64_t kMostAhead = int64_t{256} << 20;
// One huge page: cleared in 0.2 to 2 ms, which is what a request may wait.
constexpr int64_t kPieceBytes = int64_t{2} << 20;
constexpr int64_t kLeastPageBytes = 4096;

int64_t PagesOf(int64_t tokens) {
  return (tokens + kPageTokens - 1) / kPageTokens;
}

}  // namespace

StatusOr<KvPlan> PlanKv(const config::LlmSettings& settings,
                        const ModelConfig& model, int64_t page_bytes,
                        int64_t memory_limit_bytes) {
  const bool asked = settings.max_model_len > 0;
  if (settings.max_model_len > model.context) {
    return InvalidArgument("max_model_len is " +
                           std::to_string(settings.max_model_len) +
                           ", but the model was trained for " +
                           std::to_string(model.context) + " tokens; lower it")
        .At("max_model_len");
  }
  int64_t context = asked ? settings.max_model_len : model.context;
  const bool sized = settings.kv_cache_memory_bytes > 0;
  const int64_t bytes = sized ? settings.kv_cache_memory_bytes
                        : memory_limit_bytes > 0 ? memory_limit_bytes / 4
                                                 : kPoolWithoutLimit;
  const int64_t affordable = bytes / page_bytes;
  if (affordable < 1 || (asked && affordable < PagesOf(context))) {
    return ResourceExhausted(
               "the KV cache of " + std::to_string(bytes) + " bytes holds " +
               std::to_string(affordable * kPageTokens) +
               " tokens, but one sequence may have " + std::to_string(context) +
               "; lower max_model_len or raise kv_cache_memory_bytes to " +
               std::to_string(PagesOf(context) * page_bytes))
        .At("kv_cache_memory_bytes");
  }
  if (affordable < PagesOf(context)) {
    context = affordable * kPageTokens;
    LogWarning("context cut to what the KV cache holds",
               {{"max_model_len", context},
                {"trained", model.context},
                {"kv_cache_memory_bytes", bytes}});
  }
  const int64_t useful = PagesOf(context) * settings.max_num_seqs;
  const int64_t pages = std::min(
      {affordable, useful, int64_t{std::numeric_limits<int32_t>::max()}});
  return KvPlan{static_cast<int32_t>(context), static_cast<int32_t>(pages)};
}

StatusOr<KvPool> KvPool::Create(int32_t num_pages, int64_t page_bytes,
                                bool huge_pages) {
  KvPool pool;
  ASSIGN_OR_RETURN(pool.memory_, HugeBuffer::Allocate(num_pages * page_bytes,
                                                      huge_pages, "KV cache"));
  pool.num_pages_ = num_pages;
  pool.page_bytes_ = page_bytes;
  return pool;
}

bool KvPool::PrepareAhead(int32_t first_unused) {
  const int64_t used = first_unused * page_bytes_;
  const int64_t ahead = std::min(kMostAhead, memory_.size() / 4);
  const int64_t wanted = std::min(used + ahead, memory_.size());
  prepared_bytes_ = std::max(prepared_bytes_, used);
  const int64_t end = std::min(prepared_bytes_ + kPieceBytes, wanted);
  for (; prepared_bytes_ < end; prepared_bytes_ += kLeastPageBytes) {
    memory_.data()[prepared_bytes_] = std::byte{0};
  }
  return prepared_bytes_ < wanted;
}

}  // namespace millrace::models
