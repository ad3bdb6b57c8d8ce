// Memory for a whole load whose first pages are asked for ahead of use, by a
// thread that does nothing else: the kernel zeroes them there while the owner
// still reads files and decides what goes where.
//
//   ASSIGN_OR_RETURN(
//       WarmBuffer weights,
//       WarmBuffer::Start(bytes, expected_bytes, cpus, "graph weights"));
//   weights.data();  // at once; pages that are not there yet come when touched
//
// Thread rule: as of plain memory; the thread writes nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <thread>

#include "config/base/status.h"
#include "config/topology.h"
#include "models/memory/huge_buffer.h"

namespace millrace::models {

class WarmBuffer {
 public:
  WarmBuffer() = default;
  // As HugeBuffer::Allocate in huge pages, the first `warm_bytes` of which are
  // asked for. With fewer than two CPUs in `cpus`, or on a kernel before Linux
  // 5.14, all come when touched.
  static StatusOr<WarmBuffer> Start(int64_t bytes, int64_t warm_bytes,
                                    const config::CpuSet& cpus,
                                    std::string_view purpose);
  WarmBuffer(WarmBuffer&&) = default;
  WarmBuffer& operator=(WarmBuffer&&) = default;

  std::byte* data() const { return buffer_.data(); }
  int64_t size() const { return buffer_.size(); }
  // Returns when nothing more is asked for.
  void Wait();

 private:
  HugeBuffer buffer_;
  std::jthread thread_;  // stops and goes before the memory does
};

}  // namespace millrace::models
