#include "config/base/size_text.h"

#include <cstdio>

namespace millrace {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int64_t kGiB = int64_t{1} << 30;

}  // namespace

std::string SizeText(int64_t bytes) {
  char text[40];
  if (bytes >= kGiB) {
    std::snprintf(text, sizeof text, "%.2f GiB",
                  static_cast<double>(bytes) / static_cast<double>(kGiB));
  } else if (bytes >= kMiB) {
    std::snprintf(text, sizeof text, "%.1f MiB",
                  static_cast<double>(bytes) / static_cast<double>(kMiB));
  } else {
    return std::to_string(bytes) + " bytes";
  }
  return text;
}

std::string SizeSetting(int64_t bytes) {
  if (bytes < kMiB) return std::to_string(bytes);
  return std::to_string((bytes + kMiB - 1) / kMiB) + "MiB";
}

}  // namespace millrace
