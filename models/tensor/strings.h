// Tensors of strings ("BYTES" of the KServe v2 protocol). Their type stands
// beside those of DType, which are numbers: a switch over DType needs no case
// for it, and whoever takes strings asks for them first.
//
// An element is a std::string_view: it moves like any other element, and
// another object keeps the characters. A tensor of MakeStrings() or Copy() has
// them; results of an operator that moves strings do not, until their run
// ends. num_bytes() counts the views alone.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "models/tensor/tensor.h"

namespace millrace::models {

inline constexpr DType kString{kNumDTypes};

// Keeps a copy of the characters.
Tensor MakeStrings(const Shape& shape,
                   std::span<const std::string_view> values);
inline std::span<const std::string_view> StringsIn(const Tensor& tensor) {
  return {tensor.data<std::string_view>(),
          static_cast<size_t>(tensor.num_elements())};
}
// Of all strings together; 0 for tensors of numbers.
int64_t NumCharacters(const Tensor& tensor);

}  // namespace millrace::models
