// Transposed convolution whose kernels stand side by side. Each row of the
// kernel makes one row of the result from one row of the image:
//
//   y[2 i + a] = x[i] · w[a]      [width, c] times [c, (kernel_w, outputs)]
//
// and a row of the result, [width * kernel_w, outputs], is just that product.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "models/graph/passes/fused.h"
#include "models/graph/plan/epilogue.h"
#include "models/graph/plan/image_shape.h"
#include "models/graph/plan/makers.h"

namespace millrace::models::graph {
namespace {

class ConvTransposeStep : public Step {
 public:
  ConvTransposeStep(const Node& node, const LowerContext& context,
                    const ImageShape& shape, const float* packed,
                    const float* bias)
      : products_(context.products(node)),
        num_members_(context.num_members),
        shape_(shape),
        x_(context.slot(node.inputs[0])),
        y_(context.slot(node.outputs[0])),
        of_bf16_(context.is_bf16(node.inputs[0])),
        to_bf16_(context.is_bf16(node.outputs[0])),
        packed_(packed),
        bias_(bias),
        epilogue_(node, context, shape.outputs) {}

  int64_t scratch_bytes() const override {
    return num_members_ * MemberScratch() * 4;
  }

  Status Run(const Slots& slots, const Team& team) const override {
    const ImageShape& s = shape_;
    GemmArgs args = Sizes();
    Epilogue epilogue = epilogue_.At(slots);
    epilogue.bias = bias_;
    args.scratch =
        reinterpret_cast<float*>(slots.scratch) + team.index * MemberScratch();
    const auto [begin, end] = team.Share(s.batch * s.out_height);
    for (int64_t row = begin; row < end; ++row) {
      const int64_t kernel_row = row % s.window.kernel_h;
      const int64_t from = row / s.window.kernel_h;
      const int64_t at_x = from * s.width * s.ld_x;
      const int64_t at_y = row * s.out_width * s.ld_y;
      if (of_bf16_) {
        args.x_bf16 = slots.data<Bf16>(x_) + at_x;
      } else {
        args.x = slots.data<float>(x_) + at_x;
      }
      if (to_bf16_) {
        args.y_bf16 = slots.data<Bf16>(y_) + at_y;
      } else {
        args.y = slots.data<float>(y_) + at_y;
      }
      args.w = packed_ + kernel_row * products_.packed_floats(args.n, args.k);
      args.epilogue = Moved(epilogue, row * s.out_width, 0);
      args.epilogue.ld_residual *= s.window.kernel_w;
      args.epilogue.ld_gate *= s.window.kernel_w;
      Columns(args);
    }
    return OkStatus();
  }

  Factors factors() const override { return FactorsOf(products_); }
  double macs() const override {
    return static_cast<double>(shape_.batch * shape_.out_pixels()) *
           static_cast<double>(shape_.outputs * shape_.channels);
  }

  std::string Text() const override {
    return "ConvTranspose " + shape_.Text() + epilogue_.Text() +
           Bf16Text(of_bf16_, to_bf16_);
  }

 private:
  // All columns of the kernel at once where their results are dense; else they
  // are whole panels each, whose outputs the kernel finds as far from y as if
  // they were.
  void Columns(GemmArgs& args) const {
    const ImageShape& s = shape_;
    const int64_t panels = (args.n + products_.panel - 1) / products_.panel;
    const int64_t columns = s.ld_y == s.outputs ? 1 : s.window.kernel_w;
    for (int64_t column = 0; column < columns; ++column) {
      args.panel_begin = panels / columns * column;
      args.panel_end =
          column + 1 == columns ? panels : panels / columns * (column + 1);
      products_.gemm(args);
      if (args.y != nullptr) args.y += s.ld_y - s.outputs;
      if (args.y_bf16 != nullptr) args.y_bf16 += s.ld_y - s.outputs;
    }
  }

  GemmArgs Sizes() const {
    return {.ld_x = shape_.ld_x,
            .row_end = shape_.width,
            .n = shape_.window.kernel_w * shape_.outputs,
            .k = shape_.channels,
            .ld_y = shape_.window.kernel_w * shape_.ld_y};
  }
  int64_t MemberScratch() const {
    return (products_.gemm_scratch_floats(Sizes()) + 15) / 16 * 16;
  }

  const DenseProducts& products_;
  const int64_t num_members_;
  const ImageShape shape_;
  const Slot x_;
  const Slot y_;
  const bool of_bf16_;
  const bool to_bf16_;
  const float* const packed_;
  const float* const bias_;  // repeated for each column of the kernel
  const StepEpilogue epilogue_;
};

}  // namespace

bool StandsSideBySide(const Node& node, const Graph& graph) {
  if (node.op != &fused::kConvTranspose ||
      ParamsOf<ConvParams>(node.attrs).groups != 1) {
    return false;
  }
  const ImageShape s = ImageShapeOf(node, graph);
  const Window& w = s.window;
  return w.kernel_h == w.stride_h && w.kernel_w == w.stride_w &&
         w.pad_top == 0 && w.pad_left == 0 &&
         s.out_height == s.height * w.stride_h &&
         s.out_width == s.width * w.stride_w;
}

StatusOr<std::unique_ptr<Step>> MakeConvTransposeStep(
    const Node& node, const LowerContext& context) {
  if (!StandsSideBySide(node, context.graph)) {
    return MakeTransposedPhasesStep(node, context);
  }
  const ImageShape shape = ImageShapeOf(node, context);
  const auto& weight = context.graph.value(node.inputs[1]).constant;
  const DenseProducts& products = context.products(node);
  const int64_t rows = shape.window.kernel_h;
  const int64_t columns = shape.window.kernel_w;
  const int64_t n = columns * shape.outputs;
  const int64_t k = shape.channels;
  const int64_t each = products.packed_floats(n, k);
  ASSIGN_OR_RETURN(
      const float* packed,
      context.packed.Get(
          weight, context.form(node, PackedForm::Kind::kKernelRows),
          rows * each, [&](const Tensor& from, float* to) {
            // [c][o][rows][columns] to [(columns, o)][c], row by row.
            std::vector<float> moved(static_cast<size_t>(n * k));
            for (int64_t row = 0; row < rows; ++row) {
              for (int64_t i = 0; i < n; ++i) {
                const int64_t column = i / shape.outputs;
                const int64_t o = i % shape.outputs;
                for (int64_t c = 0; c < k; ++c) {
                  moved[static_cast<size_t>(i * k + c)] =
                      from.data<float>()[((c * shape.outputs + o) * rows +
                                          row) *
                                             columns +
                                         column];
                }
              }
              products.pack(moved.data(), n, k, {.n = k, .k = 1}, 0,
                            (n + products.panel - 1) / products.panel,
                            to + row * each);
            }
            return OkStatus();
          }));
  const float* repeated = nullptr;
  if (node.inputs.size() > 2 && node.inputs[2] != kNoValue) {
    const auto& bias = context.graph.value(node.inputs[2]).constant;
    ASSIGN_OR_RETURN(
        repeated,
        context.packed.Get(bias, {PackedForm::Kind::kRepeated, {columns}}, n,
                           [&](const Tensor& from, float* to) {
                             for (int64_t i = 0; i < columns; ++i) {
                               to = std::copy_n(from.data<float>(),
                                                shape.outputs, to);
                             }
                             return OkStatus();
                           }));
  }
  return std::unique_ptr<Step>(std::make_unique<ConvTransposeStep>(
      node, context, shape, packed, repeated));
}

}  // namespace millrace::models::graph
