#include "models/tensor/strings.h"

#include <cstring>
#include <memory>
#include <new>

namespace millrace::models {

Tensor MakeStrings(const Shape& shape,
                   std::span<const std::string_view> values) {
  CHECK(shape.num_elements() == static_cast<int64_t>(values.size()),
        "one string for each element");
  size_t characters = 0;
  for (const std::string_view value : values) characters += value.size();
  // The views, then what they show.
  const size_t bytes = values.size_bytes() + characters;
  auto block = std::make_shared<Tensor>(
      Tensor::Make(DType::kU8, Shape{static_cast<int64_t>(bytes)}));
  std::byte* const data = block->bytes();
  auto* const views = reinterpret_cast<std::string_view*>(data);
  auto* next = reinterpret_cast<char*>(data + values.size_bytes());
  for (size_t i = 0; i < values.size(); ++i) {
    const size_t size = values[i].size();
    if (size > 0) std::memcpy(next, values[i].data(), size);
    new (views + i) std::string_view(next, size);
    next += size;
  }
  return Tensor::Borrow(kString, shape, data, std::move(block));
}

int64_t NumCharacters(const Tensor& tensor) {
  if (tensor.dtype() != kString) return 0;
  int64_t count = 0;
  for (const std::string_view value : StringsIn(tensor)) {
    count += static_cast<int64_t>(value.size());
  }
  return count;
}

}  // namespace millrace::models
