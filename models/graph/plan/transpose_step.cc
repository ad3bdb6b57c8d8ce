// Transposes of values of 4 bytes in which another axis becomes the last one:
// planes of two axes that change places, for each index of the others.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "models/graph/plan/makers.h"
#include "models/graph/plan/split.h"

namespace millrace::models::graph {
namespace {

// One axis of the result, its distance in the operand and in the result.
struct Axis {
  int64_t size;
  int64_t from;
  int64_t to;
};

// Outermost first in the result; neighbours in both are one axis.
std::vector<Axis> AxesOf(const Shape& shape, const std::vector<int64_t>& perm) {
  const Shape strides = shape.Strides();
  std::vector<Axis> axes;
  int64_t to = 1;
  for (size_t i = perm.size(); i-- > 0;) {
    const auto axis = static_cast<int>(perm[i]);
    const int64_t size = shape[axis];
    if (size == 1) continue;
    if (!axes.empty() && strides[axis] == axes.back().from * axes.back().size) {
      axes.back().size *= size;
    } else {
      axes.push_back({size, strides[axis], to});
    }
    to *= size;
  }
  std::reverse(axes.begin(), axes.end());
  return axes;
}

class TransposeStep : public Step {
 public:
  TransposeStep(const Node& node, const LowerContext& context,
                std::vector<Axis> axes)
      : transpose_(context.dense.transpose),
        x_(context.slot(node.inputs[0])),
        y_(context.slot(node.outputs[0])),
        text_("Transpose " + context.shape(node.inputs[0]).ToString() + " -> " +
              context.shape(node.outputs[0]).ToString()),
        rows_(axes.back()) {
    axes.pop_back();
    const auto columns =
        std::find_if(axes.begin(), axes.end(),
                     [](const Axis& axis) { return axis.from == 1; });
    columns_ = *columns;
    axes.erase(columns);
    outer_ = std::move(axes);
    for (const Axis& axis : outer_) num_planes_ *= axis.size;
  }

  Status Run(const Slots& slots, const Team& team) const override {
    // Pieces of columns, or of rows where there are few columns.
    const bool by_columns = columns_.size >= rows_.size;
    const int64_t cut = by_columns ? columns_.size : rows_.size;
    const int64_t pieces = (cut + kPiece - 1) / kPiece;
    const auto [begin, end] = team.Share(num_planes_ * pieces);
    ForEachItem(begin, end, pieces, [&](int64_t plane, int64_t a, int64_t b) {
      const int64_t first = a * kPiece;
      const int64_t last = std::min(b * kPiece, cut);
      const auto [from, to] = PlaneAt(plane);
      const float* x = slots.data<float>(x_) + from;
      float* y = slots.data<float>(y_) + to;
      if (by_columns) {
        transpose_(x + first, rows_.size, last - first, rows_.from,
                   y + first * columns_.to, columns_.to);
      } else {
        transpose_(x + first * rows_.from, last - first, columns_.size,
                   rows_.from, y + first, columns_.to);
      }
    });
    return OkStatus();
  }

  std::string Text() const override { return text_; }

 private:
  static constexpr int64_t kPiece = 64;

  std::pair<int64_t, int64_t> PlaneAt(int64_t index) const {
    int64_t from = 0;
    int64_t to = 0;
    for (size_t i = outer_.size(); i-- > 0;) {
      const int64_t at = index % outer_[i].size;
      index /= outer_[i].size;
      from += at * outer_[i].from;
      to += at * outer_[i].to;
    }
    return {from, to};
  }

  void (*const transpose_)(const float*, int64_t, int64_t, int64_t, float*,
                           int64_t);
  const Slot x_;
  const Slot y_;
  const std::string text_;
  const Axis rows_;  // last in the result
  Axis columns_;     // last in the operand
  std::vector<Axis> outer_;
  int64_t num_planes_ = 1;
};

}  // namespace

StatusOr<std::unique_ptr<Step>> MakeTransposeStep(const Node& node,
                                                  const LowerContext& context) {
  const ValueType& type = context.type(node.inputs[0]);
  if (DTypeBytes(type.dtype) != 4 || type.shape.num_elements() == 0) {
    return nullptr;
  }
  const int rank = type.shape.rank();
  std::vector<int64_t> perm = node.attrs.Ints("perm");
  if (perm.empty()) {
    for (int i = rank; i-- > 0;) perm.push_back(i);
  }
  for (int64_t& axis : perm) axis += axis < 0 ? rank : 0;
  std::vector<Axis> axes = AxesOf(type.shape, perm);
  // Whole rows are copied by the plain function.
  if (axes.empty() || axes.back().from == 1) return nullptr;
  return std::unique_ptr<Step>(
      std::make_unique<TransposeStep>(node, context, std::move(axes)));
}

}  // namespace millrace::models::graph
