#include "models/llm/kv_pool.h"

#include <algorithm>

namespace millrace::models {
namespace {

// A burst of some hundred short requests to a small model, whose pages take
// 1.5 MB (SmolLM2-135M); never more than a quarter of the pool.
constexpr int64_t kMostAhead = int64_t{256} << 20;
// One huge page: cleared in 0.2 to 2 ms, which is what a request may wait.
constexpr int64_t kPieceBytes = int64_t{2} << 20;
constexpr int64_t kLeastPageBytes = 4096;

}  // namespace

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
