#include "models/image/preprocess.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>

namespace millrace::models {
namespace {

constexpr int kChannels = RgbImage::kChannels;

// The largest size within `frame` that has the picture's proportions, rounded,
// and at least a pixel.
ImageSize FittedSize(const ImageSize& image, const ImageSize& frame) {
  const double scale = std::min(
      static_cast<double>(frame.height) / static_cast<double>(image.height),
      static_cast<double>(frame.width) / static_cast<double>(image.width));
  const auto side = [scale](int64_t length, int64_t most) {
    return std::clamp<int64_t>(std::llrint(static_cast<double>(length) * scale),
                               1, most);
  };
  return {side(image.height, frame.height), side(image.width, frame.width)};
}

ImageSize ResizedSize(const ImageSize& image,
                      const PreprocessOptions& options) {
  if (options.letterbox) return FittedSize(image, options.resize_to);
  if (options.resize_shorter > 0) {
    const int64_t shorter = std::min(image.width, image.height);
    const int64_t longer = std::max(image.width, image.height);
    // As torchvision: the longer side is cut, not rounded.
    const int64_t length = options.resize_shorter * longer / shorter;
    return image.width < image.height
               ? ImageSize{length, options.resize_shorter}
               : ImageSize{options.resize_shorter, length};
  }
  if (options.resize_to.height > 0) return options.resize_to;
  return {image.height, image.width};
}

// Where a crop of `crop` pixels begins, below 0 where it is larger. As
// torchvision: to the nearest, halves to even; what it pads is less before.
int64_t CropBegin(int64_t size, int64_t crop) {
  if (crop > size) return -((crop - size) / 2);
  return static_cast<int64_t>(
      std::nearbyint(static_cast<double>(size - crop) / 2.0));
}

ImageSize SizeOf(const RgbImage& image) { return {image.height, image.width}; }

// Of the input, behind crop or letterbox.
ImageSize FinalSize(const ImageSize& resized,
                    const PreprocessOptions& options) {
  if (options.letterbox) return options.resize_to;
  return options.center_crop.height > 0 ? options.center_crop : resized;
}

// Luma of ITU-R BT.601, in 16 fractional bits, as PIL's mode L.
uint8_t Luma(const uint8_t* rgb) {
  return static_cast<uint8_t>(
      (rgb[0] * 19595 + rgb[1] * 38470 + rgb[2] * 7471 + 0x8000) >> 16);
}

// The picture at its final size; nothing is copied that can stay.
class Cropped {
 public:
  Cropped(const RgbImage& image, const PreprocessOptions& options) {
    const ImageSize resized = ResizedSize(SizeOf(image), options);
    size_ = FinalSize(resized, options);
    if (options.letterbox) outside_.fill(options.pad_value);
    top_ = CropBegin(resized.height, size_.height);
    left_ = CropBegin(resized.width, size_.width);
    inner_top_ = std::max<int64_t>(top_, 0);
    inner_left_ = std::max<int64_t>(left_, 0);
    const ImageWindow window{
        .left = inner_left_,
        .top = inner_top_,
        .width = std::min(left_ + size_.width, resized.width) - inner_left_,
        .height = std::min(top_ + size_.height, resized.height) - inner_top_};
    if (resized == SizeOf(image)) {
      source_ = &image;
      return;
    }
    resized_ = ResizedWindow(image, resized.width, resized.height,
                             options.interpolation, window);
    source_ = &resized_;
    // Rows of the window begin at its corner.
    top_ -= inner_top_;
    left_ -= inner_left_;
  }

  const ImageSize& size() const { return size_; }

  // Null: outside of the picture.
  const uint8_t* Row(int64_t y) const {
    const int64_t at = top_ + y;
    return at < 0 || at >= source_->height ? nullptr : source_->row(at);
  }
  const uint8_t* Pixel(const uint8_t* row, int64_t x) const {
    const int64_t at = left_ + x;
    return row == nullptr || at < 0 || at >= source_->width
               ? outside_.data()
               : row + at * kChannels;
  }

 private:
  ImageSize size_;
  std::array<uint8_t, kChannels> outside_ = {};  // black
  int64_t top_ = 0;  // of the crop within the source; may be outside
  int64_t left_ = 0;
  int64_t inner_top_ = 0;
  int64_t inner_left_ = 0;
  RgbImage resized_;
  const RgbImage* source_ = nullptr;
};

// `value_of(channel, pixel)` makes the element.
template <typename T, typename ValueOf>
void Write(const RgbImage& image, const PreprocessOptions& options,
           const ValueOf& value_of, T* out) {
  const Cropped cropped(image, options);
  const auto [height, width] = cropped.size();
  const int channels = options.channels();
  const int64_t plane = options.channels_last ? 1 : height * width;
  const int64_t step = options.channels_last ? channels : 1;
  for (int64_t y = 0; y < height; ++y) {
    const uint8_t* row = cropped.Row(y);
    T* to = out + y * width * step;
    for (int64_t x = 0; x < width; ++x, to += step) {
      const uint8_t* rgb = cropped.Pixel(row, x);
      if (channels == 1) {
        *to = value_of(0, Luma(rgb));
        continue;
      }
      const int first = options.color == ColorOrder::kBgr ? 2 : 0;
      to[0] = value_of(0, rgb[first]);
      to[plane] = value_of(1, rgb[1]);
      to[2 * plane] = value_of(2, rgb[2 - first]);
    }
  }
}

}  // namespace

ImagePlacement PlacementOf(const ImageSize& picture,
                           const PreprocessOptions& options) {
  const ImageSize resized = ResizedSize(picture, options);
  const ImageSize input = FinalSize(resized, options);
  const auto ratio = [](int64_t a, int64_t b) {
    return static_cast<double>(a) / static_cast<double>(b);
  };
  return {.picture = picture,
          .input = input,
          .scale_x = ratio(resized.width, picture.width),
          .scale_y = ratio(resized.height, picture.height),
          .left = static_cast<double>(CropBegin(resized.width, input.width)),
          .top = static_cast<double>(CropBegin(resized.height, input.height))};
}

StatusOr<ImageSize> OutputSize(const RgbImage& image,
                               const PreprocessOptions& options,
                               int64_t max_pixels) {
  const ImageSize resized = ResizedSize(SizeOf(image), options);
  const ImageSize size = FinalSize(resized, options);
  if (options.center_crop.height > 0) return size;
  if (size.width > max_pixels / size.height) {
    return InvalidArgument(
        "the picture of " + std::to_string(image.width) + " x " +
        std::to_string(image.height) + " pixels would be resized to " +
        std::to_string(size.width) + " x " + std::to_string(size.height) +
        " but at most " + std::to_string(max_pixels) +
        " pixels are allowed; send one that is less narrow");
  }
  return size;
}

void WriteInput(const RgbImage& image, const PreprocessOptions& options,
                float* row) {
  std::array<std::array<float, 256>, 3> values;
  for (size_t c = 0; c < values.size(); ++c) {
    for (size_t pixel = 0; pixel < 256; ++pixel) {
      values[c][pixel] = static_cast<float>(
          (static_cast<double>(pixel) * options.rescale_factor -
           options.mean[c]) /
          options.std[c]);
    }
  }
  Write(
      image, options,
      [&values](size_t channel, uint8_t pixel) {
        return values[channel][pixel];
      },
      row);
}

void WriteInput(const RgbImage& image, const PreprocessOptions& options,
                uint8_t* row) {
  Write(
      image, options, [](int, uint8_t pixel) { return pixel; }, row);
}

}  // namespace millrace::models
