// Dense tensors in row-major order, as graphs and their callers exchange them.
//
//   Tensor x = Tensor::Make(DType::kF32, {2, 3});
//   std::fill_n(x.data<float>(), 6, 1.0f);
//   TensorView view = x.view();      // borrowed, read only
//
// A Tensor is move-only; Share() gives another handle to bytes that nobody
// writes any more (weights), Copy() gives bytes of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "models/tensor/dtype.h"
#include "models/tensor/shape.h"

namespace millrace::models {

// What is read, borrowed for the length of a call. Data are aligned to the
// element at least.
struct TensorView {
  DType dtype = DType::kF32;
  Shape shape;
  const std::byte* bytes = nullptr;

  template <typename T>
  const T* data() const {
    return reinterpret_cast<const T*>(bytes);
  }
  int64_t num_elements() const { return shape.num_elements(); }
  int64_t num_bytes() const { return num_elements() * DTypeBytes(dtype); }
};

// Where bytes came from and can be read again, so that their memory may go
// meanwhile. Thread-safe.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  virtual void DropPages(std::span<const std::byte> bytes) const = 0;
};

class Tensor {
 public:
  Tensor() = default;
  // Zeroed, aligned to 64 bytes. Memory that cannot be had ends the process:
  // callers bound what a stranger may ask for.
  static Tensor Make(DType dtype, const Shape& shape);
  // Bytes of another owner, which `keep` holds alive; never written. `source`,
  // which may be null, lives as long.
  static Tensor Borrow(DType dtype, const Shape& shape, const std::byte* bytes,
                       std::shared_ptr<const void> keep,
                       const ByteSource* source = nullptr);
  template <typename T>
  static Tensor From(DType dtype, const Shape& shape,
                     std::span<const T> values) {
    Tensor tensor = Make(dtype, shape);
    if (!values.empty()) {
      std::memcpy(tensor.bytes_, values.data(), values.size_bytes());
    }
    return tensor;
  }
  // The same of bytes that are not aligned: whoever asks for them first, from
  // any thread, makes a copy that stays. Copy and Aligned do not ask.
  static Tensor Late(DType dtype, const Shape& shape, const std::byte* bytes,
                     std::shared_ptr<const void> keep,
                     const ByteSource* source = nullptr);
  // What `change` makes of a copy of another tensor's bytes, which stay where
  // they are. Late as well: every copy that goes is made anew. `change` may be
  // called from any thread.
  using Change = std::function<void(std::byte* copy)>;
  static Tensor Derived(const Tensor& of, Change change);
  static Tensor Int64s(std::span<const int64_t> values);  // of rank 1
  static Tensor Scalar(int64_t value);                    // INT64, of rank 0
  static Tensor Scalar(float value);                      // FP32, of rank 0

  Tensor(Tensor&&) = default;
  Tensor& operator=(Tensor&&) = default;

  Tensor Copy() const;
  Tensor Share() const;
  // A handle whose bytes can be read, for a moment: a copy of late ones, which
  // goes with the handle.
  Tensor Aligned() const;
  // Whether asking for the bytes would make a copy of them.
  bool is_late() const;
  // Gives memory back that can be filled again from a file; the tensor stays
  // what it is.
  void DropPages() const;
  // Another shape of the same number of elements, the same bytes.
  Tensor Reshaped(const Shape& shape) const;

  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  int64_t num_elements() const { return shape_.num_elements(); }
  int64_t num_bytes() const { return num_elements() * DTypeBytes(dtype_); }

  template <typename T>
  T* data() {
    return reinterpret_cast<T*>(bytes());
  }
  template <typename T>
  const T* data() const {
    return reinterpret_cast<const T*>(bytes());
  }
  std::byte* bytes() {
    return const_cast<std::byte*>(std::as_const(*this).bytes());
  }
  const std::byte* bytes() const {
    return late_ == nullptr ? bytes_ : LateBytes();
  }
  TensorView view() const { return {dtype_, shape_, bytes()}; }

 private:
  class LateCopy;
  static Tensor Allocated(DType dtype, const Shape& shape);  // not zeroed
  // In pages of its own, which go with it; at least one byte.
  static Tensor Mapped(DType dtype, const Shape& shape);
  Tensor CopyInto(Tensor copy) const;
  const std::byte* LateBytes() const;

  DType dtype_ = DType::kF32;
  Shape shape_;
  std::byte* bytes_ = nullptr;  // of a late one: those that are not aligned
  // Several handles may read the same weights: see Share.
  std::shared_ptr<const void> owner_;
  const ByteSource* source_ = nullptr;  // part of the owner
  std::shared_ptr<LateCopy> late_;      // null: the bytes can be read
};

// "FP32 [2, 3]"
std::string TypeText(DType dtype, const Shape& shape);

}  // namespace millrace::models
