// An empty tensor's other dimensions may be anything, and what a graph makes of
// them (a sum over the empty one) has elements, so they are bounded like those
// of a tensor with elements.
#include "server/tensor_bytes.h"

#include <algorithm>
#include <cstring>

#include "models/tensor/strings.h"
#include "models/tensor/travel_bytes.h"

namespace millrace::server {
namespace {

// Far above any empty tensor that means something.
constexpr int64_t kMostElementsOfEmpty = 1 << 20;

}  // namespace

Status BadInput(std::string_view name, std::string_view what) {
  return InvalidArgument("input '" + std::string(name) + "' " +
                         std::string(what))
      .At(name);
}

StatusOr<TensorHead> ReadTensorHead(std::string_view name,
                                    std::string_view datatype,
                                    std::span<const int64_t> dims) {
  const auto dtype = models::DTypeFromName(datatype);
  if (!dtype) {
    return BadInput(name, "has datatype '" + std::string(datatype) +
                              "' but a graph takes BOOL, UINT8 to UINT64, INT8 "
                              "to INT64, FP16, BF16, FP32, FP64 or BYTES; the "
                              "model's metadata say which");
  }
  StatusOr<models::Shape> shape = models::Shape::Checked(dims);
  if (!shape.ok()) {
    return BadInput(
        name, "has no valid shape: " + std::string(shape.status().message()));
  }
  if (shape->num_elements() == 0) {
    int64_t others = 1;
    for (const int64_t size : *shape) {
      others *= std::max<int64_t>(size, 1);
      if (others <= kMostElementsOfEmpty) continue;
      return BadInput(name,
                      "is empty with shape " + shape->ToString() +
                          "; the other dimensions of an empty tensor may have "
                          "a product of " +
                          std::to_string(kMostElementsOfEmpty));
    }
  }
  return TensorHead{std::string(name), *dtype, *shape};
}

StatusOr<models::Tensor> TensorFromBytes(const TensorHead& head,
                                         std::string_view bytes) {
  if (head.dtype == models::kString) {
    StatusOr<models::Tensor> strings =
        models::StringsFromBytes(head.shape, bytes);
    if (strings.ok()) return strings;
    return BadInput(head.name, strings.status().message());
  }
  const int64_t wanted =
      head.shape.num_elements() * models::DTypeBytes(head.dtype);
  if (static_cast<int64_t>(bytes.size()) != wanted) {
    return BadInput(head.name, "has " + std::to_string(bytes.size()) +
                                   " bytes but " +
                                   TypeText(head.dtype, head.shape) +
                                   " takes " + std::to_string(wanted));
  }
  models::Tensor tensor = models::Tensor::Make(head.dtype, head.shape);
  if (!bytes.empty()) std::memcpy(tensor.bytes(), bytes.data(), bytes.size());
  if (head.dtype == models::DType::kBool) {
    for (size_t i = 0; i < bytes.size(); ++i) {
      const auto value = static_cast<uint8_t>(bytes[i]);
      if (value <= 1) continue;
      return BadInput(head.name, "is BOOL but byte " + std::to_string(i) +
                                     " is " + std::to_string(value) +
                                     "; send 0 or 1");
    }
  }
  return tensor;
}

}  // namespace millrace::server
