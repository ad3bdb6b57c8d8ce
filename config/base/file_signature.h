// Formats of files, told apart by bytes at a fixed place.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace millrace {

struct FileSignature {
  size_t at;               // of the first byte
  std::string_view bytes;  // what stands there
  std::string_view name;   // for people, with an article: "a GIF"
};

// The name of the first that fits, or nothing.
inline std::string_view FormatName(std::span<const FileSignature> formats,
                                   std::string_view file) {
  for (const FileSignature& format : formats) {
    if (file.size() > format.at &&
        file.substr(format.at).starts_with(format.bytes)) {
      return format.name;
    }
  }
  return {};
}

}  // namespace millrace
