// An empty tensor's other dimensions may be anything, and what a graph makes of
// them (a sum over the empty one) has elements, so they are bounded like those
// of a tensor with elements.
#include "server/tensor_bytes.h"
#include "models/tensor/strings.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

namespace millrace::server {
namespace {

static_assert(std::endian::native == std::endian::little,
              "raw tensors are copied as they are");

// Far above any empty tensor that means something.
constexpr int64_t kMostElementsOfEmpty = 1 << 20;

uint32_t LengthAt(std::string_view bytes) {
  uint32_t length = 0;
  std::memcpy(&length, bytes.data(), sizeof length);
  return length;
}

StatusOr<models::Tensor> StringsFromBytes(const TensorHead& head,
                                          std::string_view bytes) {
  const int64_t wanted = head.shape.num_elements();
  // Each takes four bytes at least, so the views are bounded by the request.
  if (wanted > static_cast<int64_t>(bytes.size() / 4)) {
    return BadInput(head.name,
                    "has " + std::to_string(bytes.size()) + " bytes but " +
                        TypeText(head.dtype, head.shape) + " takes at least " +
                        std::to_string(wanted * 4));
  }
  std::vector<std::string_view> texts;
  texts.reserve(static_cast<size_t>(wanted));
  for (int64_t i = 0; i < wanted; ++i) {
    if (bytes.size() < 4 || LengthAt(bytes) > bytes.size() - 4) {
      return BadInput(head.name,
                      "ends within element " + std::to_string(i) +
                          "; each element of BYTES is its length as four "
                          "bytes, little-endian, then its bytes");
    }
    const uint32_t length = LengthAt(bytes);
    texts.push_back(bytes.substr(4, length));
    bytes.remove_prefix(size_t{4} + length);
  }
  if (!bytes.empty()) {
    return BadInput(head.name, "has " + std::to_string(bytes.size()) +
                                   " bytes behind the " +
                                   std::to_string(wanted) +
                                   " elements of its shape");
  }
  return models::MakeStrings(head.shape, texts);
}

}  // namespace

void AppendPacked(std::string_view text, std::string& bytes) {
  const auto length = static_cast<uint32_t>(text.size());
  bytes.append(reinterpret_cast<const char*>(&length), sizeof length);
  bytes += text;
}

TravelBytes::TravelBytes(const models::Tensor& tensor) {
  if (tensor.dtype() != models::kString) {
    view_ = {reinterpret_cast<const char*>(tensor.bytes()),
             static_cast<size_t>(tensor.num_bytes())};
    return;
  }
  const auto* texts = tensor.data<std::string_view>();
  packed_.reserve(static_cast<size_t>(models::NumCharacters(tensor) +
                                      4 * tensor.num_elements()));
  for (int64_t i = 0; i < tensor.num_elements(); ++i) {
    AppendPacked(texts[i], packed_);
  }
  view_ = packed_;
}

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
    return StringsFromBytes(head, bytes);
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
