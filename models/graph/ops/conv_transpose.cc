// ConvTranspose and Col2Im: what adds patches to images. Sums are taken in
// f32, of doubles in f64.
#include "models/graph/ops/gemm/gemm.h"
#include "models/graph/ops/op_groups.h"
#include "models/graph/ops/operands.h"
#include "models/graph/ops/patches.h"

namespace millrace::models::graph {
namespace {

//   x        [batch, groups * group_in, spatial...]
//   weights  [groups * group_in, group_out, kernel...]
// The window slides over y; there is one for each element of x.
struct Plan {
  int64_t batch = 0;
  int64_t groups = 1;
  int64_t group_in = 0;
  int64_t group_out = 0;
  Window window;
  Shape out;
};

// What output_padding, output_shape and auto_pad make of one axis.
Status FitAxis(const Attrs& attrs, size_t i, WindowAxis& axis) {
  const std::vector<int64_t>& extra = attrs.Ints("output_padding");
  const std::vector<int64_t>& wanted = attrs.Ints("output_shape");
  const std::string_view mode = attrs.Text("auto_pad", "NOTSET");
  const int64_t added = i < extra.size() ? extra[i] : 0;
  constexpr int64_t kMost = int64_t{1} << 31;
  if (added < 0 || added > kMost) {
    return InvalidArgument("output_padding is " + std::to_string(added) +
                           "; it must be 0 or more");
  }
  if (axis.out > kMost ||
      (i < wanted.size() && (wanted[i] < 0 || wanted[i] > kMost))) {
    return InvalidArgument(
        "an axis of x or of output_shape is longer than "
        "2^31 elements, or negative");
  }
  const int64_t full =
      axis.out > 0 ? axis.stride * (axis.out - 1) + added + axis.reach() : 0;
  if (!wanted.empty() || mode == "SAME_UPPER" || mode == "SAME_LOWER") {
    axis.in = wanted.empty() ? axis.out * axis.stride : wanted[i];
    const int64_t pads = std::max<int64_t>(full - axis.in, 0);
    axis.pad_begin = mode == "SAME_UPPER" ? pads / 2 : pads - pads / 2;
    axis.pad_end = pads - axis.pad_begin;
  } else {
    if (mode == "VALID") axis.pad_begin = axis.pad_end = 0;
    axis.in = full - axis.pad_begin - axis.pad_end;
  }
  if (axis.in < 0) {
    return InvalidArgument("pads cut more from a result of " +
                           std::to_string(full) + " elements than it has");
  }
  return OkStatus();
}

StatusOr<Plan> MakePlan(const Call& call) {
  const Attrs& attrs = call.attrs();
  const Shape& x = call.arg(0).shape;
  const Shape& w = call.arg(1).shape;
  Plan plan;
  plan.groups = attrs.Int("group", 1);
  if (x.rank() < 3 || x.rank() > 2 + kSpatial || x.rank() != w.rank() ||
      plan.groups < 1 || x[1] % plan.groups != 0 || w[0] != x[1]) {
    return InvalidArgument(
        "x of shape " + x.ToString() + ", weights of " + w.ToString() +
        " and " + std::to_string(plan.groups) + " groups do not fit together");
  }
  plan.batch = x[0];
  plan.group_in = x[1] / plan.groups;
  plan.group_out = w[1];
  Window& window = plan.window;
  window.rank = x.rank() - 2;
  const auto rank = static_cast<size_t>(window.rank);
  ASSIGN_OR_RETURN(const auto strides, PerAxis(attrs, "strides", window.rank));
  ASSIGN_OR_RETURN(const auto dilations,
                   PerAxis(attrs, "dilations", window.rank));
  ASSIGN_OR_RETURN(const auto pads, PadsOf(attrs, window.rank));
  for (const char* name : {"output_padding", "output_shape"}) {
    const size_t count = attrs.Ints(name).size();
    if (count != 0 && count != rank) {
      return InvalidArgument("attribute " + std::string(name) + " has " +
                             std::to_string(count) + " numbers, not " +
                             std::to_string(rank));
    }
  }
  for (size_t i = 0; i < rank; ++i) {
    const size_t at = kSpatial - rank + i;
    const auto dim = static_cast<int>(i) + 2;
    if (w[dim] < 1 || w[dim] > (int64_t{1} << 31) / dilations[at]) {
      return InvalidArgument("weights " + w.ToString() +
                             " have a kernel of no or too many elements");
    }
    window.axes[at] = {.out = x[dim],
                       .kernel = w[dim],
                       .stride = strides[at],
                       .dilation = dilations[at],
                       .pad_begin = pads[at],
                       .pad_end = pads[kSpatial + at]};
    RETURN_IF_ERROR(FitAxis(attrs, i, window.axes[at]));
  }
  std::vector<int64_t> dims = {plan.batch, plan.groups * plan.group_out};
  for (size_t i = kSpatial - rank; i < kSpatial; ++i) {
    dims.push_back(window.axes[i].in);
  }
  ASSIGN_OR_RETURN(plan.out, Shape::Checked(dims));
  return plan;
}

Types Infer(const Call& call) {
  RETURN_IF_ERROR(CountOperands(call, 2, 3));
  RETURN_IF_ERROR(FloatOperand(call, 0, "x"));
  RETURN_IF_ERROR(SameType(call, 1, "the weight"));
  RETURN_IF_ERROR(SameType(call, 2, "the bias"));
  ASSIGN_OR_RETURN(const Plan plan, MakePlan(call));
  RETURN_IF_ERROR(ShapeIs(call, 2, {plan.out[1]}, "the bias"));
  return Outputs(call, {{call.arg(0).dtype, plan.out}});
}

// A few output channels of one image at a time: their patches are a product of
// the channels' weights and the image, which are then added to where they
// belong.
Status Run(const Call& call, std::span<const Result> results,
           const Team& team) {
  ASSIGN_OR_RETURN(const Plan plan, MakePlan(call));
  const int64_t kernel = plan.window.num_kernel();
  const int64_t pixels = plan.window.num_out();
  const int64_t size = plan.window.num_in();
  const int64_t channels = plan.groups * plan.group_out;
  const auto [begin, end] = team.Share(plan.batch * channels);
  DispatchFloat(call.arg(0).dtype, [&, b = begin, e = end]<typename T>() {
    using M = MathType<T>;
    const std::vector<M> bias = Widened<T>(call.arg(2));
    constexpr int64_t kChannels = 16;
    const int64_t most = std::min(kChannels, plan.group_out) * kernel;
    const auto rows = Scratch<M>(most * plan.group_in);
    const auto columns = Scratch<M>(most * pixels);
    std::vector<M> image(static_cast<size_t>(size));
    for (int64_t i = b; i < e;) {
      const int64_t channel = i % channels;
      const int64_t group = channel / plan.group_out;
      const int64_t within = channel % plan.group_out;
      const int64_t block =
          std::min({kChannels, e - i, plan.group_out - within});
      const int64_t m = block * kernel;
      const T* w = call.arg(1).data<T>() +
                   (group * plan.group_in * plan.group_out + within) * kernel;
      for (int64_t r = 0; r < m; ++r) {
        for (int64_t c = 0; c < plan.group_in; ++c) {
          rows[static_cast<size_t>(r * plan.group_in + c)] =
              w[c * plan.group_out * kernel + r];
        }
      }
      const Matrix<T> x{
          call.arg(0).data<T>() +
              (i / channels * plan.groups + group) * plan.group_in * pixels,
          pixels, 1};
      Gemm<M>(
          {m, pixels, plan.group_in}, rows.get(), plan.group_in,
          [&](int64_t k0, int64_t kc, int64_t n0, int64_t width, int64_t cols,
              M* panel) {
            PackPanel<M>(x, k0, kc, n0, width, cols, panel,
                         [](T v) { return static_cast<M>(v); });
          },
          columns.get(), pixels);
      for (int64_t j = 0; j < block; ++j, ++i) {
        std::fill(image.begin(), image.end(),
                  bias.empty() ? M(0) : bias[static_cast<size_t>(channel + j)]);
        AddPatches(plan.window, columns.get() + j * kernel * pixels,
                   image.data());
        std::transform(image.begin(), image.end(),
                       results[0].data<T>() + i * size,
                       [](M v) { return static_cast<T>(v); });
      }
    }
  });
  return OkStatus();
}

// Operands: columns [n, channels * kernel, windows], image_shape, block_shape.
StatusOr<Window> ColumnWindow(const Call& call) {
  ASSIGN_OR_RETURN(const auto image, IntsOf(call.arg(1), "image_shape"));
  ASSIGN_OR_RETURN(const auto block, IntsOf(call.arg(2), "block_shape"));
  return MakeWindow(call.attrs(), image, block);
}

Types InferCol2Im(const Call& call) {
  RETURN_IF_ERROR(CountOperands(call, 3, 3));
  RETURN_IF_ERROR(FloatOperand(call, 0, "the columns"));
  ASSIGN_OR_RETURN(const Window window, ColumnWindow(call));
  const Shape& x = call.arg(0).shape;
  if (x.rank() != 3 || x[1] % window.num_kernel() != 0 ||
      x[2] != window.num_out()) {
    return InvalidArgument(
        "columns of shape " + x.ToString() + " do not fit blocks of " +
        std::to_string(window.num_kernel()) + " elements at " +
        std::to_string(window.num_out()) + " places");
  }
  std::vector<int64_t> dims = {x[0], x[1] / window.num_kernel()};
  for (int i = kSpatial - window.rank; i < kSpatial; ++i) {
    dims.push_back(window.axes[static_cast<size_t>(i)].in);
  }
  ASSIGN_OR_RETURN(const Shape out, Shape::Checked(dims));
  return Outputs(call, {{call.arg(0).dtype, out}});
}

Status RunCol2Im(const Call& call, std::span<const Result> results,
                 const Team& team) {
  ASSIGN_OR_RETURN(const Window window, ColumnWindow(call));
  const int64_t size = window.num_in();
  const int64_t count = window.num_kernel() * window.num_out();
  const auto [begin, end] =
      team.Share(results[0].shape[0] * results[0].shape[1]);
  DispatchFloat(call.arg(0).dtype, [&, b = begin, e = end]<typename T>() {
    using M = MathType<T>;
    for (int64_t i = b; i < e; ++i) {
      const T* x = call.arg(0).data<T>() + i * count;
      const std::vector<M> columns(x, x + count);
      std::vector<M> image(static_cast<size_t>(size));
      AddPatches(window, columns.data(), image.data());
      std::transform(image.begin(), image.end(),
                     results[0].data<T>() + i * size,
                     [](M v) { return static_cast<T>(v); });
    }
  });
  return OkStatus();
}

// Its int8 kernels know no groups.
constexpr LayerFacts kConvTransposeLayer = {
    .outputs_axis = [](const Node&) { return 1; },
    .min_weight_rank = 3,
    .max_weight_rank = Shape::kMaxRank,
    .has_int8 =
        [](const Node& node) { return node.attrs.Int("group", 1) == 1; }};

constexpr OpDef kOps[] = {
    {"ConvTranspose",
     Infer,
     Run,
     Work::kSplits,
     {.has_bf16_products = true,
      .layout = LayoutRule::kConvTranspose,
      .layer = &kConvTransposeLayer}},
    {"Col2Im", InferCol2Im, RunCol2Im, Work::kSplits},
};

}  // namespace

std::span<const OpDef> ConvTransposeOps() { return kOps; }

}  // namespace millrace::models::graph
