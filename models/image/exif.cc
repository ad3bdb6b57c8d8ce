#include "models/image/exif.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace millrace::models {
namespace {

constexpr uint32_t kOrientationTag = 0x0112;

// Bytes of a whole number of this type; 0: it is none. The orientation is a
// SHORT; cameras that write another type are understood, as PIL does.
size_t BytesOf(uint32_t type) {
  constexpr uint32_t kShort = 3, kLong = 4, kSignedShort = 8, kSignedLong = 9;
  if (type == kShort || type == kSignedShort) return 2;
  return type == kLong || type == kSignedLong ? 4 : 0;
}

// Numbers of a TIFF block in its byte order; 0 beyond its end.
class TiffReader {
 public:
  TiffReader(std::span<const uint8_t> bytes, bool big_endian)
      : bytes_(bytes), big_endian_(big_endian) {}

  uint32_t Number(size_t at, size_t size) const {
    if (at > bytes_.size() || size > bytes_.size() - at) return 0;
    uint32_t value = 0;
    for (size_t i = 0; i < size; ++i) {
      const size_t place = big_endian_ ? i : size - 1 - i;
      value = value << 8 | bytes_[at + place];
    }
    return value;
  }

 private:
  const std::span<const uint8_t> bytes_;
  const bool big_endian_;
};

}  // namespace

int ExifOrientation(std::span<const uint8_t> block) {
  if (block.size() >= 6 && std::memcmp(block.data(), "Exif\0\0", 6) == 0) {
    block = block.subspan(6);
  }
  if (block.size() < 8) return 1;
  const bool big_endian = block[0] == 'M';
  if (block[0] != block[1] || (block[0] != 'M' && block[0] != 'I')) return 1;
  const TiffReader tiff(block, big_endian);
  if (tiff.Number(2, 2) != 42) return 1;
  const size_t directory = tiff.Number(4, 4);
  const size_t num_entries = tiff.Number(directory, 2);
  for (size_t i = 0; i < num_entries; ++i) {
    const size_t entry = directory + 2 + i * 12;
    if (entry + 12 > block.size()) return 1;
    if (tiff.Number(entry, 2) != kOrientationTag) continue;
    const uint32_t value =
        tiff.Number(entry + 8, BytesOf(tiff.Number(entry + 2, 2)));
    const bool is_sane = value >= 1 && value <= 8;
    return is_sane ? static_cast<int>(value) : 1;
  }
  return 1;
}

RgbImage Oriented(RgbImage image, int orientation) {
  if (orientation <= 1 || orientation > 8) return image;
  // 1 to 4 flip rows and columns; 5 to 8 do so behind a transposition.
  const bool transposed = orientation >= 5;
  const bool mirrored =  // columns of the result
      orientation == 2 || orientation == 3 || orientation == 6 ||
      orientation == 7;
  const bool upside_down =  // rows of the result
      orientation == 3 || orientation == 4 || orientation == 7 ||
      orientation == 8;
  RgbImage out;
  out.width = transposed ? image.height : image.width;
  out.height = transposed ? image.width : image.height;
  out.pixels.resize(image.pixels.size());
  for (int32_t y = 0; y < out.height; ++y) {
    uint8_t* to = out.row(y);
    const int32_t from_y = upside_down ? out.height - 1 - y : y;
    for (int32_t x = 0; x < out.width; ++x, to += RgbImage::kChannels) {
      const int32_t from_x = mirrored ? out.width - 1 - x : x;
      const uint8_t* from =
          transposed
              ? image.row(from_x) + int64_t{from_y} * RgbImage::kChannels
              : image.row(from_y) + int64_t{from_x} * RgbImage::kChannels;
      std::copy_n(from, RgbImage::kChannels, to);
    }
  }
  return out;
}

}  // namespace millrace::models
