// Products of stacks of matrices that are both known only in a run: each matrix
// of B is packed for the dense kernels by the member that multiplies by it, in
// memory of its own. Operands are read as they lie, results written where the
// next step wants them.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "models/graph/fused_params.h"
#include "models/graph/plan/epilogue.h"
#include "models/graph/plan/makers.h"
#include "models/graph/plan/split.h"

namespace millrace::models::graph {
namespace {

// A value as a product sees its axes.
struct View {
  View(const LowerContext& context, ValueId id,
       const std::vector<int64_t>& perm) {
    const Shape& base = context.shape(id);
    const Shape base_strides = base.Strides();
    for (const int64_t axis : perm) {
      sizes.Append(base[static_cast<int>(axis)]);
      strides.Append(base_strides[static_cast<int>(axis)]);
    }
  }
  int64_t size(int from_end) const { return sizes[sizes.rank() - from_end]; }
  int64_t stride(int from_end) const {
    return strides[strides.rank() - from_end];
  }
  // Of an axis of the result; 0 where the value repeats along it.
  int64_t BatchStride(int axis, int rank) const {
    const int own = axis - (rank - sizes.rank());
    return own < 0 || sizes[own] == 1 ? 0 : strides[own];
  }

  Shape sizes;
  Shape strides;
};

// An axis of the stack, and floats between neighbours.
struct Axis {
  int64_t size;
  int64_t a;
  int64_t b;
  int64_t y;
};

class MatMulStep : public Step {
 public:
  MatMulStep(const Node& node, const LowerContext& context)
      : MatMulStep(node, context,
                   View(context, node.inputs[0],
                        ParamsOf<MatMulParams>(node.attrs).a_perm),
                   View(context, node.inputs[1],
                        ParamsOf<MatMulParams>(node.attrs).b_perm),
                   View(context, node.outputs[0],
                        ParamsOf<MatMulParams>(node.attrs).y_perm)) {}

  int64_t scratch_bytes() const override {
    return (ByPanels(num_members_) ? 1 : num_members_) * PackedFloats() * 4;
  }

  Status Run(const Slots& slots, const Team& team) const override {
    float* packed = reinterpret_cast<float*>(slots.scratch);
    if (ByPanels(team.count)) {
      // Members pack panels of one matrix, each those that it multiplies by.
      const auto [begin, end] = team.Share(num_panels_);
      for (int64_t i = 0; i < num_products_; ++i) {
        Multiply(slots, At(i), {0, m_, begin, end}, true, packed);
      }
      return OkStatus();
    }
    packed += team.index * PackedFloats();
    const int64_t blocks = NumBlocks();
    const auto [begin, end] = team.Share(num_products_ * blocks);
    int64_t last_b = -1;
    ForEachItem(begin, end, blocks, [&](int64_t i, int64_t from, int64_t to) {
      const Offsets at = At(i);
      const bool is_new = at.b != std::exchange(last_b, at.b);
      Multiply(
          slots, at,
          {from * kBlockRows, std::min(to * kBlockRows, m_), 0, num_panels_},
          is_new, packed);
    });
    return OkStatus();
  }

  double macs() const override {
    return static_cast<double>(num_products_ * m_) *
           static_cast<double>(n_ * k_);
  }

  std::string Text() const override {
    return "MatMul " + std::to_string(num_products_) + " of " +
           std::to_string(m_) + " x " + std::to_string(k_) + " x " +
           std::to_string(n_) + epilogue_.Text();
  }

 private:
  // Whole register tiles of any table.
  static constexpr int64_t kBlockRows = 24;
  // Packing an element of B costs as much as multiplying it for so many rows
  // (12 to 22 measured).
  static constexpr int64_t kRowsPerPacking = 16;

  MatMulStep(const Node& node, const LowerContext& context, const View& a,
             const View& b, const View& y)
      : dense_(context.dense),
        num_members_(context.num_members),
        a_(context.slot(node.inputs[0])),
        b_(context.slot(node.inputs[1])),
        y_(context.slot(node.outputs[0])),
        n_(y.size(1)),
        k_(a.size(1)),
        a_row_(a.stride(2)),
        b_strides_{.n = b.stride(1), .k = b.stride(2)},
        y_row_(y.stride(2)),
        num_panels_((n_ + dense_.panel - 1) / dense_.panel),
        epilogue_(node, context, y_row_),
        m_(y.size(2)) {
    const int rank = y.sizes.rank();
    for (int i = 0; i < rank - 2; ++i) {
      if (y.sizes[i] == 1) continue;
      axes_.push_back({y.sizes[i], a.BatchStride(i, rank),
                       b.BatchStride(i, rank), y.strides[i]});
    }
    // One matrix of B for many of A that follow each other: a tall one.
    while (!axes_.empty() && axes_.back().b == 0 &&
           axes_.back().a == m_ * a_row_ && axes_.back().y == m_ * y_row_) {
      m_ *= axes_.back().size;
      axes_.pop_back();
    }
    for (const Axis& axis : axes_) num_products_ *= axis.size;
  }

  int64_t NumBlocks() const { return (m_ + kBlockRows - 1) / kBlockRows; }
  int64_t PackedFloats() const {
    return (dense_.packed_floats(n_, k_) + 15) / 16 * 16;
  }

  // Whether the longest member is done earlier if members share the panels of
  // each product, not the rows of all.
  bool ByPanels(int64_t count) const {
    const auto each = [&](int64_t n) { return (n + count - 1) / count; };
    const int64_t blocks = each(num_products_ * NumBlocks());
    const int64_t packings = each(num_products_);
    const int64_t by_rows =
        (blocks * kBlockRows + packings * kRowsPerPacking) * num_panels_;
    const int64_t by_panels =
        num_products_ * (m_ + kRowsPerPacking) * each(num_panels_);
    return by_panels < by_rows;
  }

  struct Offsets {
    int64_t a = 0;
    int64_t b = 0;
    int64_t y = 0;
  };
  Offsets At(int64_t product) const {
    Offsets at;
    for (size_t i = axes_.size(); i-- > 0;) {
      const int64_t index = product % axes_[i].size;
      product /= axes_[i].size;
      at.a += index * axes_[i].a;
      at.b += index * axes_[i].b;
      at.y += index * axes_[i].y;
    }
    return at;
  }

  void Multiply(const Slots& slots, const Offsets& at, const Part& part,
                bool pack, float* packed) const {
    if (pack) {
      dense_.pack(slots.data<float>(b_) + at.b, n_, k_, b_strides_,
                  part.panel_begin, part.panel_end, packed);
    }
    GemmArgs args{.x = slots.data<float>(a_) + at.a,
                  .ld_x = a_row_,
                  .row_begin = part.row_begin,
                  .row_end = part.row_end,
                  .w = packed,
                  .n = n_,
                  .k = k_,
                  .panel_begin = part.panel_begin,
                  .panel_end = part.panel_end,
                  .y = slots.data<float>(y_) + at.y,
                  .ld_y = y_row_,
                  .epilogue = epilogue_.At(slots)};
    if (args.epilogue.residual != nullptr) args.epilogue.residual += at.y;
    if (args.epilogue.gate != nullptr) args.epilogue.gate += at.y;
    dense_.gemm(args);
  }

  const DenseTable& dense_;
  const int64_t num_members_;
  const Slot a_, b_, y_;
  const int64_t n_;
  const int64_t k_;
  const int64_t a_row_;
  const MatrixStrides b_strides_;
  const int64_t y_row_;
  const int64_t num_panels_;
  const StepEpilogue epilogue_;
  int64_t m_;
  std::vector<Axis> axes_;  // outermost first
  int64_t num_products_ = 1;
};

}  // namespace

StatusOr<std::unique_ptr<Step>> MakeMatMulStep(const Node& node,
                                               const LowerContext& context) {
  return std::unique_ptr<Step>(std::make_unique<MatMulStep>(node, context));
}

}  // namespace millrace::models::graph
