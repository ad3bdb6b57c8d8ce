// The layer in a tensor's name.
#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace millrace::models {

struct LayerName {
  int32_t layer = 0;      // from 0
  std::string_view part;  // "attn_q.weight", a view into the name
};

// "blk.12.attn_q.weight" with the prefix "blk."; nothing where the name begins
// otherwise or the number is not written plainly ("012", "+1").
inline std::optional<LayerName> CutLayer(std::string_view name,
                                         std::string_view prefix) {
  if (!name.starts_with(prefix)) return {};
  name.remove_prefix(prefix.size());
  const size_t dot = name.find('.');
  if (dot == std::string_view::npos || dot == 0) return {};
  const std::string_view digits = name.substr(0, dot);
  int32_t layer = 0;
  const auto parsed =
      std::from_chars(digits.data(), digits.data() + digits.size(), layer);
  if (parsed.ec != std::errc() || layer < 0 ||
      std::to_string(layer) != digits) {
    return {};
  }
  return LayerName{layer, name.substr(dot + 1)};
}

}  // namespace millrace::models
