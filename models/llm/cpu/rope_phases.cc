// Run time: from the projection's q, k and v to rotated q and a token's place
// in the cache. Each head is one worker's.
#include <cmath>
#include <cstring>

#include "models/llm/cpu/cpu_backend.h"

namespace millrace::models {
namespace {

float ScaleOfQ(const RopeOptions& options, int32_t position) {
  const QTemperature& t = options.q_temperature;
  if (t.length == 0) return options.q_scale;
  const float lengths =
      std::floor((static_cast<float>(position) + 1) / t.length);
  return options.q_scale * (1 + t.scale * std::log1p(lengths));
}

}  // namespace

void CpuBackend::RopeHeads(int32_t row, const Command& command, int32_t q0,
                           int32_t q1, int32_t kv0, int32_t kv1) {
  const int32_t d = shape().head_dim;
  const RopeOptions& options = command.rope;
  float* qkv = qkv_.data() + row * qkv_dim_;
  const bool rotates = options.rope >= 0;
  const int64_t angles =
      rotates ? (int64_t{options.rope} * limits_.max_tokens + row) *
                    (rope_dims_ / 2)
              : 0;
  const float* cos = cos_.data() + angles;
  const float* sin = sin_.data() + angles;
  const auto rotate = [&](float* head, std::span<const float> norm) {
    if (static_cast<int32_t>(norm.size()) == d) {
      kernels_.rms_norm(head, norm.data(), d, shape().norm_eps, head);
    }
    if (rotates) {
      kernels_.rope(head, rope_dims_, cos, sin, shape().rope_interleaved);
    }
  };
  for (int32_t head = q0; head < q1; ++head) {
    rotate(qkv + int64_t{head} * d, options.q_norm);
  }
  const int32_t position = batch_->positions()[row];
  if (q1 > q0) {
    float* q = qkv + int64_t{q0} * d;
    kernels_.scale(q, ScaleOfQ(options, position), int64_t{q1 - q0} * d, q);
  }
  const KvPlace place = command.place;
  const PageId page =
      batch_->pages(seq_of_row_[row], place.group)[position / kPageTokens];
  for (int32_t head = kv0; head < kv1; ++head) {
    float* k = qkv + q_dim_ + int64_t{2} * head * d;
    rotate(k, options.k_norm);
    kernels_.write_kv(k, k + d, d, position % kPageTokens, kv_.format,
                      kv_.k(page, place.layer, head),
                      kv_.v(page, place.layer, head));
  }
}

void CpuBackend::RunRopeWriteKv(Worker& worker, const Command& command) {
  // (row, kv head with its q heads) shared out.
  const int32_t kv_heads = shape().kv_heads;
  const int32_t group = shape().heads / kv_heads;
  const auto [begin, end] = worker.Share(int64_t{RowsOf(command)} * kv_heads);
  for (int64_t i = begin; i < end; ++i) {
    const auto row = static_cast<int32_t>(i / kv_heads);
    const auto head = static_cast<int32_t>(i % kv_heads);
    RopeHeads(row, command, head * group, (head + 1) * group, head, head + 1);
  }
  worker.Barrier();
}

void CpuBackend::NormaliseWhole(Worker& worker, int32_t row,
                                const RopeOptions& options) {
  const float eps = shape().norm_eps;
  float* qkv = qkv_.data() + row * qkv_dim_;
  kernels_.rms_norm(qkv, options.q_norm.data(), q_dim_, eps, qkv);
  // Heads of k stand apart, each before its head of v.
  const int64_t d = shape().head_dim;
  const auto bytes = static_cast<size_t>(d) * sizeof(float);
  float* k = private_[worker.index()].row.data();
  for (int64_t head = 0; head < shape().kv_heads; ++head) {
    std::memcpy(k + head * d, qkv + q_dim_ + 2 * head * d, bytes);
  }
  kernels_.rms_norm(k, options.k_norm.data(), shape().kv_heads * d, eps, k);
  for (int64_t head = 0; head < shape().kv_heads; ++head) {
    std::memcpy(qkv + q_dim_ + 2 * head * d, k + head * d, bytes);
  }
}

void CpuBackend::RunRopeWholeRows(Worker& worker, const Command& command) {
  // With one head its norm has the size of a head's: not to be applied again.
  Command rotation = command;
  rotation.rope.q_norm = {};
  rotation.rope.k_norm = {};
  const auto [begin, end] = worker.Share(RowsOf(command));
  for (int64_t i = begin; i < end; ++i) {
    const auto row = static_cast<int32_t>(i);
    NormaliseWhole(worker, row, command.rope);
    RopeHeads(row, rotation, 0, shape().heads, 0, shape().kv_heads);
  }
  worker.Barrier();
}

}  // namespace millrace::models
