// Attention of graphs in f32, dense and masked, a warp for each query of a
// head: lanes share out the values of a head, keys come in order with a running
// maximum. Keys are read from memory for each query: correct, not fast.
#include "models/cuda/graph_functions.cuh"

namespace millrace::cuda {
namespace {

constexpr int kQueryWarps = 4;
constexpr int kLaneValues = kMostHeadSize / 32;

__global__ void AttentionKernel(GraphAttentionArgs args) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t row =
      int64_t{blockIdx.x} * kQueryWarps + static_cast<int>(threadIdx.x) / 32;
  if (row >= args.items * args.heads * args.queries) return;  // whole warps
  const int64_t query = row % args.queries;
  const int64_t head = row / args.queries % args.heads;
  const int64_t item = row / args.queries / args.heads;
  const int64_t key_head = head * args.key_heads / args.heads;
  const auto place = [&](const HeadsAt& at, int64_t own_head, int64_t token) {
    return item * at.item + token * at.token + own_head * at.size;
  };
  const ValuesIn q = args.q + place(args.q_at, head, query);
  const float* mask = args.mask;
  if (mask != nullptr) {
    mask += item % args.mask_items * args.mask_strides[0] +
            head * args.mask_strides[1] + query * args.mask_strides[2];
  }
  float scaled[kLaneValues];
  float out[kLaneValues];
  for (int i = 0; i < kLaneValues; ++i) {
    const int at = lane + 32 * i;
    scaled[i] = at < args.q_at.size ? LoadValue(q, at) * args.scale : 0.0f;
    out[i] = 0;
  }
  float most = -INFINITY;
  float sum = 0;
  const int64_t keys = args.causal ? Min64(args.keys, query + 1) : args.keys;
  for (int64_t key = 0; key < keys; ++key) {
    const ValuesIn k = args.k + place(args.k_at, key_head, key);
    float score = 0;
    for (int i = 0; i < kLaneValues; ++i) {
      const int at = lane + 32 * i;
      if (at < args.q_at.size) {
        score = fmaf(scaled[i], LoadValue(k, at), score);
      }
    }
    score = WarpSum(score);
    if (mask != nullptr) score += mask[key * args.mask_strides[3]];
    if (score == -INFINITY) continue;  // hidden
    const float before = most;
    most = fmaxf(most, score);
    const float keep = before == -INFINITY ? 0.0f : expf(before - most);
    const float weight = expf(score - most);
    sum = fmaf(sum, keep, weight);
    const ValuesIn v = args.v + place(args.v_at, key_head, key);
    for (int i = 0; i < kLaneValues; ++i) {
      const int at = lane + 32 * i;
      if (at < args.v_at.size) {
        out[i] = fmaf(weight, LoadValue(v, at), out[i] * keep);
      }
    }
  }
  const bool hidden = most == -INFINITY && sum == 0;
  const ValuesOut to = args.out + place(args.out_at, head, query);
  for (int i = 0; i < kLaneValues; ++i) {
    const int at = lane + 32 * i;
    if (at >= args.v_at.size) continue;
    StoreValue(to, at, hidden && args.zero_if_hidden ? 0.0f : out[i] / sum);
  }
}

}  // namespace

int GraphAttention(Stream stream, const GraphAttentionArgs& args) {
  const int64_t rows = args.items * args.heads * args.queries;
  if (rows == 0 || args.v_at.size == 0) return 0;
  if (args.precision != GraphPrecision::kF32 &&
      args.q_at.size <= kMostTensorHeadSize &&
      args.v_at.size <= kMostTensorHeadSize) {
    return GraphAttentionOnTensors(stream, args);
  }
  return Launch(AttentionKernel, dim3(CeilDiv(rows, kQueryWarps)),
                kQueryWarps * 32, 0, stream, args);
}

}  // namespace millrace::cuda
