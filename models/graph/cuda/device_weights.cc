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

Tensor Packed(const Tensor& constant, cuda::GraphPrecision precision,
              const WeightOrder& order) {
  const Tensor values = constant.Aligned();
  const std::vector<std::byte> packed =
      PackFactors(precision, order, values.data<float>());
  Tensor bytes =
      Tensor::Make(DType::kU8, {static_cast<int64_t>(packed.size())});
  std::copy(packed.begin(), packed.end(), bytes.bytes());
  return bytes;
}

}  // namespace

Status DeviceWeights::Upload(std::byte* to, const Tensor& constant) {
  const Tensor bytes = constant.Aligned();
  RETURN_IF_ERROR(context_->Upload(to, bytes.bytes(), bytes.num_bytes()));
  // The copy may go with the handle, and other streams read it next.
  return context_->Wait();
}

StatusOr<const std::byte*> DeviceWeights::Keep(
    const Key& key, const std::shared_ptr<const Tensor>& constant,
    const Tensor& bytes) {
  const int64_t size = std::max<int64_t>(bytes.num_bytes(), 1);
  ASSIGN_OR_RETURN(CudaBuffer buffer,
                   context_->Allocate(size, "a graph's weights"));
  RETURN_IF_ERROR(Upload(buffer.data(), bytes));
  bytes_ += size;
  const std::byte* at = buffer.data();
  uploaded_.emplace(key, Uploaded{constant, std::move(buffer)});
  return at;
}

StatusOr<const std::byte*> DeviceWeights::FindOrUpload(
    const std::shared_ptr<const Tensor>& constant) {
  const Key key = {constant.get(), Form{}};
  MutexLock lock(mu_);
  const auto found = uploaded_.find(key);
  if (found != uploaded_.end()) {
    return static_cast<const std::byte*>(found->second.buffer.data());
  }
  return Keep(key, constant, *constant);
}

StatusOr<const std::byte*> DeviceWeights::FindOrPack(
    const std::shared_ptr<const Tensor>& constant,
    cuda::GraphPrecision precision, const WeightOrder& order) {
  const Key key = {constant.get(), Form{precision, order}};
  MutexLock lock(mu_);
  const auto found = uploaded_.find(key);
  if (found != uploaded_.end()) {
    return static_cast<const std::byte*>(found->second.buffer.data());
  }
  return Keep(key, constant, Packed(*constant, precision, order));
}

StatusOr<CudaBuffer> DeviceWeights::PackOwn(const Tensor& constant,
                                            cuda::GraphPrecision precision,
                                            const WeightOrder& order) {
  const Tensor bytes = Packed(constant, precision, order);
  MutexLock lock(mu_);
  ASSIGN_OR_RETURN(CudaBuffer buffer,
                   context_->Allocate(std::max<int64_t>(bytes.num_bytes(), 1),
                                      "a plan's constants"));
  RETURN_IF_ERROR(Upload(buffer.data(), bytes));
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
    RETURN_IF_ERROR(Upload(buffer.data() + at, *constant));
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
