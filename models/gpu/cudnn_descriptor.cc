#include "models/gpu/cudnn_descriptor.h"

#include <algorithm>

namespace millrace::models {

using cudnn::Attribute;
using cudnn::Type;

CudnnDescriptor::CudnnDescriptor(std::shared_ptr<const CudnnLibrary> library,
                                 cudnn::Kind kind)
    : library_(std::move(library)) {
  error_ = library_->create_descriptor(kind, &descriptor_);
  if (error_ != cudnn::kSuccess) descriptor_ = nullptr;
}

CudnnDescriptor& CudnnDescriptor::operator=(CudnnDescriptor&& other) noexcept {
  std::swap(library_, other.library_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(error_, other.error_);
  return *this;
}

CudnnDescriptor::~CudnnDescriptor() {
  if (descriptor_ != nullptr) library_->destroy_descriptor(descriptor_);
}

void CudnnDescriptor::SetValues(Attribute attribute, Type type, int64_t count,
                                const void* values) {
  if (error_ != cudnn::kSuccess) return;
  error_ = library_->set_attribute(descriptor_, attribute, type, count, values);
}

void CudnnDescriptor::SetDescriptor(Attribute attribute,
                                    const CudnnDescriptor& value) {
  TakeError(value);
  const cudnn::Descriptor one = value.descriptor_;
  SetDescriptors(attribute, {&one, 1});
}

void CudnnDescriptor::Finalize() {
  if (error_ == cudnn::kSuccess) error_ = library_->finalize(descriptor_);
}

int64_t CudnnDescriptor::GetInt(Attribute attribute) {
  int64_t value = 0;
  int64_t count = 0;
  if (error_ != cudnn::kSuccess) return 0;
  error_ = library_->get_attribute(descriptor_, attribute, Type::kInt64, 1,
                                   &count, &value);
  return error_ == cudnn::kSuccess ? value : 0;
}

std::vector<int> CudnnDescriptor::GetEnums(Attribute attribute, Type type,
                                           int64_t most) {
  std::vector<int> values(static_cast<size_t>(most));
  int64_t count = 0;
  if (error_ == cudnn::kSuccess) {
    error_ = library_->get_attribute(descriptor_, attribute, type, most, &count,
                                     values.data());
  }
  values.resize(error_ == cudnn::kSuccess
                    ? static_cast<size_t>(std::min(count, most))
                    : 0);
  return values;
}

std::vector<CudnnDescriptor> CudnnDescriptor::GetDescriptors(
    Attribute attribute, cudnn::Kind kind, int64_t most) {
  std::vector<CudnnDescriptor> found;
  std::vector<cudnn::Descriptor> places;
  for (int64_t i = 0; i < most && error_ == cudnn::kSuccess; ++i) {
    places.push_back(found.emplace_back(library_, kind).get());
    error_ = found.back().error_;
  }
  int64_t count = 0;
  if (error_ == cudnn::kSuccess) {
    error_ = library_->get_attribute(descriptor_, attribute, Type::kDescriptor,
                                     most, &count, places.data());
  }
  found.resize(error_ == cudnn::kSuccess
                   ? static_cast<size_t>(std::min(count, most))
                   : 0);
  return found;
}

}  // namespace millrace::models
