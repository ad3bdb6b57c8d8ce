#include "models/graph/cuda/device_weights.h"

#include <algorithm>
#include <utility>

namespace millrace::models::graph {
namespace {

// As cudaMalloc aligns, and more than any kernel asks for.
constexpr int64_t kAlignment = 256;

int64_t Aligned(int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

Status DeviceWeights::Upload(std::byte* to, const std::byte* from,
                             int64_t bytes) {
  RETURN_IF_ERROR(context_->Upload(to, from, bytes));
  // The copy may go with the handle, and other streams read it next.
  return context_->Wait();
}

StatusOr<const std::byte*> DeviceWeights::Keep(
    const Key& key, const std::shared_ptr<const Tensor>& constant,
    const std::byte* bytes, int64_t size) {
  const int64_t held = std::max<int64_t>(size, 1);
  ASSIGN_OR_RETURN(CudaBuffer buffer,
                   context_->Allocate(held, "a graph's weights"));
  RETURN_IF_ERROR(Upload(buffer.data(), bytes, size));
  bytes_ += held;
  const std::byte* at = buffer.data();
  uploaded_.emplace(key, Uploaded{constant, std::move(buffer)});
  return at;
}

StatusOr<const std::byte*> DeviceWeights::FindOrUpload(
    const std::shared_ptr<const Tensor>& constant) {
  const Key key = {constant.get(), {}};
  MutexLock lock(mu_);
  const auto found = uploaded_.find(key);
  if (found != uploaded_.end()) {
    return static_cast<const std::byte*>(found->second.buffer.data());
  }
  const Tensor bytes = constant->Aligned();
  return Keep(key, constant, bytes.bytes(), bytes.num_bytes());
}

StatusOr<const std::byte*> DeviceWeights::FindOrPack(
    const PackedConstant& packed) {
  const Key key = {packed.of.get(), packed.form};
  MutexLock lock(mu_);
  const auto found = uploaded_.find(key);
  if (found != uploaded_.end()) {
    return static_cast<const std::byte*>(found->second.buffer.data());
  }
  const std::vector<std::byte> bytes = packed.pack();
  return Keep(key, packed.of, bytes.data(), static_cast<int64_t>(bytes.size()));
}

StatusOr<CudaBuffer> DeviceWeights::PackOwn(const PackedConstant& packed) {
  return UploadBytes(packed.pack());
}

StatusOr<CudaBuffer> DeviceWeights::UploadBytes(
    const std::vector<std::byte>& bytes) {
  if (bytes.empty()) return CudaBuffer();
  const auto size = static_cast<int64_t>(bytes.size());
  MutexLock lock(mu_);
  ASSIGN_OR_RETURN(CudaBuffer buffer,
                   context_->Allocate(size, "a plan's constants"));
  RETURN_IF_ERROR(Upload(buffer.data(), bytes.data(), size));
  return buffer;
}

StatusOr<std::vector<const std::byte*>> DeviceWeights::UploadOwn(
    const std::vector<std::shared_ptr<const Tensor>>& constants,
    CudaBuffer& buffer) {
  std::vector<const std::byte*> places;
  if (constants.empty()) return places;
  MutexLock lock(mu_);
  int64_t total = 0;
  for (const auto& constant : constants) {
    total += Aligned(constant->num_bytes());
  }
  ASSIGN_OR_RETURN(buffer, context_->Allocate(std::max<int64_t>(total, 1),
                                              "a plan's constants"));
  int64_t at = 0;
  for (const auto& constant : constants) {
    const Tensor bytes = constant->Aligned();
    RETURN_IF_ERROR(
        Upload(buffer.data() + at, bytes.bytes(), bytes.num_bytes()));
    places.push_back(buffer.data() + at);
    at += Aligned(constant->num_bytes());
  }
  return places;
}

int64_t DeviceWeights::bytes() const {
  MutexLock lock(mu_);
  return bytes_;
}

}  // namespace millrace::models::graph
