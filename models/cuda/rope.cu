// From the projection's q, k and v to rotated q and a token's place in the
// cache: one warp for each head of q, k or v of a row. Rotary position
// embedding: Su et al. 2021.
#include "models/cuda/device_code.cuh"
#include "models/cuda/kernels.h"

namespace millrace::cuda {
namespace {

constexpr int kWarps = 4;

__device__ __forceinline__ void Store(const KvCache& kv, int64_t at,
                                      float value) {
  if (kv.f32) {
    reinterpret_cast<float*>(kv.base)[at] = value;
  } else {
    // Finite: an infinite value times a weight of 0 would be NaN in rows that
    // do not see it. NaN stays NaN.
    constexpr float kMost = 65504;
    const float stored = value > kMost    ? kMost
                         : value < -kMost ? -kMost
                                          : value;
    reinterpret_cast<uint16_t*>(kv.base)[at] = ToHalf(stored);
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
  // Of k or v: where value 0 goes.
  const int kv_head = (unit - args.heads) % kv_heads;
  const int64_t half_layer = int64_t{kv_heads} * kPageRows * dim;
  const int64_t place =
      is_q ? 0
           : page * args.kv.page_values +
                 (2 * int64_t{args.layer} + (is_v ? 1 : 0)) * half_layer +
                 (int64_t{kv_head} * kPageRows + position % kPageRows) * dim;
  if (is_v) {
    for (int i = lane; i < dim; i += 32) Store(args.kv, place + i, head[i]);
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
    } else {
      Store(args.kv, place + i, value);
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
