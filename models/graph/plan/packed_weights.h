// Weights as the kernels want them, made once and shared by all plans of an
// executor. A weight is known by the tensor it comes from, so plans for other
// input sizes find it again.
//
// Engine thread only.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "config/base/status.h"
#include "models/cpu/compute_pool.h"
#include "models/graph/op.h"
#include "models/graph/plan/packed_form.h"
#include "models/memory/huge_buffer.h"
#include "models/memory/warm_buffer.h"
#include "models/tensor/tensor.h"

namespace millrace::models::graph {

class PackedWeights {
 public:
  // `first` is filled first; may be empty. Large weights are packed by all
  // members of the pool, which outlives this object; null: by the caller.
  PackedWeights(WarmBuffer first, ComputePool* pool);

  // `fill` is called when the weight is not there in this form yet, with the
  // weight to read from. The floats stay where they are as long as this object
  // lives; aligned to 64 bytes.
  using Fill = std::function<void(const Tensor& weight, float* to)>;
  StatusOr<const float*> Get(const std::shared_ptr<const Tensor>& weight,
                             const PackedForm& form, int64_t num_floats,
                             const Fill& fill);
  // The same where members of a team may fill a part each.
  using FillPart =
      std::function<void(const Tensor& weight, float* to, const Team& team)>;
  StatusOr<const float*> GetByParts(const std::shared_ptr<const Tensor>& weight,
                                    const PackedForm& form, int64_t num_floats,
                                    const FillPart& fill);

  // The weights that Get was asked for since the last call.
  std::vector<const Tensor*> TakeAsked() { return std::exchange(asked_, {}); }

 private:
  struct Packed {
    std::shared_ptr<const Tensor> weight;  // so that its address stays its own
    const float* floats;
  };

  // What is known, else memory that `make` fills.
  template <typename Make>
  StatusOr<const float*> FindOrMake(const std::shared_ptr<const Tensor>& weight,
                                    const PackedForm& form, int64_t num_floats,
                                    Make&& make);
  StatusOr<float*> Allocate(int64_t num_floats);

  std::map<std::pair<const Tensor*, PackedForm>, Packed> packed_;
  std::vector<const Tensor*> asked_;
  ComputePool* const pool_;
  WarmBuffer first_;
  std::vector<HugeBuffer> chunks_;
  float* next_ = nullptr;  // in the last chunk
  int64_t left_ = 0;       // floats, behind it
};

}  // namespace millrace::models::graph
