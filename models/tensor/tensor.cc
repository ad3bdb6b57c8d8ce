#include "models/tensor/tensor.h"

#include <sys/mman.h>

#include <atomic>
#include <mutex>
#include <new>

#include "models/tensor/strings.h"

namespace millrace::models {
namespace {

constexpr std::align_val_t kAlignment{64};
// A copy of so many bytes that lives for a moment gets pages of its own: in the
// heap it would leave a hole that lasting small things keep open.
constexpr int64_t kOwnPages = 128 << 10;

}  // namespace

// The one copy of all handles to the same late bytes.
class Tensor::LateCopy {
 public:
  explicit LateCopy(Change change = nullptr) : change_(std::move(change)) {}

  const Change& change() const { return change_; }
  const std::byte* Get(const Tensor& of) {
    std::call_once(once_, [&] {
      copy_ = of.Copy();
      if (of.source_ != nullptr) of.DropPages();
      // Whoever sees it made sees the bytes.
      made_.store(true, std::memory_order_release);
    });
    return copy_.bytes_;
  }
  bool made() const { return made_.load(std::memory_order_acquire); }

 private:
  const Change change_;  // may be empty
  std::once_flag once_;
  std::atomic<bool> made_ = false;
  Tensor copy_;
};

Tensor Tensor::Make(DType dtype, const Shape& shape) {
  Tensor tensor = Allocated(dtype, shape);
  std::memset(tensor.bytes_, 0, static_cast<size_t>(tensor.num_bytes()));
  return tensor;
}

Tensor Tensor::Allocated(DType dtype, const Shape& shape) {
  Tensor tensor;
  tensor.dtype_ = dtype;
  tensor.shape_ = shape;
  const auto bytes = static_cast<size_t>(tensor.num_bytes());
  auto* data = static_cast<std::byte*>(
      ::operator new(bytes > 0 ? bytes : 1, kAlignment));
  tensor.bytes_ = data;
  tensor.owner_ = std::shared_ptr<const void>(data, [](const void* p) {
    ::operator delete(const_cast<void*>(p), kAlignment);
  });
  return tensor;
}

Tensor Tensor::Mapped(DType dtype, const Shape& shape) {
  const auto bytes =
      static_cast<size_t>(shape.num_elements() * DTypeBytes(dtype));
  void* pages = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) return Allocated(dtype, shape);
  return Borrow(dtype, shape, static_cast<std::byte*>(pages),
                std::shared_ptr<const void>(pages, [bytes](const void* p) {
                  munmap(const_cast<void*>(p), bytes);
                }));
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

Tensor Tensor::Late(DType dtype, const Shape& shape, const std::byte* bytes,
                    std::shared_ptr<const void> keep,
                    const ByteSource* source) {
  Tensor tensor = Borrow(dtype, shape, bytes, std::move(keep), source);
  tensor.late_ = std::make_shared<LateCopy>();
  return tensor;
}

Tensor Tensor::Derived(const Tensor& of, Change change) {
  Tensor tensor =
      Borrow(of.dtype_, of.shape_, of.bytes_, of.owner_, of.source_);
  if (of.late_ != nullptr && of.late_->change() != nullptr) {
    change = [first = of.late_->change(),
              then = std::move(change)](std::byte* copy) {
      first(copy);
      then(copy);
    };
  }
  tensor.late_ = std::make_shared<LateCopy>(std::move(change));
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
  if (dtype_ == kString) return MakeStrings(shape_, StringsIn(*this));
  return CopyInto(Allocated(dtype_, shape_));
}

Tensor Tensor::CopyInto(Tensor copy) const {
  if (num_bytes() > 0) {
    std::memcpy(copy.bytes_, bytes_, static_cast<size_t>(num_bytes()));
    if (late_ != nullptr && late_->change() != nullptr) {
      late_->change()(copy.bytes_);
    }
  }
  return copy;
}

Tensor Tensor::Share() const { return Reshaped(shape_); }

Tensor Tensor::Aligned() const {
  if (!is_late()) return Share();
  Tensor copy = CopyInto(num_bytes() < kOwnPages ? Allocated(dtype_, shape_)
                                                 : Mapped(dtype_, shape_));
  DropPages();
  return copy;
}

bool Tensor::is_late() const { return late_ != nullptr && !late_->made(); }

const std::byte* Tensor::LateBytes() const { return late_->Get(*this); }

void Tensor::DropPages() const {
  if (source_ == nullptr) return;
  source_->DropPages({bytes_, static_cast<size_t>(num_bytes())});
}

Tensor Tensor::Reshaped(const Shape& shape) const {
  CHECK(shape.num_elements() == num_elements(),
        "a reshape keeps the number of elements");
  Tensor tensor = Borrow(dtype_, shape, bytes_, owner_, source_);
  tensor.late_ = late_;
  return tensor;
}

std::string TypeText(DType dtype, const Shape& shape) {
  return std::string(DTypeName(dtype)) + " " + shape.ToString();
}

}  // namespace millrace::models
