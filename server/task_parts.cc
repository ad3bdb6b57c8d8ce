#include "server/task_parts.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "server/tensor_bytes.h"

namespace millrace::server {
namespace {

constexpr size_t kMaxElements = 1 << 16;

}  // namespace

Status AddParts(const std::string& input, std::string_view packed,
                std::vector<handlers::TaskPart>& parts) {
  while (!packed.empty()) {
    uint32_t size = 0;
    for (size_t i = 0; i < 4 && packed.size() >= 4; ++i) {
      size |= static_cast<uint32_t>(static_cast<uint8_t>(packed[i])) << 8 * i;
    }
    if (packed.size() < 4 || size > packed.size() - 4) {
      return BadInput(input,
                      "has BYTES that end within an element; each is its "
                      "length as four bytes, little-endian, then its bytes");
    }
    if (parts.size() >= kMaxElements) {
      return BadInput(input, "has more than " + std::to_string(kMaxElements) +
                                 " elements; send them in several requests");
    }
    parts.push_back(
        {.name = input, .bytes = std::string(packed.substr(4, size))});
    packed.remove_prefix(size_t{4} + size);
  }
  return OkStatus();
}

bool IsTextItem(const nlohmann::ordered_json& item) {
  return item.is_object() && (item.contains("text") || item.contains("query"));
}

Status CheckElements(const std::string& input,
                     const std::vector<int64_t>& shape, size_t num_elements) {
  int64_t wanted = 1;
  for (const int64_t size : shape) {
    if (size < 0 || (size > 0 && wanted > INT32_MAX / size)) {
      return BadInput(input, "has a shape that no BYTES can have");
    }
    wanted *= size;
  }
  if (wanted == static_cast<int64_t>(num_elements)) return OkStatus();
  return BadInput(input, "has " + std::to_string(num_elements) +
                             " elements but its shape holds " +
                             std::to_string(wanted));
}

}  // namespace millrace::server
