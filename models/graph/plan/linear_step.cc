// Linear layers: one matrix product with everything behind it.
#include <algorithm>
#include <string>
#include <utility>

#include "models/graph/fused_params.h"
#include "models/graph/plan/epilogue.h"
#include "models/graph/plan/makers.h"
#include "models/graph/plan/split.h"

namespace millrace::models::graph {
namespace {

class LinearStep : public Step {
 public:
  LinearStep(const Node& node, const LowerContext& context, const float* packed)
      : products_(context.products(node)),
        num_members_(context.num_members),
        x_(context.slot(node.inputs[0])),
        y_(context.slot(node.outputs[0])),
        of_bf16_(context.is_bf16(node.inputs[0])),
        to_bf16_(context.is_bf16(node.outputs[0])),
        n_(context.shape(node.outputs[0]).back()),
        k_(context.shape(node.inputs[0]).back()),
        ld_x_(context.distance(node.inputs[0])),
        ld_y_(context.distance(node.outputs[0])),
        m_(context.shape(node.outputs[0]).num_elements() /
           std::max<int64_t>(n_, 1)),
        packed_(packed),
        epilogue_(node, context, n_) {}

  int64_t scratch_bytes() const override {
    return num_members_ * MemberScratch() * 4;
  }

  Status Run(const Slots& slots, const Team& team) const override {
    const int64_t panel = products_.panel;
    GemmArgs args = Sizes();
    const bool gathers = !of_bf16_ && products_.gemm_scratch_floats(args) > 0;
    const Part part = SplitProduct(m_, (n_ + panel - 1) / panel, team, gathers,
                                   products_.costs);
    if (of_bf16_) {
      args.x_bf16 = slots.data<Bf16>(x_);
    } else {
      args.x = slots.data<float>(x_);
    }
    args.row_begin = part.row_begin;
    args.row_end = part.row_end;
    args.w = packed_;
    args.panel_begin = part.panel_begin;
    args.panel_end = part.panel_end;
    if (to_bf16_) {
      args.y_bf16 = slots.data<Bf16>(y_);
    } else {
      args.y = slots.data<float>(y_);
    }
    args.epilogue = epilogue_.At(slots);
    args.scratch =
        reinterpret_cast<float*>(slots.scratch) + team.index * MemberScratch();
    products_.gemm(args);
    return OkStatus();
  }

  Factors factors() const override { return FactorsOf(products_); }
  double macs() const override {
    return static_cast<double>(m_) * static_cast<double>(n_ * k_);
  }

  std::string Text() const override {
    return "Linear " + std::to_string(m_) + " x " + std::to_string(k_) +
           " -> " + std::to_string(n_) + epilogue_.Text() +
           Bf16Text(of_bf16_, to_bf16_);
  }

 private:
  GemmArgs Sizes() const {
    return {.ld_x = ld_x_, .row_end = m_, .n = n_, .k = k_, .ld_y = ld_y_};
  }
  int64_t MemberScratch() const {
    return (products_.gemm_scratch_floats(Sizes()) + 15) / 16 * 16;
  }

  const DenseProducts& products_;
  const int64_t num_members_;
  const Slot x_;
  const Slot y_;
  const bool of_bf16_;
  const bool to_bf16_;
  const int64_t n_;
  const int64_t k_;
  const int64_t ld_x_;
  const int64_t ld_y_;
  const int64_t m_;
  const float* const packed_;
  const StepEpilogue epilogue_;
};

}  // namespace

StatusOr<std::unique_ptr<Step>> MakeLinearStep(const Node& node,
                                               const LowerContext& context) {
  const auto& weight = context.graph.value(node.inputs[1]).constant;
  const bool weight_kn = ParamsOf<LinearParams>(node.attrs).weight_kn;
  const int64_t n = context.shape(node.outputs[0]).back();
  const int64_t k = context.shape(node.inputs[0]).back();
  const DenseProducts& products = context.products(node);
  ASSIGN_OR_RETURN(
      const float* packed,
      context.packed.GetByParts(
          weight,
          context.form(node, weight_kn ? PackedForm::Kind::kColumns
                                       : PackedForm::Kind::kRows),
          products.packed_floats(n, k),
          [&](const Tensor& from, float* to, const Team& team) {
            const MatrixStrides strides = weight_kn
                                              ? MatrixStrides{.n = 1, .k = n}
                                              : MatrixStrides{.n = k, .k = 1};
            const auto [begin, end] =
                team.Share((n + products.panel - 1) / products.panel);
            products.pack(from.data<float>(), n, k, strides, begin, end, to);
          }));
  return std::unique_ptr<Step>(
      std::make_unique<LinearStep>(node, context, packed));
}

}  // namespace millrace::models::graph
