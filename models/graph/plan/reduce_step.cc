// Reductions of FP32 over neighbouring axes, seen as [outer, reduced, inner]:
// rows by the lane tree where inner is 1, else sums of whole rows, in chains of
// kChain rows each that are added one after the other. Squares are rounded
// before they are added.
#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <vector>

#include "models/graph/ops/checks.h"
#include "models/graph/plan/makers.h"
#include "models/graph/plan/split.h"

namespace millrace::models::graph {
namespace {

struct Sizes {
  int64_t outer = 1;
  int64_t reduced = 1;
  int64_t inner = 1;
};

// What happens to the sum at last.
enum class End : uint8_t { kNone, kDivide, kRoot };

constexpr int64_t kChain = 64;
// Values whose squares lie in the L1 cache.
constexpr int64_t kMostSquares = 4096;
constexpr int64_t kMostColumns = 256;
constexpr int64_t kLeastColumns = 16;

constexpr std::array<float, kChain> kOnes = [] {
  std::array<float, kChain> ones{};
  ones.fill(1.0f);
  return ones;
}();

class ReduceStep : public Step {
 public:
  ReduceStep(const Node& node, const LowerContext& context, const Sizes& sizes)
      : dense_(context.dense),
        x_(context.slot(node.inputs[0])),
        y_(context.slot(node.outputs[0])),
        sizes_(sizes),
        squares_(node.Is("ReduceL2") || node.Is("ReduceSumSquare")),
        end_(node.Is("ReduceMean") ? End::kDivide
             : node.Is("ReduceL2") ? End::kRoot
                                   : End::kNone),
        kind_(node.Is("ReduceMax")   ? ReduceKind::kMax
              : node.Is("ReduceMin") ? ReduceKind::kMin
                                     : ReduceKind::kSum),
        columns_(ColumnsFor(sizes, context.num_members)),
        name_(node.op->name) {}

  Status Run(const Slots& slots, const Team& team) const override {
    const float* x = slots.data<float>(x_);
    float* y = slots.data<float>(y_);
    if (sizes_.inner == 1) {
      const auto [begin, end] = team.Share(sizes_.outer);
      Rows(x + begin * sizes_.reduced, end - begin, y + begin);
      return OkStatus();
    }
    const int64_t parts = (sizes_.inner + columns_ - 1) / columns_;
    const auto [begin, end] = team.Share(sizes_.outer * parts);
    ForEachItem(begin, end, parts, [&](int64_t at, int64_t from, int64_t to) {
      for (int64_t part = from; part < to; ++part) {
        const int64_t first = part * columns_;
        Columns(x + at * sizes_.reduced * sizes_.inner + first,
                std::min(columns_, sizes_.inner - first),
                y + at * sizes_.inner + first);
      }
    });
    return OkStatus();
  }

  std::string Text() const override {
    return name_ + " " + std::to_string(sizes_.outer) + " x " +
           std::to_string(sizes_.reduced) + " x " +
           std::to_string(sizes_.inner);
  }

 private:
  // Columns that one member adds at a time.
  static int64_t ColumnsFor(const Sizes& sizes, int64_t members) {
    const int64_t each = (sizes.outer * sizes.inner + members - 1) / members;
    return std::clamp((each + 15) / 16 * 16, kLeastColumns, kMostColumns);
  }

  void Rows(const float* x, int64_t count, float* y) const {
    const int64_t n = sizes_.reduced;
    if (!squares_) {
      dense_.reduce(kind_, x, count, n, n, y);
    } else {
      alignas(64) float squares[kMostSquares];
      for (int64_t i = 0; i < count; ++i, x += n) {
        float sum = 0;
        for (int64_t k = 0; k < n; k += kMostSquares) {
          const int64_t some = std::min(kMostSquares, n - k);
          dense_.binary(Binary::kMul, x + k, 1, x + k, 1, some, squares);
          float part;
          dense_.reduce(ReduceKind::kSum, squares, 1, some, some, &part);
          sum += part;
        }
        y[i] = sum;
      }
    }
    Finish(count, y);
  }

  void Columns(const float* x, int64_t width, float* y) const {
    alignas(64) float squares[kMostSquares];
    alignas(64) float sums[kMostColumns];
    const int64_t chain =
        squares_ ? std::min(kChain, kMostSquares / columns_) : kChain;
    const float* rows[kChain];
    for (int64_t r = 0; r < sizes_.reduced; r += chain) {
      const int64_t count = std::min(chain, sizes_.reduced - r);
      for (int64_t i = 0; i < count; ++i) {
        rows[i] = x + (r + i) * sizes_.inner;
        if (!squares_) continue;
        dense_.binary(Binary::kMul, rows[i], 1, rows[i], 1, width,
                      squares + i * columns_);
        rows[i] = squares + i * columns_;
      }
      dense_.mix(rows, kOnes.data(), count, width, r == 0 ? y : sums);
      if (r > 0) dense_.binary(Binary::kAdd, y, 1, sums, 1, width, y);
    }
    Finish(width, y);
  }

  void Finish(int64_t count, float* y) const {
    const auto n = static_cast<float>(sizes_.reduced);
    if (end_ == End::kDivide) {
      dense_.binary(Binary::kDiv, y, 1, &n, 0, count, y);
    } else if (end_ == End::kRoot) {
      dense_.unary(Unary::kSqrt, 0, 0, y, count, y);
    }
  }

  const DenseTable& dense_;
  const Slot x_;
  const Slot y_;
  const Sizes sizes_;
  const bool squares_;
  const End end_;
  const ReduceKind kind_;
  const int64_t columns_;
  const std::string name_;
};

// Null where the axes are not neighbours, or not known.
std::optional<Sizes> SizesOf(const Node& node, const LowerContext& context) {
  const Shape& x = context.shape(node.inputs[0]);
  std::vector<bool> gone(static_cast<size_t>(x.rank()));
  const bool given = node.inputs.size() > 1 && node.inputs[1] != kNoValue;
  if (given) {
    const Tensor* axes = context.constant(node.inputs[1]);
    if (axes == nullptr || axes->dtype() != DType::kI64) return std::nullopt;
    for (int64_t i = 0; i < axes->num_elements(); ++i) {
      const int64_t axis = axes->data<int64_t>()[i];
      gone[static_cast<size_t>(axis < 0 ? axis + x.rank() : axis)] = true;
    }
  }
  if (std::count(gone.begin(), gone.end(), true) == 0) {
    if (node.attrs.Int("noop_with_empty_axes", 0) != 0) return std::nullopt;
    std::fill(gone.begin(), gone.end(), true);
  }
  Sizes sizes;
  for (int i = 0; i < x.rank(); ++i) {
    if (x[i] == 1) continue;
    if (!gone[static_cast<size_t>(i)]) {
      (sizes.reduced == 1 ? sizes.outer : sizes.inner) *= x[i];
    } else if (sizes.inner > 1) {
      return std::nullopt;
    } else {
      sizes.reduced *= x[i];
    }
  }
  return sizes;
}

}  // namespace

StatusOr<std::unique_ptr<Step>> MakeReduceStep(const Node& node,
                                               const LowerContext& context) {
  const ValueType& type = context.type(node.inputs[0]);
  if (type.dtype != DType::kF32 || type.shape.num_elements() == 0) {
    return std::unique_ptr<Step>();
  }
  const std::optional<Sizes> sizes = SizesOf(node, context);
  // A NaN among columns is kept by the plain function alone.
  const bool extreme = node.Is("ReduceMax") || node.Is("ReduceMin");
  if (!sizes || (extreme && sizes->inner > 1)) return std::unique_ptr<Step>();
  return std::unique_ptr<Step>(
      std::make_unique<ReduceStep>(node, context, *sizes));
}

}  // namespace millrace::models::graph
