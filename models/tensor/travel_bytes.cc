#include "models/tensor/travel_bytes.h"

#include <bit>
#include <cstring>
#include <vector>

#include "models/tensor/strings.h"

namespace millrace::models {
namespace {

static_assert(std::endian::native == std::endian::little,
              "raw tensors are copied as they are");

constexpr size_t kLengthBytes = 4;

uint32_t LengthAt(std::string_view bytes) {
  uint32_t length = 0;
  std::memcpy(&length, bytes.data(), sizeof length);
  return length;
}

}  // namespace

TravelBytes::TravelBytes(const Tensor& tensor) {
  if (tensor.dtype() != kString) {
    view_ = {reinterpret_cast<const char*>(tensor.bytes()),
             static_cast<size_t>(tensor.num_bytes())};
    return;
  }
  packed_.reserve(static_cast<size_t>(NumCharacters(tensor)) +
                  kLengthBytes * static_cast<size_t>(tensor.num_elements()));
  for (const std::string_view text : StringsIn(tensor)) {
    const auto length = static_cast<uint32_t>(text.size());
    packed_.append(reinterpret_cast<const char*>(&length), kLengthBytes);
    packed_ += text;
  }
  view_ = packed_;
}

StatusOr<Tensor> StringsFromBytes(const Shape& shape, std::string_view bytes) {
  const int64_t wanted = shape.num_elements();
  // Each takes four bytes at least, so the views are bounded by the bytes.
  if (wanted > static_cast<int64_t>(bytes.size() / kLengthBytes)) {
    return InvalidArgument("has " + std::to_string(bytes.size()) +
                           " bytes but " + TypeText(kString, shape) +
                           " takes at least " + std::to_string(wanted * 4));
  }
  std::vector<std::string_view> texts;
  texts.reserve(static_cast<size_t>(wanted));
  for (int64_t i = 0; i < wanted; ++i) {
    if (bytes.size() < kLengthBytes ||
        LengthAt(bytes) > bytes.size() - kLengthBytes) {
      return InvalidArgument("ends within element " + std::to_string(i) +
                             "; each element of BYTES is its length as four "
                             "bytes, little-endian, then its bytes");
    }
    const uint32_t length = LengthAt(bytes);
    texts.push_back(bytes.substr(kLengthBytes, length));
    bytes.remove_prefix(kLengthBytes + length);
  }
  if (!bytes.empty()) {
    return InvalidArgument("has " + std::to_string(bytes.size()) +
                           " bytes behind the " + std::to_string(wanted) +
                           " elements of its shape");
  }
  return MakeStrings(shape, texts);
}

}  // namespace millrace::models
