// Tensors as protocols carry them: bytes that are little-endian and row major;
// of strings, each element behind its length as four bytes, as the KServe v2
// protocol says of BYTES.
#pragma once

#include <string>
#include <string_view>

#include "config/base/status.h"
#include "models/tensor/tensor.h"

namespace millrace::models {

// Lives no longer than the tensor.
class TravelBytes {
 public:
  explicit TravelBytes(const Tensor& tensor);
  std::string_view view() const { return view_; }

  TravelBytes(const TravelBytes&) = delete;
  TravelBytes& operator=(const TravelBytes&) = delete;

 private:
  std::string packed_;  // of strings alone
  std::string_view view_;
};

// A copy of packed strings. INVALID_ARGUMENT when they are not as many as the
// shape has elements; the message is to follow the name of the tensor: "has 3
// bytes but …".
StatusOr<Tensor> StringsFromBytes(const Shape& shape, std::string_view bytes);

}  // namespace millrace::models
