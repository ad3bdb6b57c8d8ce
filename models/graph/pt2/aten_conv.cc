// Convolutions and pooling over 1, 2 or 3 axes of space, with a batch or
// without.
#include <algorithm>
#include <utility>

#include "models/graph/pt2/aten.h"

namespace millrace::models::graph::pt2 {
namespace {

using Ints64 = std::vector<int64_t>;

// The same on both sides of each axis.
Ints64 BothSides(Ints64 pads) {
  const Ints64 ends = pads;
  pads.insert(pads.end(), ends.begin(), ends.end());
  return pads;
}

// x with a batch axis, and whether it had none.
struct Batched {
  ValueId id;
  bool added;
};
Batched WithBatch(Lowering& n, const Operand& x, size_t space) {
  const bool added = x.rank() == static_cast<int>(space) + 1;
  return {added ? n.emit().Unsqueeze(x.id, {0}) : x.id, added};
}
ValueId WithoutBatch(Lowering& n, const Batched& x, ValueId y) {
  return x.added ? n.emit().Squeeze(y, {0}) : y;
}

// "same": as much as the kernel reaches over, the odd one behind.
Ints64 SamePads(const Operand& weight, const Ints64& dilation) {
  Ints64 begins;
  Ints64 ends;
  for (size_t i = 0; i < dilation.size(); ++i) {
    const int64_t total = dilation[i] * (weight.meta->sizes[i + 2].hint - 1);
    begins.push_back(total / 2);
    ends.push_back(total - total / 2);
  }
  begins.insert(begins.end(), ends.begin(), ends.end());
  return begins;
}

void Convolve(Lowering& n, bool transposed) {
  const Operand x = n.Arg("input");
  const Operand weight = n.Arg("weight");
  if (weight.rank() < 3 || weight.rank() > 5) {
    return n.Fail("the weight is of rank " + std::to_string(weight.rank()));
  }
  const auto space = static_cast<size_t>(weight.rank() - 2);
  Ints64 kernel;
  for (size_t i = 0; i < space; ++i) {
    kernel.push_back(weight.meta->sizes[i + 2].hint);
  }
  const Ints64 dilation = n.Ints("dilation", space, 1);
  const std::string_view named = n.Text("padding", "");
  Attrs attrs = {{"kernel_shape", kernel},
                 {"strides", n.Ints("stride", space, 1)},
                 {"dilations", dilation},
                 {"group", n.Int("groups", 1)}};
  if (named == "same") {
    attrs.Set("pads", SamePads(weight, dilation));
  } else {
    attrs.Set("pads", named == "valid"
                          ? Ints64(2 * space, 0)
                          : BothSides(n.Ints("padding", space, 0)));
  }
  if (transposed) {
    attrs.Set("output_padding", n.Ints("output_padding", space, 0));
  }
  const Batched batched = WithBatch(n, x, space);
  std::vector<ValueId> operands = {batched.id, weight.id};
  if (n.Has("bias")) operands.push_back(n.In("bias"));
  n.Return(WithoutBatch(n, batched,
                        n.emit().Op(transposed ? "ConvTranspose" : "Conv",
                                    std::move(operands), std::move(attrs))));
}

void Conv(Lowering& n) { Convolve(n, false); }
void ConvTranspose(Lowering& n) { Convolve(n, true); }
void Convolution(Lowering& n) { Convolve(n, n.Flag("transposed", false)); }

template <size_t kSpace>
Attrs PoolAttrs(Lowering& n) {
  const Ints64 kernel = n.Ints("kernel_size", kSpace, 1);
  const Ints64 given = n.Ints("stride");
  return {{"kernel_shape", kernel},
          {"strides", given.empty() ? kernel : n.Ints("stride", kSpace, 1)},
          {"pads", BothSides(n.Ints("padding", kSpace, 0))},
          {"ceil_mode", int64_t{n.Flag("ceil_mode", false) ? 1 : 0}}};
}

// Places, where the file has them as a second result, are not computed.
template <size_t kSpace>
void MaxPool(Lowering& n) {
  Attrs attrs = PoolAttrs<kSpace>(n);
  attrs.Set("dilations", n.Ints("dilation", kSpace, 1));
  const Batched x = WithBatch(n, n.Arg("self"), kSpace);
  n.Return(
      WithoutBatch(n, x, n.emit().Op("MaxPool", {x.id}, std::move(attrs))));
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

// Windows of equal size only: the sizes of the file divide.
template <size_t kSpace>
void AdaptiveMaxPool(Lowering& n) {
  const Operand x = n.Arg("self");
  const auto sizes = OutputSize<kSpace>(n, x);
  if (!sizes) return;
  const Batched batched = WithBatch(n, x, kSpace);
  Emitter& e = n.emit();
  if (AllOnes(*sizes)) {
    return n.Return(
        WithoutBatch(n, batched, e.Op("GlobalMaxPool", {batched.id})));
  }
  Ints64 kernel;
  for (size_t i = 0; i < kSpace; ++i) {
    const Dim& dim = x.meta->sizes[static_cast<size_t>(x.rank()) - kSpace + i];
    const int64_t size = (*sizes)[i];
    if (!dim.fixed || size < 1 || dim.hint % size != 0) {
      return n.Fail("adaptive max pooling with windows of different sizes");
    }
    kernel.push_back(dim.hint / size);
  }
  n.Return(WithoutBatch(n, batched,
                        e.Op("MaxPool", {batched.id},
                             {{"kernel_shape", kernel}, {"strides", kernel}})));
}

constexpr AtenOp kRows[] = {
    {"aten.conv1d.default", Conv},
    {"aten.conv2d.default", Conv},
    {"aten.conv3d.default", Conv},
    {"aten.conv1d.padding", Conv},
    {"aten.conv2d.padding", Conv},
    {"aten.conv3d.padding", Conv},
    {"aten.convolution.default", Convolution},
    {"aten._convolution.default", Convolution},
    {"aten.conv_transpose1d.default", ConvTranspose},
    {"aten.conv_transpose2d.input", ConvTranspose},
    {"aten.conv_transpose3d.input", ConvTranspose},
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
};

}  // namespace

std::span<const AtenOp> ConvRows() { return kRows; }

}  // namespace millrace::models::graph::pt2
