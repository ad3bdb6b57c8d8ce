#include "models/tensor/tensor.h"

#include <new>

namespace millrace::models {
namespace {

constexpr std::align_val_t kAlignment{64};

}  // namespace

Tensor Tensor::Make(DType dtype, const Shape& shape) {
  Tensor tensor;
  tensor.dtype_ = dtype;
  tensor.shape_ = shape;
  const auto bytes = static_cast<size_t>(tensor.num_bytes());
  auto* data = static_cast<std::byte*>(
      ::operator new(bytes > 0 ? bytes : 1, kAlignment));
  std::memset(data, 0, bytes);
  tensor.bytes_ = data;
  tensor.owner_ = std::shared_ptr<const void>(data, [](const void* p) {
    ::operator delete(const_cast<void*>(p), kAlignment);
  });
  return tensor;
}

Tensor Tensor::Borrow(DType dtype, const Shape& shape, const std::byte* bytes,
                      std::shared_ptr<const void> keep,
                      const ByteSource* source) {
  Tensor tensor;
  tensor.dtype_ = dtype;
  tensor.shape_ = shape;
  tensor.bytes_ = const_cast<std::byte*>(bytes);
  tensor.owner_ = std::move(keep);
  tensor.source_ = source;
  return tensor;
}

Tensor Tensor::Int64s(std::span<const int64_t> values) {
  return From(DType::kI64, {static_cast<int64_t>(values.size())}, values);
}

Tensor Tensor::Scalar(int64_t value) {
  return From<int64_t>(DType::kI64, {}, {&value, 1});
}

Tensor Tensor::Scalar(float value) {
  return From<float>(DType::kF32, {}, {&value, 1});
}

Tensor Tensor::Copy() const {
  Tensor copy = Make(dtype_, shape_);
  if (num_bytes() > 0) {
    std::memcpy(copy.bytes_, bytes_, static_cast<size_t>(num_bytes()));
  }
  return copy;
}

Tensor Tensor::Share() const {
  return Borrow(dtype_, shape_, bytes_, owner_, source_);
}

void Tensor::DropPages() const {
  if (source_ == nullptr) return;
  source_->DropPages({bytes_, static_cast<size_t>(num_bytes())});
}

Tensor Tensor::Reshaped(const Shape& shape) const {
  CHECK(shape.num_elements() == num_elements(),
        "a reshape keeps the number of elements");
  return Borrow(dtype_, shape, bytes_, owner_, source_);
}

std::string TypeText(DType dtype, const Shape& shape) {
  return std::string(DTypeName(dtype)) + " " + shape.ToString();
}

}  // namespace millrace::models
