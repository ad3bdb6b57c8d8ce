// Weights are integers of 22 fractional bits, so that sums of 8-bit pixels fit
// 32 bits and results are the same on every machine.
#include "models/image/resize.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>
#include <vector>

namespace millrace::models {
namespace {

constexpr int kWeightBits = 22;
constexpr int32_t kHalf = 1 << (kWeightBits - 1);
constexpr int kChannels = RgbImage::kChannels;

double Triangle(double x) { return std::max(0.0, 1.0 - std::abs(x)); }

double Cubic(double x) {
  constexpr double a = -0.5;
  x = std::abs(x);
  if (x < 1.0) return ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0;
  if (x < 2.0) return (((x - 5.0) * x + 8.0) * x - 4.0) * a;
  return 0.0;
}

double Sinc(double x) {
  if (x == 0.0) return 1.0;
  x *= std::numbers::pi;
  return std::sin(x) / x;
}

double Lanczos(double x) {
  return -3.0 <= x && x < 3.0 ? Sinc(x) * Sinc(x / 3.0) : 0.0;
}

struct Kernel {
  double (*weight)(double);
  double radius;
};

Kernel KernelOf(Interpolation interpolation) {
  if (interpolation == Interpolation::kBicubic) return {Cubic, 2.0};
  if (interpolation == Interpolation::kLanczos) return {Lanczos, 3.0};
  return {Triangle, 1.0};
}

// Which pixels of a line make one pixel of the resized line.
struct Taps {
  int64_t first = 0;
  std::vector<int32_t> weights;  // of pixels first, first + 1, …
};

// For the pixels begin, begin + 1, … of a line of `from` pixels resized to
// `to`.
std::vector<Taps> MakeTaps(int64_t from, int64_t to, int64_t begin,
                           int64_t count, const Kernel& kernel) {
  const double scale = static_cast<double>(from) / static_cast<double>(to);
  const double stretch = std::max(scale, 1.0);  // of the kernel: antialias
  const double radius = kernel.radius * stretch;
  const double shrink = 1.0 / stretch;
  std::vector<Taps> taps(static_cast<size_t>(count));
  std::vector<double> weights;
  for (int64_t i = 0; i < count; ++i) {
    const double center = (static_cast<double>(begin + i) + 0.5) * scale;
    const auto first =
        std::max<int64_t>(static_cast<int64_t>(center - radius + 0.5), 0);
    const auto last =
        std::min<int64_t>(static_cast<int64_t>(center + radius + 0.5), from);
    weights.clear();
    double sum = 0.0;
    for (int64_t x = first; x < last; ++x) {
      weights.push_back(
          kernel.weight((static_cast<double>(x) - center + 0.5) * shrink));
      sum += weights.back();
    }
    Taps& of_pixel = taps[static_cast<size_t>(i)];
    of_pixel.first = first;
    for (const double weight : weights) {
      const double fixed = (sum != 0.0 ? weight / sum : weight) *
                           static_cast<double>(1 << kWeightBits);
      of_pixel.weights.push_back(static_cast<int32_t>(std::lround(fixed)));
    }
  }
  return taps;
}

uint8_t Clamped(int32_t sum) {
  return static_cast<uint8_t>(std::clamp(sum >> kWeightBits, 0, 255));
}

void ResizeAcross(const uint8_t* from, const std::vector<Taps>& taps,
                  uint8_t* to) {
  for (const Taps& pixel : taps) {
    const uint8_t* in = from + pixel.first * kChannels;
    int32_t red = kHalf;
    int32_t green = kHalf;
    int32_t blue = kHalf;
    for (const int32_t weight : pixel.weights) {
      red += in[0] * weight;
      green += in[1] * weight;
      blue += in[2] * weight;
      in += kChannels;
    }
    to[0] = Clamped(red);
    to[1] = Clamped(green);
    to[2] = Clamped(blue);
    to += kChannels;
  }
}

RgbImage NearestWindow(const RgbImage& image, int64_t width, int64_t height,
                       const ImageWindow& window, RgbImage out) {
  const auto source = [](int64_t at, int64_t from, int64_t to) {
    const double scale = static_cast<double>(from) / static_cast<double>(to);
    return std::min(
        static_cast<int64_t>((static_cast<double>(at) + 0.5) * scale),
        from - 1);
  };
  for (int64_t y = 0; y < window.height; ++y) {
    const uint8_t* in = image.row(source(window.top + y, image.height, height));
    uint8_t* to = out.row(y);
    for (int64_t x = 0; x < window.width; ++x, to += kChannels) {
      std::copy_n(in + source(window.left + x, image.width, width) * kChannels,
                  kChannels, to);
    }
  }
  return out;
}

}  // namespace

RgbImage ResizedWindow(const RgbImage& image, int64_t width, int64_t height,
                       Interpolation interpolation, const ImageWindow& window) {
  RgbImage out;
  out.width = static_cast<int32_t>(window.width);
  out.height = static_cast<int32_t>(window.height);
  out.pixels.resize(static_cast<size_t>(window.height * out.row_bytes()));
  if (interpolation == Interpolation::kNearest) {
    return NearestWindow(image, width, height, window, std::move(out));
  }
  const Kernel kernel = KernelOf(interpolation);
  const std::vector<Taps> across =
      MakeTaps(image.width, width, window.left, window.width, kernel);
  const std::vector<Taps> down =
      MakeTaps(image.height, height, window.top, window.height, kernel);

  // Rows of the picture, resized across: those that the next row of the result
  // needs. A ring, so that a large picture needs little memory.
  size_t most_taps = 1;
  for (const Taps& row : down) {
    most_taps = std::max(most_taps, row.weights.size());
  }
  const auto row_bytes = static_cast<size_t>(out.row_bytes());
  std::vector<uint8_t> ring(most_taps * row_bytes);
  const auto ring_row = [&](int64_t y) {
    return ring.data() + static_cast<size_t>(y) % most_taps * row_bytes;
  };
  std::vector<int32_t> sums(row_bytes);
  int64_t next = down.empty() ? 0 : down.front().first;
  for (int64_t y = 0; y < window.height; ++y) {
    const Taps& row = down[static_cast<size_t>(y)];
    const auto end = row.first + static_cast<int64_t>(row.weights.size());
    for (next = std::max(next, row.first); next < end; ++next) {
      ResizeAcross(image.row(next), across, ring_row(next));
    }
    std::fill(sums.begin(), sums.end(), kHalf);
    for (size_t i = 0; i < row.weights.size(); ++i) {
      const int32_t weight = row.weights[i];
      const uint8_t* in = ring_row(row.first + static_cast<int64_t>(i));
      for (size_t x = 0; x < row_bytes; ++x) sums[x] += in[x] * weight;
    }
    std::transform(sums.begin(), sums.end(), out.row(y), Clamped);
  }
  return out;
}

}  // namespace millrace::models
