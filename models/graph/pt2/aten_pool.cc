// Pools over 1, 2 or 3 axes of space, with a batch or without.
#include <algorithm>
#include <optional>
#include <utility>

#include "models/graph/pt2/aten.h"
#include "models/graph/pt2/space.h"

namespace millrace::models::graph::pt2 {
namespace {

template <size_t kSpace>
Attrs PoolAttrs(Lowering& n) {
  const Ints64 kernel = n.Ints("kernel_size", kSpace, 1);
  const Ints64 given = n.Ints("stride");
  return {{"kernel_shape", kernel},
          {"strides", given.empty() ? kernel : n.Ints("stride", kSpace, 1)},
          {"pads", BothSides(n.Ints("padding", kSpace, 0))},
          {"ceil_mode", int64_t{n.Flag("ceil_mode", false) ? 1 : 0}}};
}

// Places come from a node of their own, which goes when they are not read.
// ONNX counts them through the whole tensor, PyTorch through one plane.
template <size_t kSpace>
void MaxPool(Lowering& n) {
  Attrs attrs = PoolAttrs<kSpace>(n);
  attrs.Set("dilations", n.Ints("dilation", kSpace, 1));
  const Operand self = n.Arg("self");
  const Batched x = WithBatch(n, self, kSpace);
  Emitter& e = n.emit();
  n.Return(WithoutBatch(n, x, e.Op("MaxPool", {x.id}, attrs)));
  if (n.num_outputs() < 2) return;
  Num plane = Num::Of(1);
  for (int i = 0; i < static_cast<int>(kSpace); ++i) {
    plane = e.Mul(plane, n.Size(self, self.rank() - 1 - i));
  }
  const ValueId places = e.Ops("MaxPool", {x.id}, attrs, 2)[1];
  n.Return(1, WithoutBatch(n, x,
                           e.Op("Mod", {places, e.Value(plane, DType::kI64)})));
}

// What was the greatest of its window goes back to its place, among zeros.
template <size_t kSpace>
void MaxUnpool(Lowering& n) {
  const Operand x = n.Arg("self");
  const std::vector<Num> sizes = n.Numbers("output_size");
  const int first = x.rank() - static_cast<int>(kSpace);
  if (first < 1 || sizes.size() != kSpace) return n.Fail("sizes of other rank");
  Emitter& e = n.emit();
  std::vector<Num> flat;
  std::vector<Num> whole;
  for (int i = 0; i < first; ++i) flat.push_back(n.Size(x, i));
  whole = flat;
  flat.push_back(Num::Of(-1));
  Num plane = Num::Of(1);
  for (const Num& size : sizes) {
    plane = e.Mul(plane, size);
    whole.push_back(size);
  }
  std::vector<Num> planes(flat.begin(), flat.end() - 1);
  planes.push_back(plane);
  const ValueId zeros = e.Expand(e.Number(0, x.dtype()), e.List(planes));
  const ValueId y =
      e.Op("ScatterElements",
           {zeros, e.Reshape(n.In("indices"), flat), e.Reshape(x.id, flat)},
           {{"axis", int64_t{first}}, {"reduction", std::string("none")}});
  n.Return(e.Reshape(y, whole));
}

template <size_t kSpace>
void AvgPool(Lowering& n) {
  Attrs attrs = PoolAttrs<kSpace>(n);
  if (n.Has("divisor_override")) {
    attrs.Set("divisor_override", n.Int("divisor_override", 1));
  }
  attrs.Set("count_include_pad",
            int64_t{n.Flag("count_include_pad", true) ? 1 : 0});
  const Batched x = WithBatch(n, n.Arg("self"), kSpace);
  n.Return(
      WithoutBatch(n, x, n.emit().Op("AveragePool", {x.id}, std::move(attrs))));
}

// The wanted size of each axis; None keeps it.
template <size_t kSpace>
std::optional<Ints64> OutputSize(Lowering& n, const Operand& x) {
  const Ints64 sizes = n.Ints("output_size", kSpace, 1);
  if (x.rank() < static_cast<int>(kSpace) + 1) {
    n.Fail("the operand is of rank " + std::to_string(x.rank()));
    return std::nullopt;
  }
  return sizes;
}

bool AllOnes(const Ints64& sizes) {
  return std::all_of(sizes.begin(), sizes.end(),
                     [](int64_t size) { return size == 1; });
}

template <size_t kSpace>
void AdaptiveAvgPool(Lowering& n) {
  const Operand x = n.Arg("self");
  const auto sizes = OutputSize<kSpace>(n, x);
  if (!sizes) return;
  const Batched batched = WithBatch(n, x, kSpace);
  Emitter& e = n.emit();
  const ValueId y = AllOnes(*sizes) ? e.Op("GlobalAveragePool", {batched.id})
                                    : e.Op("AdaptiveAveragePool", {batched.id},
                                           {{"output_size", *sizes}});
  n.Return(WithoutBatch(n, batched, y));
}

template <size_t kSpace>
void AdaptiveMaxPool(Lowering& n) {
  const Operand x = n.Arg("self");
  const auto sizes = OutputSize<kSpace>(n, x);
  if (!sizes) return;
  const Batched batched = WithBatch(n, x, kSpace);
  Emitter& e = n.emit();
  Ints64 kernel;
  for (size_t i = 0; i < kSpace; ++i) {
    const Dim& dim = x.meta->sizes[static_cast<size_t>(x.rank()) - kSpace + i];
    const int64_t size = (*sizes)[i];
    if (dim.fixed && size > 0 && dim.hint % size == 0) {
      kernel.push_back(dim.hint / size);
    }
  }
  const Attrs adaptive = {{"output_size", *sizes}};
  // Windows of one size are those of a plain pool.
  const ValueId y = AllOnes(*sizes) ? e.Op("GlobalMaxPool", {batched.id})
                    : kernel.size() == kSpace
                        ? e.Op("MaxPool", {batched.id},
                               {{"kernel_shape", kernel}, {"strides", kernel}})
                        : e.Op("AdaptiveMaxPool", {batched.id}, adaptive);
  n.Return(WithoutBatch(n, batched, y));
  if (n.num_outputs() < 2) return;
  n.Return(
      1, WithoutBatch(n, batched,
                      e.Ops("AdaptiveMaxPool", {batched.id}, adaptive, 2)[1]));
}

constexpr AtenOp kRows[] = {
    {"aten.max_pool1d.default", MaxPool<1>},
    {"aten.max_pool2d.default", MaxPool<2>},
    {"aten.max_pool3d.default", MaxPool<3>},
    {"aten.max_pool2d_with_indices.default", MaxPool<2>},
    {"aten.max_pool3d_with_indices.default", MaxPool<3>},
    {"aten.avg_pool1d.default", AvgPool<1>},
    {"aten.avg_pool2d.default", AvgPool<2>},
    {"aten.avg_pool3d.default", AvgPool<3>},
    {"aten.adaptive_avg_pool1d.default", AdaptiveAvgPool<1>},
    {"aten.adaptive_avg_pool2d.default", AdaptiveAvgPool<2>},
    {"aten.adaptive_avg_pool3d.default", AdaptiveAvgPool<3>},
    {"aten._adaptive_avg_pool2d.default", AdaptiveAvgPool<2>},
    {"aten._adaptive_avg_pool3d.default", AdaptiveAvgPool<3>},
    {"aten.adaptive_max_pool1d.default", AdaptiveMaxPool<1>},
    {"aten.adaptive_max_pool2d.default", AdaptiveMaxPool<2>},
    {"aten.adaptive_max_pool3d.default", AdaptiveMaxPool<3>},
    {"aten.max_pool1d_with_indices.default", MaxPool<1>},
    {"aten.max_unpool2d.default", MaxUnpool<2>},
    {"aten.max_unpool3d.default", MaxUnpool<3>},
};

}  // namespace

std::span<const AtenOp> PoolRows() { return kRows; }

}  // namespace millrace::models::graph::pt2
