// Convolutions and linear layers of quantised graphs on tensor cores: bytes in,
// exact sums, bytes or floats out. A convolution is a product whose rows are
// looked up in the image on the way to shared memory (implicit GEMM). Groups
// come one after the other.
#include <type_traits>

#include "models/cuda/byte_products.cuh"
#include "models/cuda/graph_byte_end.cuh"
#include "models/cuda/graph_tensor.cuh"
#include "models/cuda/graph_window.cuh"

namespace millrace::cuda {
namespace {

constexpr int kUnit = static_cast<int>(kPackedUnit);  // bytes
constexpr int kSlabInputs = kSlabUnits * kUnit;

struct ByteFactors {
  using Sum = int32_t;
  using FourSums = Neighbours<int32_t, 4>;
  static constexpr bool kInPieces = false;
  __device__ static __forceinline__ void Multiply(const uint32_t (&x)[4],
                                                  const uint32_t* w,
                                                  int32_t (&sums)[4]) {
    MultiplyBytes(x, w, sums);
  }
};

struct ByteResult {
  const GraphByteLayerArgs& args;
  int64_t rows;
  int64_t outputs;  // of a group
  int64_t first;    // of the group
};
__device__ __forceinline__ void StoreFour(const ByteResult& r, int64_t row,
                                          int64_t output,
                                          Neighbours<int32_t, 4> sums) {
  if (row >= r.rows || output >= r.outputs) return;
  const int count = static_cast<int>(Min64(4, r.outputs - output));
  FinishBytes<4>(r.args, sums, r.first + output,
                 row * r.args.outputs + r.first + output, count, r.args.wide);
}

// Rows of pixels whose channels, of a group too, are whole units at 16-byte
// addresses. `first_channel` is the group's.
template <int kRows, int kThreads>
class BytePixelRows {
 public:
  __device__ BytePixelRows(const GraphByteLayerArgs& args, int channels,
                           int first_channel, int64_t first)
      : args_(args),
        channels_(channels),
        first_channel_(first_channel),
        walk_() {
    MILLRACE_UNROLL
    for (int i = 0; i < kMine; ++i) {
      pixels_[i] =
          PixelAt(args.window, Min64(first + Row(i), PixelsOut(args) - 1));
    }
    walk_.Advance(args.window, channels, Own() * kUnit);
  }
  // Slabs are fetched in order.
  __device__ __forceinline__ void Fetch(int, uint4* to) {
    const bool there = walk_.IsThere(args_.window);
    MILLRACE_UNROLL
    for (int i = 0; i < kMine; ++i) {
      const int read =
          there ? ReadAt(args_.window, args_.transposed, pixels_[i], walk_.tap)
                : -1;
      const uint8_t* from =
          read < 0 ? args_.padding
                   : args_.x + (pixels_[i].image + read) * args_.channels +
                         first_channel_ + walk_.channel;
      CopyAsync<16>(to + UnitPlace(Row(i), Own()), from, there);
    }
    walk_.Advance(args_.window, channels_, kSlabInputs);
  }
  __device__ __forceinline__ void Store(uint4*) const {}

 private:
  static constexpr int kMine = kRows * kSlabUnits / kThreads;
  __device__ static __forceinline__ int Own() {
    return static_cast<int>(threadIdx.x) % kSlabUnits;
  }
  __device__ static __forceinline__ int Row(int i) {
    return static_cast<int>(threadIdx.x) / kSlabUnits +
           i * (kThreads / kSlabUnits);
  }
  const GraphByteLayerArgs& args_;
  const int channels_;
  const int first_channel_;
  TapWalk walk_;
  Pixel pixels_[kMine];
};

// Any number of channels, byte by byte.
template <int kRows, int kThreads>
class BytePixelValues {
 public:
  __device__ BytePixelValues(const GraphByteLayerArgs& args, int channels,
                             int first_channel, int64_t first)
      : args_(args),
        channels_(channels),
        first_channel_(first_channel),
        zero_(args.epilogue.x_zero != nullptr ? *args.epilogue.x_zero
                                              : args.zero),
        walk_(),
        pixel_(PixelAt(args.window,
                       Min64(first + Place::Row(), PixelsOut(args) - 1))) {
    walk_.Advance(args.window, channels, Place::Unit(0) * kUnit);
  }
  __device__ __forceinline__ void Fetch(int, uint4*) {
    TapWalk walk = walk_;
    MILLRACE_UNROLL
    for (int i = 0; i < Place::kMine; ++i) {
      int read = -1;
      bool is_new = true;  // the tap
      MILLRACE_UNROLL
      for (int word = 0; word < 4; ++word) {
        uint32_t four = 0;
        MILLRACE_UNROLL
        for (int j = 0; j < 32; j += 8) {
          if (is_new) {
            read =
                walk.IsThere(args_.window)
                    ? ReadAt(args_.window, args_.transposed, pixel_, walk.tap)
                    : -1;
          }
          const uint8_t byte =
              read < 0 ? zero_
                       : args_.x[(pixel_.image + read) * args_.channels +
                                 first_channel_ + walk.channel];
          four |= uint32_t{byte} << j;
          is_new = walk.channel + 1 == channels_;
          walk.Advance(args_.window, channels_, 1);
        }
        words_[i][word] = four;
      }
      walk.Advance(args_.window, channels_, (Place::kStep - 1) * kUnit);
    }
    walk_.Advance(args_.window, channels_, kSlabInputs);
  }
  __device__ __forceinline__ void Store(uint4* to) const {
    MILLRACE_UNROLL
    for (int i = 0; i < Place::kMine; ++i) {
      to[UnitPlace(Place::Row(), Place::Unit(i))] = {
          words_[i][0], words_[i][1], words_[i][2], words_[i][3]};
    }
  }

 private:
  using Place = ByRow<kRows, kThreads>;
  const GraphByteLayerArgs& args_;
  const int channels_;
  const int first_channel_;
  const uint8_t zero_;
  TapWalk walk_;
  const Pixel pixel_;
  uint32_t words_[Place::kMine][4];
};

enum class ByteRows { kDense, kUnits, kValues };

template <class T, ByteRows kOf>
__global__ void __launch_bounds__(T::kThreads, T::kBlocks)
    ByteLayerKernel(GraphByteLayerArgs args) {
  const int64_t outputs = args.outputs / args.groups;
  const int channels = args.channels / args.groups;
  const int64_t tiles = (outputs + T::kOutputs - 1) / T::kOutputs;
  const int64_t row0 = blockIdx.x / tiles * T::kRows;
  const int64_t output0 = blockIdx.x % tiles * T::kOutputs;
  const int slabs =
      static_cast<int>((args.row_bytes + kSlabInputs - 1) / kSlabInputs);
  for (int64_t group = blockIdx.y; group < args.groups; group += gridDim.y) {
    PackedRows<T::kOutputs, T::kThreads> weights(
        args.w + group * outputs * args.row_bytes, args.row_bytes, output0,
        outputs);
    const ByteResult result = {args, PixelsOut(args), outputs, group * outputs};
    const auto with = [&](auto rows) {
      MultiplyTensorTile<ByteFactors, T>(SlabRange::All(slabs), rows, weights,
                                         result, row0, output0);
    };
    const int first = static_cast<int>(group) * channels;
    if constexpr (kOf == ByteRows::kDense) {
      with(PackedRows<T::kRows, T::kThreads>(args.x, channels, row0,
                                             result.rows));
    } else if constexpr (kOf == ByteRows::kUnits) {
      with(BytePixelRows<T::kRows, T::kThreads>(args, channels, first, row0));
    } else {
      with(BytePixelValues<T::kRows, T::kThreads>(args, channels, first, row0));
    }
  }
}

// Every output reads the pixel at its own place, and nothing else.
bool IsDense(const GraphByteLayerArgs& args) {
  const GraphWindow& w = args.window;
  bool dense = args.groups == 1;
  for (int i = 0; i < 3; ++i) {
    dense = dense && w.kernel[i] == 1 && w.stride[i] == 1 && w.pad[i] == 0 &&
            w.in[i] == w.out[i];
  }
  return dense;
}

bool ReadsPadding(const GraphByteLayerArgs& args) {
  bool reads = args.transposed;
  for (int i = 0; i < 3; ++i) {
    reads = reads || args.window.pad[i] != 0 || args.window.pad_end[i] != 0;
  }
  return reads;
}

}  // namespace

int GraphByteLayer(Stream stream, const GraphByteLayerArgs& args) {
  const GraphWindow& w = args.window;
  const int64_t pixels = args.batch * w.out[0] * w.out[1] * w.out[2];
  if (pixels == 0 || args.outputs == 0) return 0;
  const int64_t outputs = args.outputs / args.groups;
  GraphByteLayerArgs with = args;
  with.wide = IsWide(args, outputs, 4);
  // A zero point that is measured is not there in units.
  const bool measures_padding =
      args.epilogue.x_zero != nullptr && ReadsPadding(args);
  const bool in_units =
      args.channels / args.groups % kUnit == 0 && IsAligned(args.x);
  const bool dense = in_units && IsDense(args);
  if (with.tile == GraphTile::kChosen) {
    with.tile = TensorTileFor(pixels, outputs, args.groups);
  }
  const bool by_values = !dense && (!in_units || measures_padding);
  if (by_values && with.tile == GraphTile::kLarge) {
    with.tile = GraphTile::kTall;  // registers
  }
  return WithTensorTile(with.tile, [&]<class T>() {
    const auto launch = [&](auto kernel) {
      return Launch(kernel, ByTensorTile<T>(pixels, outputs, args.groups),
                    T::kThreads, T::kBytes, stream, with);
    };
    if (dense) return launch(ByteLayerKernel<T, ByteRows::kDense>);
    if (!by_values) return launch(ByteLayerKernel<T, ByteRows::kUnits>);
    if constexpr (std::is_same_v<T, LargeTensorTile>)
      return kInvalidValue;
    else
      return launch(ByteLayerKernel<T, ByteRows::kValues>);
  });
}

}  // namespace millrace::cuda
