#include "models/image/encode_png.h"

#include <png.h>

namespace millrace::models {

StatusOr<std::string> EncodeGrayPng(std::span<const uint8_t> pixels,
                                    int64_t height, int64_t width) {
  CHECK(static_cast<int64_t>(pixels.size()) == height * width,
        "the pixels are those of the picture");
  png_image image = {};
  image.version = PNG_IMAGE_VERSION;
  image.width = static_cast<png_uint_32>(width);
  image.height = static_cast<png_uint_32>(height);
  image.format = PNG_FORMAT_GRAY;
  png_alloc_size_t num_bytes = PNG_IMAGE_PNG_SIZE_MAX(image);
  std::string file(num_bytes, '\0');
  if (png_image_write_to_memory(&image, file.data(), &num_bytes, 0,
                                pixels.data(), 0, nullptr) == 0) {
    return Internal(std::string("the PNG cannot be written: ") +
                    static_cast<const char*>(image.message));
  }
  file.resize(num_bytes);
  return file;
}

}  // namespace millrace::models
