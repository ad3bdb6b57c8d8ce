#include "models/image/decode.h"

#include <array>
#include <cstdio>
#include <string>
#include <string_view>

#include "config/base/file_signature.h"
#include "models/image/decode_formats.h"

namespace millrace::models {
namespace {

// Formats that are not read.
constexpr FileSignature kForeign[] = {
    {0, "GIF8", "a GIF"},
    {0, "BM", "a BMP"},
    {0, std::string_view("II*\0", 4), "a TIFF"},
    {0, std::string_view("MM\0*", 4), "a TIFF"},
    {0, std::string_view("II+\0", 4), "a TIFF"},
    {0, std::string_view("MM\0+", 4), "a TIFF"},
    {0, std::string_view("\0\0\1\0", 4), "an ICO"},
    {4, "ftypavif", "an AVIF"},
    {4, "ftypavis", "an AVIF"},
    {4, "ftypheic", "a HEIC"},
    {4, "ftypheix", "a HEIC"},
    {4, "ftyphevc", "a HEIC"},
    {4, "ftypmif1", "a HEIF"},
    {4, "ftypmsf1", "a HEIF"},
    {4, "jP  ", "a JPEG 2000"},
    {0, "\xff\x4f\xff\x51", "a JPEG 2000"},
    {4, "JXL ", "a JPEG XL"},
    {0, "\xff\x0a", "a JPEG XL"},
    {0, "%PDF", "a PDF"},
    {0, "<svg", "an SVG"},
};

std::string FirstBytes(std::string_view bytes) {
  std::string text;
  for (const char c : bytes.substr(0, 8)) {
    std::array<char, 4> hex{};
    std::snprintf(hex.data(), hex.size(), "%02x", static_cast<uint8_t>(c));
    text.append(text.empty() ? "" : " ").append(hex.data());
  }
  return text;
}

}  // namespace

StatusOr<RgbImage> DecodeImage(std::span<const uint8_t> bytes,
                               const DecodeOptions& options) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()),
                              bytes.size());
  if (text.starts_with("\xff\xd8\xff")) return DecodeJpeg(bytes, options);
  if (text.starts_with("\x89PNG\r\n\x1a\n")) return DecodePng(bytes, options);
  if (text.starts_with("RIFF") && text.size() >= 12 &&
      text.substr(8, 4) == "WEBP") {
    return DecodeWebp(bytes, options);
  }
  if (text.empty()) {
    return InvalidArgument(
        "the picture has no bytes; send a JPEG, PNG or WebP");
  }
  if (const std::string_view name = FormatName(kForeign, text); !name.empty()) {
    return Unimplemented("the picture is " + std::string(name) +
                         ", which is not read; send a JPEG, PNG or WebP");
  }
  return InvalidArgument(
      "the picture is no JPEG, PNG or WebP; it begins with " +
      FirstBytes(text));
}

}  // namespace millrace::models
