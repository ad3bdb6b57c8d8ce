// Linear layers: one matrix product with everything behind it.
#include <algorithm>
#include <string>
#include <utility>

#include "models/graph/plan/epilogue.h"
#include "models/graph/plan/makers.h"
#include "models/graph/plan/split.h"

namespace millrace::models::graph {
namespace {

class LinearStep : public Step {
 public:
  LinearStep(const Node& node, const LowerContext& context, const float* packed)
      : gemm_(context.dense.gemm),
        panel_(context.dense.panel),
        x_(context.slot(node.inputs[0])),
        y_(context.slot(node.outputs[0])),
        n_(context.shape(node.outputs[0]).back()),
        k_(context.shape(node.inputs[0]).back()),
        m_(context.shape(node.outputs[0]).num_elements() /
           std::max<int64_t>(n_, 1)),
        packed_(packed),
        epilogue_(node, context, n_) {}

  Status Run(const Slots& slots, const Team& team) override {
    const Part part = SplitProduct(m_, (n_ + panel_ - 1) / panel_, team);
    gemm_({.x = slots.data<float>(x_),
           .ld_x = k_,
           .row_begin = part.row_begin,
           .row_end = part.row_end,
           .w = packed_,
           .n = n_,
           .k = k_,
           .panel_begin = part.panel_begin,
           .panel_end = part.panel_end,
           .y = slots.data<float>(y_),
           .ld_y = n_,
           .epilogue = epilogue_.At(slots)});
    return OkStatus();
  }

  double macs() const override {
    return static_cast<double>(m_) * static_cast<double>(n_ * k_);
  }

  std::string Text() const override {
    return "Linear " + std::to_string(m_) + " x " + std::to_string(k_) +
           " -> " + std::to_string(n_) + epilogue_.Text();
  }

 private:
  void (*const gemm_)(const GemmArgs&);
  const int64_t panel_;
  const Slot x_;
  const Slot y_;
  const int64_t n_;
  const int64_t k_;
  const int64_t m_;
  const float* const packed_;
  const StepEpilogue epilogue_;
};

}  // namespace

StatusOr<std::unique_ptr<Step>> MakeLinearStep(const Node& node,
                                               const LowerContext& context) {
  const auto& weight = context.graph.value(node.inputs[1]).constant;
  const bool weight_kn = node.attrs.Int("weight_kn", 0) != 0;
  const int64_t n = weight->shape()[weight_kn ? 1 : 0];
  const int64_t k = weight->shape()[weight_kn ? 0 : 1];
  const DenseTable& dense = context.dense;
  ASSIGN_OR_RETURN(
      const float* packed,
      context.packed.Get(
          weight, weight_kn ? 1 : 0, dense.packed_floats(n, k), [&](float* to) {
            const MatrixStrides strides = weight_kn
                                              ? MatrixStrides{.n = 1, .k = n}
                                              : MatrixStrides{.n = k, .k = 1};
            dense.pack(weight->data<float>(), n, k, strides, 0,
                       (n + dense.panel - 1) / dense.panel, to);
          }));
  return std::unique_ptr<Step>(
      std::make_unique<LinearStep>(node, context, packed));
}

}  // namespace millrace::models::graph
