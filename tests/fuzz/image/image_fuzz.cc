// Arbitrary bytes as a picture, then as a graph's input.
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "models/image/decode.h"
#include "models/image/preprocess.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace::models;
  constexpr int64_t kMaxPixels = 1 << 16;
  DecodeOptions decoding{.max_pixels = kMaxPixels};
  if (size > 0 && data[size - 1] % 2 == 1) decoding.scale_down_to = 8;
  const auto image = DecodeImage(std::span(data, size), decoding);
  if (!image.ok()) return 0;
  if (int64_t{image->width} * image->height > kMaxPixels) __builtin_trap();
  PreprocessOptions options;
  options.resize_shorter = 7;
  if (size % 2 == 0) options.center_crop = {5, 9};
  options.interpolation = static_cast<Interpolation>(size % 4);
  const auto output = OutputSize(*image, options, kMaxPixels);
  if (!output.ok()) return 0;
  std::vector<float> row(
      static_cast<size_t>(output->height * output->width * 3));
  WriteInput(*image, options, row.data());
  return 0;
}
