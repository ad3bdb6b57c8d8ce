// Markers are walked here for the size, the orientation and whether CMYK is
// inverted, all before the library is asked for pixels. The library's own
// warnings are kept apart: a file that ends early is refused, other small
// damage is read as PIL does.
#include <turbojpeg.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

#include "models/image/decode_formats.h"
#include "models/image/exif.h"

namespace millrace::models {
namespace {

// A progressive file passes over all pixels once a scan; normal ones have 10.
constexpr int64_t kMaxScannedPixels = int64_t{1} << 30;

struct Head {
  int64_t width = 0;
  int64_t height = 0;
  int components = 0;
  int orientation = 1;
  size_t end = 0;  // where the first scan begins
};

Status Bad(const std::string& why) {
  return InvalidArgument("the JPEG " + why);
}

bool IsFrameHead(uint8_t marker) {
  return marker >= 0xc0 && marker <= 0xcf && marker != 0xc4 && marker != 0xc8 &&
         marker != 0xcc;
}

// ITU-T T.81, B.1.1: marker segments up to the first scan.
StatusOr<Head> ReadHead(std::span<const uint8_t> bytes) {
  Head head;
  bool has_exif = false;
  size_t at = 2;
  while (true) {
    while (at < bytes.size() && bytes[at] != 0xff) ++at;
    while (at < bytes.size() && bytes[at] == 0xff) ++at;
    if (at + 3 > bytes.size()) return Bad("ends before its first scan");
    const uint8_t marker = bytes[at++];
    if (marker == 0x00 || marker == 0x01 || (marker >= 0xd0 && marker <= 0xd8))
      continue;
    if (marker == 0xd9) return Bad("has no scan");
    const size_t length = size_t{bytes[at]} << 8 | bytes[at + 1];
    if (length < 2 || length > bytes.size() - at) {
      return Bad("ends before its first scan");
    }
    const auto segment = bytes.subspan(at + 2, length - 2);
    at += length;
    const std::string_view text(reinterpret_cast<const char*>(segment.data()),
                                segment.size());
    if (marker == 0xda) {
      head.end = at;
      break;
    }
    if (IsFrameHead(marker) && segment.size() >= 6 && head.components == 0) {
      head.height = int64_t{segment[1]} << 8 | segment[2];
      head.width = int64_t{segment[3]} << 8 | segment[4];
      head.components = segment[5];
    } else if (marker == 0xe1 && !has_exif &&
               text.starts_with(std::string_view("Exif\0\0", 6))) {
      has_exif = true;
      head.orientation = ExifOrientation(segment);
    }
  }
  if (head.components == 0) return Bad("has no frame header");
  return head;
}

// Marker by marker up to the end of the picture: behind it phones put a film,
// whose bytes look like scans.
int64_t NumScans(std::span<const uint8_t> bytes, size_t at) {
  constexpr uint8_t kEnd = 0xd9, kScan = 0xda, kLastAlone = 0x01;
  int64_t scans = 1;
  while (at + 1 < bytes.size()) {
    const uint8_t marker = bytes[at + 1];
    if (bytes[at] != 0xff || marker == 0xff) {
      ++at;
      continue;
    }
    if (marker == kEnd) break;
    if (marker <= kLastAlone || (marker >= 0xd0 && marker < kEnd)) {
      at += 2;  // a byte of the data, or a restart
      continue;
    }
    scans += marker == kScan;
    if (at + 4 > bytes.size()) break;
    at += 2 + (size_t{bytes[at + 2]} << 8 | bytes[at + 3]);
  }
  return scans;
}

// As PIL's conversion from CMYK to RGB rounds. The inks are inverted, as Adobe
// writes them; PIL takes that for granted without its marker, too.
void RgbFromCmyk(const uint8_t* cmyk, int64_t num_pixels, uint8_t* rgb) {
  for (int64_t i = 0; i < num_pixels; ++i) {
    const int light = 255 - (cmyk[i * 4 + 3] ^ 255);
    for (int c = 0; c < 3; ++c) {
      const int product = (cmyk[i * 4 + c] ^ 255) * light + 128;
      const int ink = (product + (product >> 8)) >> 8;  // over 255, rounded
      rgb[i * 3 + c] = static_cast<uint8_t>(std::clamp(light - ink, 0, 255));
    }
  }
}

int64_t Scaled(int64_t side, int divisor) {
  return (side + divisor - 1) / divisor;
}

struct Destroy {
  void operator()(void* handle) const { tjDestroy(handle); }
};

}  // namespace

StatusOr<RgbImage> DecodeJpeg(std::span<const uint8_t> bytes,
                              const DecodeOptions& options) {
  ASSIGN_OR_RETURN(const Head head, ReadHead(bytes));
  const int64_t scans = NumScans(bytes, head.end);
  if (scans > 1 && head.width * head.height > kMaxScannedPixels / scans) {
    return Bad("has " + std::to_string(scans) + " scans over " +
               std::to_string(head.width) + " x " +
               std::to_string(head.height) +
               " pixels, which is too much work; send it with fewer");
  }
  int divisor = 1;
  while (options.scale_down_to > 0 && divisor < 8 &&
         Scaled(std::min(head.width, head.height), divisor * 2) >=
             options.scale_down_to) {
    divisor *= 2;
  }
  // The size that is decoded from counts: it is work, and memory where the
  // file is progressive.
  if (head.width * head.height > options.max_pixels) {
    return MakeImage("the JPEG", head.width, head.height, options.max_pixels)
        .status();
  }
  ASSIGN_OR_RETURN(RgbImage image,
                   MakeImage("the JPEG", Scaled(head.width, divisor),
                             Scaled(head.height, divisor), options.max_pixels));
  const std::unique_ptr<void, Destroy> handle(tjInitDecompress());
  if (handle == nullptr) return ResourceExhausted("no memory for a JPEG");
  const bool is_cmyk = head.components == 4;
  std::vector<uint8_t> inks;
  if (is_cmyk) inks.resize(image.pixels.size() / 3 * 4);
  // Never writes beyond width x height, whatever the file says elsewhere.
  const int result = tjDecompress2(
      handle.get(), bytes.data(), bytes.size(),
      is_cmyk ? inks.data() : image.pixels.data(), image.width, 0, image.height,
      is_cmyk ? TJPF_CMYK : TJPF_RGB, TJFLAG_ACCURATEDCT | TJFLAG_LIMITSCANS);
  if (result != 0) {
    const std::string why = tjGetErrorStr2(handle.get());
    if (tjGetErrorCode(handle.get()) == TJERR_FATAL ||
        why.find("remature end") != std::string::npos) {
      return Bad("cannot be read: " + why);
    }
  }
  if (is_cmyk) {
    RgbFromCmyk(inks.data(), int64_t{image.width} * image.height,
                image.pixels.data());
  }
  return Oriented(std::move(image), head.orientation);
}

}  // namespace millrace::models
