// A layer on bytes, resolved as far as it is known before a run: weights as the
// kernels want them, and what happens to a sum.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "config/base/status.h"
#include "models/cpu/graph_int8_kernels.h"
#include "models/graph/fused_params.h"
#include "models/graph/ir.h"
#include "models/graph/passes/bytes.h"
#include "models/graph/plan/lower.h"
#include "models/graph/plan/step.h"

namespace millrace::models::graph {

// What is known of each output of a weight.
struct ByteOutputs {
  std::span<const int32_t> sums;  // of its values
  // Of as many outputs, of one for all, or of as many as repeat.
  std::span<const float> scales;
};

// The values of a graph, and where a plan keeps them.
struct SlottedGraph {
  const Graph& graph;
  const std::vector<Slot>& slot_of;  // of each value

  Slot slot(ValueId id) const {
    return id == kNoValue ? kNoSlot : slot_of[static_cast<size_t>(id)];
  }
  DType dtype(ValueId id) const { return graph.value(id).type->dtype; }
  const Tensor* constant(ValueId id) const {
    return graph.value(id).constant.get();
  }
};

class ByteEpilogue {
 public:
  // `outputs`: values in a row of the result. Biases repeat where the weight
  // has more outputs than they.
  ByteEpilogue(const Node& node, const SlottedGraph& values,
               const ByteOutputs& weight, int64_t outputs);

  // `measured`: memory of measured_floats(), filled where x's scale is one of
  // this run's; it stays the caller's.
  Int8Epilogue At(const Slots& slots, float* measured) const;
  int64_t measured_floats() const {
    return x_scale_ == kNoSlot ? 0 : 2 * static_cast<int64_t>(scale_.size());
  }
  bool gives_bytes() const { return gives_bytes_; }
  // All that no run changes.
  const Int8Epilogue& fixed() const { return fixed_; }
  // Of each output.
  const std::vector<int32_t>& offset() const { return offset_; }
  const std::vector<float>& scale() const { return scale_; }
  const std::vector<float>& bias() const { return bias_; }  // or empty
  const std::vector<float>& middle_bias() const { return middle_bias_; }
  const uint8_t* lookup() const { return lookup_; }  // [256], or null
  Slot residual() const { return residual_; }
  bool residual_is_bytes() const { return residual_is_bytes_; }
  // Of an x that is measured in a run.
  Slot x_scale() const { return x_scale_; }
  Slot x_zero() const { return x_zero_; }
  // Of any other.
  int32_t known_x_zero() const { return x_.zero; }
  uint8_t x_zero(const Slots& slots) const {
    return x_zero_ == kNoSlot ? static_cast<uint8_t>(x_.zero)
                              : *slots.data<uint8_t>(x_zero_);
  }
  std::string Text() const;
  // Of the lists above.
  int64_t held_bytes() const {
    return static_cast<int64_t>(offset_.size() + scale_.size() + bias_.size() +
                                middle_bias_.size()) *
           4;
  }

 private:
  void Scales(const Node& node, const SlottedGraph& values,
              const ByteOutputs& weight);

  const ByteScale x_;
  const ByteScale y_;
  const bool gives_bytes_;
  Slot x_scale_ = kNoSlot;
  Slot x_zero_ = kNoSlot;
  std::vector<int32_t> offset_;  // for a zero point of 1 where it is measured
  std::vector<float> scale_;     // for a scale of 1 likewise
  std::vector<float> bias_;
  std::vector<float> middle_bias_;
  Slot residual_ = kNoSlot;
  bool residual_is_bytes_ = false;
  const uint8_t* lookup_ = nullptr;
  Int8Epilogue fixed_;
};

// Moves the epilogue to another image and group: rows of the result and the
// first output.
Int8Epilogue Moved(const Int8Epilogue& epilogue, int64_t row, int64_t output);

}  // namespace millrace::models::graph
