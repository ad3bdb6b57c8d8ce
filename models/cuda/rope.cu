// From the projection's q, k and v to rotated q and a token's place in the
// cache: one warp for each head of q, k or v of a row. Rotary position
// embedding: Su et al. 2021.
#include "models/cuda/device_code.cuh"
#include "models/cuda/kernels.h"

namespace millrace::cuda {
namespace {

constexpr int kWarps = 4;

// A head as int8, by a warp. The greatest magnitude is finite, so that no d is
// infinite: times a weight of 0 it would be NaN in rows that do not see it.
__device__ __forceinline__ void StoreInt8(const KvCache& kv, const float* head,
                                          std::byte* row, float* scale) {
  constexpr float kMost = 3.402823466e38f;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  float greatest = 0;
  for (int i = lane; i < kv.head_dim; i += 32) {
    greatest = fmaxf(greatest, fabsf(head[i]));
  }
  greatest = fminf(WarpMax(greatest), kMost);
  const float d = greatest / 127.0f;
  const bool zero = d < 0x1p-126f;
  const float inverse = zero ? 0.0f : 1.0f / d;
  for (int first = 4 * lane; first < kv.row_bytes; first += 4 * 32) {
    uint32_t four = 0;
    for (int i = 0; i < 4; ++i) {
      const float x = first + i < kv.head_dim ? head[first + i] : 0.0f;
      const float q = fminf(fmaxf(rintf(x * inverse), -127.0f), 127.0f);
      four |= (static_cast<uint32_t>(static_cast<int>(q)) & 0xff) << 8 * i;
    }
    *reinterpret_cast<uint32_t*>(row + first) = four;
  }
  if (lane == 0) *scale = zero ? 0.0f : d;
}

// As value i of a key or value.
__device__ __forceinline__ void Store(KvFormat format, std::byte* row, int i,
                                      float value) {
  if (format == KvFormat::kF32) {
    reinterpret_cast<float*>(row)[i] = value;
  } else {
    // Finite: an infinite value times a weight of 0 would be NaN in rows that
    // do not see it. NaN stays NaN.
    constexpr float kMost = 65504;
    const float stored = value > kMost    ? kMost
                         : value < -kMost ? -kMost
                                          : value;
    reinterpret_cast<uint16_t*>(row)[i] = ToHalf(stored);
  }
}

__global__ void __launch_bounds__(kWarps * 32) RopeKernel(RopeArgs args) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int kv_heads = args.kv.kv_heads;
  const int dim = args.kv.head_dim;
  const int units = args.heads + 2 * kv_heads;
  const int unit = static_cast<int>(blockIdx.x) * kWarps +
                   static_cast<int>(threadIdx.x) / 32;
  if (unit >= units) return;  // whole warps only
  const int64_t row = blockIdx.y;
  const int position = args.row_positions[row];
  float* head = args.qkv + row * args.pitch + int64_t{unit} * dim;
  const bool is_q = unit < args.heads;
  const bool is_v = unit >= args.heads + kv_heads;
  const int64_t page = args.row_pages[row];
  if (!is_q && page < 0) return;
  // Of k or v: where it goes.
  const KvCache& kv = args.kv;
  const int kv_head = (unit - args.heads) % kv_heads;
  std::byte* place = nullptr;
  float* scale = nullptr;  // kInt8
  if (!is_q) {
    const int64_t heads_before =
        (2 * int64_t{args.layer} + (is_v ? 1 : 0)) * kv_heads + kv_head;
    place = kv.base + page * kv.page_bytes + heads_before * kv.head_bytes;
    scale = reinterpret_cast<float*>(place + kPageRows * kv.row_bytes) +
            position % kPageRows;
    place += position % kPageRows * kv.row_bytes;
  }
  const bool int8 = kv.format == KvFormat::kInt8;
  if (is_v) {
    if (int8) {
      StoreInt8(kv, head, place, scale);
      return;
    }
    for (int i = lane; i < dim; i += 32) Store(kv.format, place, i, head[i]);
    return;
  }

  float q_scale = args.q_scale;
  if (args.temper_length > 0) {
    const float lengths =
        floorf((static_cast<float>(position) + 1) / args.temper_length);
    q_scale *= fmaf(args.temper_scale, log1pf(lengths), 1.0f);
  }
  const float* norm = is_q ? args.q_norm : args.k_norm;
  float r = 1;
  if (norm != nullptr) {
    float squares = 0;
    for (int i = lane; i < dim; i += 32) {
      squares = fmaf(head[i], head[i], squares);
    }
    r = 1.0f / sqrtf(WarpSum(squares) / static_cast<float>(dim) + args.eps);
  }
  const auto value_at = [&](int i) {
    return norm != nullptr ? head[i] * r * norm[i] : head[i];
  };
  const auto put = [&](int i, float value) {
    if (is_q) {
      head[i] = value * q_scale;
    } else if (int8) {
      head[i] = value;  // rounded below
    } else {
      Store(kv.format, place, i, value);
    }
  };
  const int rotated = args.frequencies != nullptr ? args.rope_dims : 0;
  // A pair is read and written by one lane.
  for (int i = lane; i < rotated / 2; i += 32) {
    const int a = args.interleaved ? 2 * i : i;
    const int b = args.interleaved ? 2 * i + 1 : i + rotated / 2;
    const float angle = static_cast<float>(position) * args.frequencies[i];
    const float c = cosf(angle) * args.magnitude;
    const float s = sinf(angle) * args.magnitude;
    const float x = value_at(a);
    const float y = value_at(b);
    put(a, x * c - y * s);
    put(b, x * s + y * c);
  }
  for (int i = rotated + lane; i < dim; i += 32) put(i, value_at(i));
  if (is_q || !int8) return;
  __syncwarp();  // what other lanes have rotated
  StoreInt8(kv, head, place, scale);
}

}  // namespace

int RopeWriteKv(Stream stream, const RopeArgs& args) {
  if (args.rows == 0) return 0;
  return Launch(RopeKernel,
                dim3(CeilDiv(args.heads + 2 * args.kv.kv_heads, kWarps),
                     static_cast<unsigned>(args.rows)),
                kWarps * 32, 0, stream, args);
}

}  // namespace millrace::cuda
