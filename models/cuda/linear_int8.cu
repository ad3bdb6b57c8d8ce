// Rows of int8 times a matrix of quantised weights, for steps of few rows:
// products of 32 are exact integer sums (dp4a), which are scaled and added in
// f32, each lane's in order, then by the tree of a warp. A warp computes two
// outputs of up to eight rows; a lane takes 32 inputs at a time.
#include "models/cuda/product.cuh"
#include "models/cuda/weights.cuh"

namespace millrace::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kOutputs = 2;  // of a warp

// 32 weights: of each eight the even ones and the odd ones as four bytes.
struct Chunk {
  int q[8];
  Affine first;
  Affine second;  // of the last 16, where scales are for 16
};

template <WeightFormat kFormat>
__device__ __forceinline__ Chunk LoadChunk(const std::byte* row, int inputs,
                                           int chunk) {
  using P = Planes<kFormat>;
  const int64_t high_at = int64_t{inputs} * P::kLow / 8;
  const int64_t scales_at = high_at + int64_t{inputs} * P::kHigh / 8;
  Chunk out;
  const auto scale_of = [&](int unit) {
    uint32_t inner = 0, outer = 0;
    FetchScale<kFormat>(row + scales_at, inputs, unit, inner, outer);
    return ScaleOf<kFormat>(inner, outer);
  };
  out.first = scale_of(4 * chunk);
  out.second = P::kGroup == 16 ? scale_of(4 * chunk + 2) : out.first;
  if constexpr (P::kLow == 8) {
    const auto* at = reinterpret_cast<const uint4*>(row) + 2 * chunk;
    const uint4 a = at[0], b = at[1];
    const uint32_t words[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
    for (int u = 0; u < 8; u += 2) {
      out.q[u] = static_cast<int>(__byte_perm(words[u], words[u + 1], 0x6420));
      out.q[u + 1] =
          static_cast<int>(__byte_perm(words[u], words[u + 1], 0x7531));
    }
  } else {
    const uint4 low = reinterpret_cast<const uint4*>(row)[chunk];
    const uint32_t words[4] = {low.x, low.y, low.z, low.w};
    uint32_t high[2] = {};
    if constexpr (P::kHigh == 1) {
      high[0] = LoadAs<uint32_t>(row + high_at + 4 * int64_t{chunk});
    }
    if constexpr (P::kHigh == 2) {
      const uint2 both = LoadAs<uint2>(row + high_at + 8 * int64_t{chunk});
      high[0] = both.x, high[1] = both.y;
    }
    for (int u = 0; u < 4; ++u) {
      uint32_t even = words[u] & 0x0f0f0f0f;
      uint32_t odd = words[u] >> 4 & 0x0f0f0f0f;
      if constexpr (P::kHigh == 1) {
        // Bit 2 j goes to bit 8 j + 4: it moves by 6 j + 4. What else the
        // product holds is masked; no sum of it carries into these bits.
        const uint32_t bits = high[0] >> 8 * u;
        even |= (bits & 0x55) * 0x00410410u & 0x10101010;
        odd |= (bits >> 1 & 0x55) * 0x00410410u & 0x10101010;
      }
      if constexpr (P::kHigh == 2) {
        // Four bits to a byte: the lower two are of the even value.
        uint32_t bits = high[u / 2] >> 16 * (u % 2) & 0xffff;
        bits = (bits | bits << 8) & 0x00ff00ff;
        bits = (bits | bits << 4) & 0x0f0f0f0f;
        even |= (bits & 0x03030303) << 4;
        odd |= (bits >> 2 & 0x03030303) << 4;
      }
      out.q[2 * u] = static_cast<int>(even);
      out.q[2 * u + 1] = static_cast<int>(odd);
    }
  }
  return out;
}

// sum + the products of 32.
template <WeightFormat kFormat>
__device__ __forceinline__ float AddChunk(const Chunk& w, const int x[8],
                                          uint2 scale, float sum) {
  using P = Planes<kFormat>;
  const float d = FloatOfBits(scale.x);
  const int sums[2] = {static_cast<int16_t>(scale.y & 0xffff),
                       static_cast<int16_t>(scale.y >> 16)};
  int parts[2] = {};
  for (int i = 0; i < 8; ++i) parts[i / 4] = __dp4a(w.q[i], x[i], parts[i / 4]);
  if constexpr (P::kGroup == 16) {
    for (int i = 0; i < 2; ++i) {
      const Affine& affine = i == 0 ? w.first : w.second;
      sum = fmaf(affine.scale * d,
                 static_cast<float>(parts[i] - P::kZero * sums[i]), sum);
    }
  } else {
    const int all = sums[0] + sums[1];
    int product = parts[0] + parts[1];
    if constexpr (!P::kHasMin) product -= P::kZero * all;
    sum = fmaf(w.first.scale * d, static_cast<float>(product), sum);
    if constexpr (P::kHasMin) {
      sum = fmaf(w.first.offset * d, static_cast<float>(all), sum);
    }
  }
  return sum;
}

template <WeightFormat kFormat, int kRows>
__global__ void __launch_bounds__(kWarps * 32) Int8Kernel(LinearArgs args) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int64_t first = (int64_t{blockIdx.x} * kWarps + warp) * kOutputs;
  const int last_output = args.weights.outputs - 1;
  const RowTile tile = TileOf<kRows>(args, blockIdx.y);
  if (first > last_output || tile.first == tile.end) return;  // whole warps
  const std::byte* x_at[kRows];
  MILLRACE_UNROLL
  for (int r = 0; r < kRows; ++r) {
    x_at[r] = args.rounded + tile.x_of(tile.row(r)) * args.rounded_bytes;
  }

  float sums[kOutputs][kRows] = {};
  const int inputs = args.weights.inputs;
  for (int chunk = lane; chunk < inputs / 32; chunk += 32) {
    Chunk w[kOutputs];
    for (int o = 0; o < kOutputs; ++o) {
      const int64_t output = Min64(first + o, last_output);
      w[o] = LoadChunk<kFormat>(tile.weights + output * args.weights.row_bytes,
                                inputs, chunk);
    }
    for (int r = 0; r < kRows; ++r) {
      const auto* words = reinterpret_cast<const int4*>(x_at[r]) + 2 * chunk;
      const int4 a = words[0], b = words[1];
      const int x[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
      const uint2 scale =
          reinterpret_cast<const uint2*>(x_at[r] + inputs)[chunk];
      for (int o = 0; o < kOutputs; ++o) {
        sums[o][r] = AddChunk<kFormat>(w[o], x, scale, sums[o][r]);
      }
    }
  }
  StoreSums(args, tile, first, lane, sums);
}

template <WeightFormat kFormat, int kRows>
int LaunchInt8(Stream stream, const LinearArgs& args) {
  return Launch(Int8Kernel<kFormat, kRows>,
                dim3(CeilDiv(args.weights.outputs, kWarps * kOutputs),
                     BlocksOfRows(args, kRows)),
                kWarps * 32, 0, stream, args);
}

}  // namespace

int MultiplyInt8(Stream stream, const LinearArgs& args) {
  if (args.rows == 0) return 0;
  return WithFormat(args.weights.format, [&]<WeightFormat kFormat>() {
    if constexpr (kFormat == WeightFormat::kF32 ||
                  kFormat == WeightFormat::kF16 ||
                  kFormat == WeightFormat::kBF16) {
      return kInvalidValue;
    } else {
      if (args.rows == 1) return LaunchInt8<kFormat, 1>(stream, args);
      if (args.rows <= 4) return LaunchInt8<kFormat, 4>(stream, args);
      return LaunchInt8<kFormat, 8>(stream, args);
    }
  });
}

}  // namespace millrace::cuda
