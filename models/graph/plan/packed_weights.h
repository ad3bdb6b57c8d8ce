// Weights as the kernels want them, made once and shared by all plans and all
// contexts of a graph. A weight is known by the tensor it comes from, so plans
// for other input sizes find it again.
//
// PackedWeights: thread-safe. WeightPacker: one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "config/base/mutex.h"
#include "config/base/status.h"
#include "models/cpu/compute_pool.h"
#include "models/graph/op.h"
#include "models/graph/plan/packed_form.h"
#include "models/memory/huge_buffer.h"
#include "models/memory/warm_buffer.h"
#include "models/tensor/tensor.h"

namespace millrace::models::graph {

// A weight on bytes as the kernels want it, and what plans need to know of its
// values. Groups or phases of a layer lie behind one another.
struct PackedBytes {
  const int8_t* data = nullptr;  // aligned to 64 bytes
  std::vector<int64_t> part_at;  // of each group or phase, from data
  std::vector<int32_t> sums;     // of the values of each output
};
// What it takes to make one: `pack` fills memory of `num_bytes`, or fails.
struct BytesToPack {
  std::vector<int64_t> part_at;
  std::vector<int32_t> sums;
  int64_t num_bytes = 0;
  std::function<Status(int8_t* to)> pack;
};

class PackedWeights {
 public:
  // `first` is filled first; may be empty.
  explicit PackedWeights(WarmBuffer first);

  // `fill` is called when the weight is not there in this form yet, with the
  // weight to read from; threads that want another weight wait for it. Where it
  // fails, nothing is kept and the next caller tries again. The floats stay
  // where they are as long as this object lives; aligned to 64 bytes.
  using Fill = std::function<Status(const Tensor& weight, float* to)>;
  StatusOr<const float*> FindOrMake(const std::shared_ptr<const Tensor>& weight,
                                    const PackedForm& form, int64_t num_floats,
                                    const Fill& fill) EXCLUDES(mu_);

  // The same of bytes: `make` turns and reads the whole weight, so it is called
  // once. What is returned stays where it is as long as this object lives.
  using MakeBytes = std::function<BytesToPack()>;
  StatusOr<const PackedBytes*> FindOrMakeBytes(
      const std::shared_ptr<const Tensor>& weight, const PackedForm& form,
      const MakeBytes& make) EXCLUDES(mu_);

  // Of all weights that were packed so far.
  int64_t bytes() const EXCLUDES(mu_);

 private:
  struct Packed {
    std::shared_ptr<const Tensor> weight;  // so that its address stays its own
    const float* floats = nullptr;
    PackedBytes bytes = {};
  };
  using Key = std::pair<const Tensor*, PackedForm>;
  StatusOr<float*> Allocate(int64_t num_floats) REQUIRES(mu_);
  // Gives back what Allocate gave last.
  void Free(int64_t num_floats) REQUIRES(mu_);

  // Held while a weight is packed: two threads never pack the same one.
  mutable Mutex mu_;
  std::map<Key, Packed> packed_ GUARDED_BY(mu_);
  const WarmBuffer first_;
  std::vector<HugeBuffer> chunks_ GUARDED_BY(mu_);
  float* next_ GUARDED_BY(mu_) = nullptr;  // in the last chunk
  int64_t left_ GUARDED_BY(mu_) = 0;       // floats, behind it
  int64_t bytes_ GUARDED_BY(mu_) = 0;
};

// How one plan, while it is made, asks for packed weights.
class WeightPacker {
 public:
  // Large weights are packed by all members of the pool, which is that of the
  // calling thread; null: by the caller alone.
  WeightPacker(PackedWeights& packed, ComputePool* pool)
      : packed_(packed), pool_(pool) {}

  StatusOr<const float*> Get(const std::shared_ptr<const Tensor>& weight,
                             const PackedForm& form, int64_t num_floats,
                             const PackedWeights::Fill& fill);
  // The same where members of a team may fill a part each.
  using FillPart =
      std::function<void(const Tensor& weight, float* to, const Team& team)>;
  StatusOr<const float*> GetByParts(const std::shared_ptr<const Tensor>& weight,
                                    const PackedForm& form, int64_t num_floats,
                                    const FillPart& fill);

  StatusOr<const PackedBytes*> GetBytes(
      const std::shared_ptr<const Tensor>& weight, const PackedForm& form,
      const PackedWeights::MakeBytes& make);

  // The weights that Get was asked for since the last call.
  std::vector<const Tensor*> TakeAsked() { return std::exchange(asked_, {}); }

 private:
  PackedWeights& packed_;
  ComputePool* const pool_;
  std::vector<const Tensor*> asked_;
};

}  // namespace millrace::models::graph
