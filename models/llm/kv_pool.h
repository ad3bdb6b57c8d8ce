// The bytes of the KV cache: physical pages, numbered from 0. Who holds which
// page is the scheduler's business, what is inside is the backend's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "config/base/status.h"
#include "models/llm/step.h"
#include "models/memory/huge_buffer.h"

namespace millrace::models {

class KvPool {
 public:
  // Reserves address space; a page costs memory when first written.
  static StatusOr<KvPool> Create(int32_t num_pages, int64_t page_bytes,
                                 bool huge_pages);

  // Has the system find memory for some more of the pages from `first_unused`
  // on, which may not be given out yet. False once there is enough ahead.
  bool PrepareAhead(int32_t first_unused);

  std::byte* data() const { return memory_.data(); }
  std::span<std::byte> page(PageId page) const {
    return {data() + static_cast<int64_t>(page) * page_bytes_,
            static_cast<size_t>(page_bytes_)};
  }
  int32_t num_pages() const { return num_pages_; }
  int64_t page_bytes() const { return page_bytes_; }

 private:
  HugeBuffer memory_;
  int32_t num_pages_ = 0;
  int64_t page_bytes_ = 0;
  int64_t prepared_bytes_ = 0;  // from the beginning
};

}  // namespace millrace::models
