// A group of ranks that compute one model together, each a process or, in
// tests, a thread. Every rank calls the same operations in the same order.
//
//   RETURN_IF_ERROR(group.AllReduceSum(values));   // in every rank's step
//   RETURN_IF_ERROR(group.Broadcast(message, Patience::kIdle));
//
// Sums add the ranks' values in the order of ranks, whatever the count, so a
// value's bits depend on nothing beside it, and are the same at every rank and
// on every run.
//
// An error (UNAVAILABLE) breaks the group: every later call gives it again. One
// thread at a time, not always the same.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "config/base/status.h"

namespace millrace::models {

// How long a rank waits for the others.
enum class Patience {
  kStep,  // they compute the same: as long as the group's timeout
  kIdle,  // they may have no work, or load: without end
};

class Group {
 public:
  virtual ~Group() = default;
  virtual int32_t rank() const = 0;
  virtual int32_t size() const = 0;
  // Of the ranks on this machine.
  virtual int32_t local_rank() const = 0;
  virtual int32_t local_size() const = 0;

  // Memory for `count` values whose sums cost least, until the group's end;
  // as many at every rank, and AllReduceSum is then given the same part of it
  // at every rank. Waits for all ranks. Empty where there is none, at all
  // ranks: any memory will do.
  virtual std::span<float> SumBuffer(size_t /*count*/) { return {}; }
  // Each value becomes its sum over the ranks.
  virtual Status AllReduceSum(std::span<float> values) = 0;
  // Rank 0's bytes become everybody's, who gives as many.
  virtual Status Broadcast(std::span<std::byte> bytes, Patience patience) = 0;
  // As many values from each rank become all[size][count] at rank 0; `all` is
  // not looked at elsewhere.
  virtual Status Gather(std::span<const float> own, std::span<float> all) = 0;
  // As many bytes from each rank become all[size][count] everywhere.
  virtual Status AllGather(std::span<const std::byte> own,
                           std::span<std::byte> all, Patience patience) = 0;
};

}  // namespace millrace::models
