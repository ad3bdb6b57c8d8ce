// libpng leaves its functions by longjmp: what stands between setjmp and the
// jump has no destructors.
#include <png.h>

#include <csetjmp>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "models/image/decode_formats.h"
#include "models/image/exif.h"

namespace millrace::models {
namespace {

constexpr png_uint_32 kMaxSide = 1 << 24;
// Of texts, profiles and the like: each is unpacked to memory.
constexpr png_alloc_size_t kMaxChunkBytes = 1 << 20;
constexpr png_uint_32 kMaxKeptChunks = 8;

class PngReader {
 public:
  explicit PngReader(std::span<const uint8_t> bytes) : bytes_(bytes) {
    png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, this, OnError,
                                  [](png_structp, png_const_charp) {});
    if (png_ != nullptr) info_ = png_create_info_struct(png_);
  }
  PngReader(const PngReader&) = delete;
  PngReader& operator=(const PngReader&) = delete;
  ~PngReader() { png_destroy_read_struct(&png_, &info_, nullptr); }

  bool ok() const { return info_ != nullptr; }
  const char* error() const { return error_; }
  png_uint_32 width() const { return png_get_image_width(png_, info_); }
  png_uint_32 height() const { return png_get_image_height(png_, info_); }

  // Up to the pixels.
  bool ReadHead() {
    if (setjmp(png_jmpbuf(png_)) != 0) return false;  // NOLINT
    png_set_read_fn(png_, this, OnRead);
    png_set_user_limits(png_, kMaxSide, kMaxSide);
    png_set_chunk_malloc_max(png_, kMaxChunkBytes);
    png_set_chunk_cache_max(png_, kMaxKeptChunks);
    png_read_info(png_, info_);
    return true;
  }

  // RGB in 8 bits; `rows` has a pointer for each row.
  bool ReadRows(png_bytepp rows) {
    if (setjmp(png_jmpbuf(png_)) != 0) return false;  // NOLINT
    const png_byte type = png_get_color_type(png_, info_);
    if (type == PNG_COLOR_TYPE_PALETTE) png_set_palette_to_rgb(png_);
    if ((type & PNG_COLOR_MASK_COLOR) == 0) {
      png_set_expand_gray_1_2_4_to_8(png_);
      png_set_gray_to_rgb(png_);
    }
    png_set_strip_16(png_);  // the high byte, as PIL takes it
    png_set_strip_alpha(png_);
    png_set_interlace_handling(png_);
    png_read_update_info(png_, info_);
    if (png_get_rowbytes(png_, info_) !=
        size_t{width()} * RgbImage::kChannels) {
      png_error(png_, "rows have an unexpected size");
    }
    png_read_image(png_, rows);
    png_read_end(png_, info_);
    return true;
  }

  int Orientation() const {
    png_bytep exif = nullptr;
    png_uint_32 num_bytes = 0;
    if (png_get_eXIf_1(png_, info_, &num_bytes, &exif) == 0) return 1;
    return ExifOrientation({exif, num_bytes});
  }

 private:
  static void OnError(png_structp png, png_const_charp why) {
    auto* self = static_cast<PngReader*>(png_get_error_ptr(png));
    std::strncpy(self->error_, why, sizeof(self->error_) - 1);
    png_longjmp(png, 1);
  }
  static void OnRead(png_structp png, png_bytep to, size_t num_bytes) {
    auto* self = static_cast<PngReader*>(png_get_io_ptr(png));
    if (num_bytes > self->bytes_.size()) png_error(png, "it ends early");
    std::memcpy(to, self->bytes_.data(), num_bytes);
    self->bytes_ = self->bytes_.subspan(num_bytes);
  }

  std::span<const uint8_t> bytes_;  // not yet read
  char error_[128] = "";
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
};

}  // namespace

StatusOr<RgbImage> DecodePng(std::span<const uint8_t> bytes,
                             const DecodeOptions& options) {
  PngReader reader(bytes);
  if (!reader.ok()) return ResourceExhausted("no memory for a PNG");
  const auto bad = [&] {
    return InvalidArgument(std::string("the PNG cannot be read: ") +
                           reader.error());
  };
  if (!reader.ReadHead()) return bad();
  ASSIGN_OR_RETURN(RgbImage image,
                   MakeImage("the PNG", reader.width(), reader.height(),
                             options.max_pixels));
  std::vector<png_bytep> rows;
  for (int32_t y = 0; y < image.height; ++y) rows.push_back(image.row(y));
  if (!reader.ReadRows(rows.data())) return bad();
  return Oriented(std::move(image), reader.Orientation());
}

}  // namespace millrace::models
