// Convolutions over 1, 2 or 3 axes of space, with a batch or without.
#include <algorithm>
#include <utility>

#include "models/graph/pt2/aten.h"
#include "models/graph/pt2/space.h"

namespace millrace::models::graph::pt2 {
namespace {

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
};

}  // namespace

std::span<const AtenOp> ConvRows() { return kRows; }

}  // namespace millrace::models::graph::pt2
