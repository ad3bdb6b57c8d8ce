// What a runner offers beside Runner when the bytes of its KV pages can be read
// and put back: a copy of what steps have written to a page, in a layout of the
// runner's own. Between two steps, on the engine's thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "models/llm/step.h"

namespace millrace::models {

class PageAccess {
 public:
  virtual ~PageAccess() = default;
  virtual int64_t page_bytes() const = 0;
  // [page_bytes]
  virtual void ReadPage(PageId page, std::span<std::byte> bytes) const = 0;
  virtual void WritePage(PageId page, std::span<const std::byte> bytes) = 0;
};

}  // namespace millrace::models
