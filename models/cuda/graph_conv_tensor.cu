// Convolutions of graphs on tensor cores, as products whose rows are looked up
// in the image on the way to shared memory (implicit GEMM), straight and
// transposed; with groups, each of them is such a product. An output's products
// are added by taps, then by channels.
#include "models/cuda/graph_tensor.cuh"
#include "models/cuda/graph_window.cuh"

namespace millrace::cuda {
namespace {

// What the blocks of a group read and write: numbers of channels and outputs of
// each group, and the first ones of this one.
struct Group {
  int channels;
  int outputs;
  int first_channel;
  int first_output;

  __device__ explicit Group(const GraphConvArgs& args)
      : channels(args.channels / args.groups),
        outputs(args.outputs / args.groups),
        first_channel(static_cast<int>(blockIdx.y) * channels),
        first_output(static_cast<int>(blockIdx.y) * outputs) {}
};

// Rows of pixels whose channels are whole units at 16-byte addresses: f32 that
// becomes tf32, or factors, which are copied to shared memory as they lie.
template <GraphPrecision kPrecision, int kRows, int kThreads>
class PixelRows {
 public:
  __device__ PixelRows(const GraphConvArgs& args, const Group& group, int slab,
                       int64_t first)
      : args_(args), group_(group), walk_() {
    MILLRACE_UNROLL
    for (int i = 0; i < kMine; ++i) {
      pixels_[i] =
          PixelAt(args.window, Min64(first + Row(i), PixelsOut(args) - 1));
    }
    walk_.Advance(
        args.window, group.channels,
        (slab * kSlabUnits + static_cast<int>(threadIdx.x) % kSlabUnits) *
            kValues);
  }
  // Slabs are fetched in order, from `slab` on.
  __device__ __forceinline__ void Fetch(int, uint4* to) {
    const int own = static_cast<int>(threadIdx.x) % kSlabUnits;
    const bool there = walk_.IsThere(args_.window);
    MILLRACE_UNROLL
    for (int i = 0; i < kMine; ++i) {
      const int read =
          there ? ReadAt(args_.window, args_.transposed, pixels_[i], walk_.tap)
                : -1;
      const int64_t at = (pixels_[i].image + read) * args_.channels +
                         group_.first_channel + walk_.channel;
      if constexpr (kAreFactors) {
        CopyAsync<16>(
            to + UnitPlace(Row(i), own),
            static_cast<const uint16_t*>(args_.x.data) + (read < 0 ? 0 : at),
            read >= 0);
      } else {
        LoadValues<kValues>(
            read < 0 ? nullptr : static_cast<const float*>(args_.x.data) + at,
            values_[i]);
      }
    }
    walk_.Advance(args_.window, group_.channels, kSlabUnits * kValues);
  }
  __device__ __forceinline__ void Store(uint4* to) const {
    if constexpr (!kAreFactors) {
      const int own = static_cast<int>(threadIdx.x) % kSlabUnits;
      MILLRACE_UNROLL
      for (int i = 0; i < kMine; ++i) {
        to[UnitPlace(Row(i), own)] = ToUnit<kPrecision>(values_[i]);
      }
    }
  }

 private:
  static constexpr bool kAreFactors =
      AreFactors(kPrecision, FormatOf(kPrecision));
  static constexpr int kValues = kPerUnit<kPrecision>;
  static constexpr int kMine = kRows * kSlabUnits / kThreads;
  __device__ static __forceinline__ int Row(int i) {
    return static_cast<int>(threadIdx.x) / kSlabUnits +
           i * (kThreads / kSlabUnits);
  }
  const GraphConvArgs& args_;
  const Group& group_;
  TapWalk walk_;
  Pixel pixels_[kMine];
  float values_[kAreFactors ? 1 : kMine][kValues];
};

// Any number of channels, value by value.
template <GraphPrecision kPrecision, int kRows, int kThreads>
class PixelValues {
 public:
  __device__ PixelValues(const GraphConvArgs& args, const Group& group,
                         int slab, int64_t first)
      : args_(args),
        group_(group),
        walk_(),
        pixel_(PixelAt(args.window,
                       Min64(first + Place::Row(), PixelsOut(args) - 1))) {
    walk_.Advance(args.window, group.channels,
                  (slab * kSlabUnits + Place::Unit(0)) * kValues);
  }
  // Loops stay loops where they can: unrolled, looking up pixels is most of the
  // code of a kernel, and of the time to compile it.
  __device__ __forceinline__ void Fetch(int, uint4*) {
    TapWalk walk = walk_;
    MILLRACE_UNROLL
    for (int i = 0; i < Place::kMine; ++i) {
      int read = -1;
      bool is_new = true;  // the tap
      MILLRACE_NO_UNROLL
      for (int word = 0; word < 4; ++word) {
        float values[kOfWord];
        MILLRACE_UNROLL
        for (float& value : values) {
          if (is_new) {
            read =
                walk.IsThere(args_.window)
                    ? ReadAt(args_.window, args_.transposed, pixel_, walk.tap)
                    : -1;
          }
          value = read < 0 ? 0.0f
                           : LoadValue(args_.x,
                                       (pixel_.image + read) * args_.channels +
                                           group_.first_channel + walk.channel);
          is_new = walk.channel + 1 == group_.channels;
          walk.Advance(args_.window, group_.channels, 1);
        }
        const uint4 before = units_[i];
        units_[i] = {before.y, before.z, before.w, ToWord<kPrecision>(values)};
      }
      walk.Advance(args_.window, group_.channels, (Place::kStep - 1) * kValues);
    }
    walk_.Advance(args_.window, group_.channels, kSlabUnits * kValues);
  }
  __device__ __forceinline__ void Store(uint4* to) const {
    MILLRACE_UNROLL
    for (int i = 0; i < Place::kMine; ++i) {
      to[UnitPlace(Place::Row(), Place::Unit(i))] = units_[i];
    }
  }

 private:
  using Place = ByRow<kRows, kThreads>;
  static constexpr int kValues = kPerUnit<kPrecision>;
  static constexpr int kOfWord = kValues / 4;
  const GraphConvArgs& args_;
  const Group& group_;
  TapWalk walk_;
  const Pixel pixel_;
  uint4 units_[Place::kMine] = {};
};

template <GraphPrecision kPrecision, class T, class Rows>
__global__ void __launch_bounds__(T::kThreads, T::kBlocks)
    ConvTensorKernel(GraphConvArgs args) {
  const Group group(args);
  const int64_t outputs = group.outputs;
  const int64_t tiles = (outputs + T::kOutputs - 1) / T::kOutputs;
  const int64_t row0 = blockIdx.x / tiles * T::kRows;
  const int64_t output0 = blockIdx.x % tiles * T::kOutputs;
  constexpr int kSlabBytes = kSlabUnits * kPackedUnit;
  const SlabRange slabs = SlabRange::OfBlock(
      static_cast<int>((args.packed_w.row_bytes + kSlabBytes - 1) / kSlabBytes),
      PiecesOf(kPrecision, args.packed_w.row_bytes / FactorBytes(kPrecision),
               outputs));
  Rows rows(args, group, slabs.first, row0);
  PackedRows<T::kOutputs, T::kThreads> weights(
      static_cast<const std::byte*>(args.packed_w.data) +
          group.first_output * args.packed_w.row_bytes,
      args.packed_w.row_bytes, output0, outputs);
  TensorResult result = {.y = args.y,
                         .rows = PixelsOut(args),
                         .outputs = outputs,
                         .row_stride = args.outputs,
                         .start = group.first_output,
                         .wide = args.wide,
                         .epilogue = args.epilogue};
  if (args.epilogue.bias != nullptr) result.epilogue.bias += group.first_output;
  const PieceResult to = {result, args.partial, 0, 1};
  MultiplyTensorTile<FloatFactors<kPrecision>, T>(slabs, rows, weights, to,
                                                  row0, output0);
}

template <GraphPrecision kPrecision>
int Convolve(Stream stream, const GraphConvArgs& args) {
  const GraphWindow& w = args.window;
  const int64_t pixels = args.batch * w.out[0] * w.out[1] * w.out[2];
  GraphConvArgs with = args;
  const int64_t outputs = args.outputs / args.groups;
  with.wide = IsWide(args.epilogue, args.y, outputs, args.outputs);
  // f32 beside f16 and bf16 is a graph's input, or comes from the CPU.
  const int32_t channels = args.channels / args.groups;
  const bool in_units = channels % kPerUnit<kPrecision> == 0 &&
                        IsAligned(args.x.data) &&
                        args.x.format == FormatOf(kPrecision);
  const Cut cut(kPrecision, args.packed_w.row_bytes / FactorBytes(kPrecision),
                pixels, outputs, args.groups,
                args.partial != nullptr && args.groups == 1, args.tile);
  const auto launch = [&]<class T, class Rows>() {
    return Launch(ConvTensorKernel<kPrecision, T, Rows>,
                  ByTensorTile<T>(pixels, outputs, args.groups, cut.blocks),
                  T::kThreads, T::kBytes, stream, with);
  };
  const auto multiply = [&] {
    if (in_units) {
      return WithTensorTile(cut.tile, [&]<class T>() {
        return launch.template
        operator()<T, PixelRows<kPrecision, T::kRows, T::kThreads>>();
      });
    }
    return WithSmallerTensorTile(cut.tile, [&]<class T>() {
      return launch.template
      operator()<T, PixelValues<kPrecision, T::kRows, T::kThreads>>();
    });
  };
  const int error = multiply();
  if (error != 0 || cut.blocks == 1) return error;
  return GraphJoinPieces(stream, {.partial = args.partial,
                                  .pieces = cut.pieces,
                                  .m = pixels,
                                  .n = args.outputs,
                                  .y = args.y,
                                  .y_row = args.outputs,
                                  .rank = 0,
                                  .count = 1,
                                  .sizes = {},
                                  .y_strides = {},
                                  .epilogue = args.epilogue,
                                  .wide = false});
}

}  // namespace

int GraphConvOnTensors(Stream stream, const GraphConvArgs& args) {
  switch (args.precision) {
    case GraphPrecision::kF32:
      break;
    case GraphPrecision::kTf32:
      return Convolve<GraphPrecision::kTf32>(stream, args);
    case GraphPrecision::kF16:
      return Convolve<GraphPrecision::kF16>(stream, args);
    case GraphPrecision::kBf16:
      return Convolve<GraphPrecision::kBf16>(stream, args);
  }
  return kInvalidValue;
}

}  // namespace millrace::cuda
