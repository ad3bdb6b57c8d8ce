// One backend descriptor of cuDNN: made, filled, finalized, and destroyed with
// this object. The first call that fails leaves its number behind, and the
// later ones do nothing, so that a descriptor is checked once.
//
//   CudnnDescriptor tensor(library, cudnn::Kind::kTensor);
//   tensor.SetInt(cudnn::Attribute::kTensorId, 1);
//   ...
//   tensor.Finalize();
//   if (tensor.error() != cudnn::kSuccess) ...
//
// Used by one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "models/gpu/cudnn_library.h"

namespace millrace::models {

class CudnnDescriptor {
 public:
  CudnnDescriptor() = default;
  CudnnDescriptor(std::shared_ptr<const CudnnLibrary> library,
                  cudnn::Kind kind);
  CudnnDescriptor(CudnnDescriptor&& other) noexcept {
    *this = std::move(other);
  }
  CudnnDescriptor& operator=(CudnnDescriptor&& other) noexcept;
  ~CudnnDescriptor();

  void SetInts(cudnn::Attribute attribute, std::span<const int64_t> values) {
    Set(attribute, cudnn::Type::kInt64, values);
  }
  void SetInt(cudnn::Attribute attribute, int64_t value) {
    SetInts(attribute, {&value, 1});
  }
  void SetFloat(cudnn::Attribute attribute, float value) {
    Set<float>(attribute, cudnn::Type::kFloat, {&value, 1});
  }
  void SetBool(cudnn::Attribute attribute, bool value) {
    Set<bool>(attribute, cudnn::Type::kBoolean, {&value, 1});
  }
  // Of an enumeration, which cuDNN has as int.
  template <typename Enum>
  void SetEnum(cudnn::Attribute attribute, cudnn::Type type, Enum value) {
    const int number = static_cast<int>(value);
    Set<int>(attribute, type, {&number, 1});
  }
  void SetDescriptors(cudnn::Attribute attribute,
                      std::span<const cudnn::Descriptor> values) {
    Set(attribute, cudnn::Type::kDescriptor, values);
  }
  void SetDescriptor(cudnn::Attribute attribute, const CudnnDescriptor& value);
  void SetHandle(cudnn::Attribute attribute, cudnn::Handle value) {
    Set<cudnn::Handle>(attribute, cudnn::Type::kHandle, {&value, 1});
  }
  void SetPointers(cudnn::Attribute attribute, std::span<void* const> values) {
    Set(attribute, cudnn::Type::kPointer, values);
  }
  void Finalize();
  // Fails as the other one did, if it did.
  void TakeError(const CudnnDescriptor& other) {
    if (error_ == cudnn::kSuccess) error_ = other.error_;
  }

  // Of what is finalized, or what another descriptor filled. 0 where it fails.
  int64_t GetInt(cudnn::Attribute attribute);
  // Of enumerations; `most` of them at most.
  std::vector<int> GetEnums(cudnn::Attribute attribute, cudnn::Type type,
                            int64_t most);
  // Descriptors of another kind, `most` of them at most.
  std::vector<CudnnDescriptor> GetDescriptors(cudnn::Attribute attribute,
                                              cudnn::Kind kind, int64_t most);

  int error() const { return error_; }
  cudnn::Descriptor get() const { return descriptor_; }

 private:
  template <typename T>
  void Set(cudnn::Attribute attribute, cudnn::Type type,
           std::span<const T> values) {
    SetValues(attribute, type, static_cast<int64_t>(values.size()),
              values.data());
  }
  void SetValues(cudnn::Attribute attribute, cudnn::Type type, int64_t count,
                 const void* values);

  std::shared_ptr<const CudnnLibrary> library_;
  cudnn::Descriptor descriptor_ = nullptr;
  int error_ = cudnn::kSuccess;
};

}  // namespace millrace::models
