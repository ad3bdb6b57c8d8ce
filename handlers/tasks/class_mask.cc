#include "handlers/tasks/class_mask.h"

#include <algorithm>
#include <cmath>
#include <string>

namespace millrace::handlers {
namespace {

// For each pixel of a side of the picture, the one of the mask below its
// centre.
std::vector<int64_t> PlacesOf(int64_t length, double scale, double cut,
                              int64_t input, int64_t mask) {
  std::vector<int64_t> places;
  places.reserve(static_cast<size_t>(length));
  for (int64_t i = 0; i < length; ++i) {
    const double at = (static_cast<double>(i) + 0.5) * scale - cut;
    const double in_mask =
        at * static_cast<double>(mask) / static_cast<double>(input);
    places.push_back(std::clamp<int64_t>(
        static_cast<int64_t>(std::floor(in_mask)), 0, mask - 1));
  }
  return places;
}

}  // namespace

std::map<int64_t, int64_t> ClassMask::PixelsByClass() const {
  std::map<int64_t, int64_t> pixels;
  for (size_t i = 0; i < classes.size();) {
    size_t end = i + 1;
    while (end < classes.size() && classes[end] == classes[i]) ++end;
    pixels[classes[i]] += static_cast<int64_t>(end - i);
    i = end;
  }
  return pixels;
}

StatusOr<ClassMask> BestClasses(std::span<const float> scores,
                                int64_t num_classes,
                                const models::ImageSize& size) {
  const auto plane = static_cast<size_t>(size.height * size.width);
  ClassMask mask{.size = size, .classes = std::vector<uint16_t>(plane)};
  for (int64_t c = 0; c < num_classes; ++c) {
    const auto own = scores.subspan(static_cast<size_t>(c) * plane, plane);
    for (size_t i = 0; i < plane; ++i) {
      if (std::isnan(own[i])) {
        return Internal("the model's scores of class " + std::to_string(c) +
                        " are no numbers");
      }
      if (own[i] > scores[mask.classes[i] * plane + i]) {
        mask.classes[i] = static_cast<uint16_t>(c);
      }
    }
  }
  return mask;
}

ClassMask InPicture(const ClassMask& mask,
                    const models::ImagePlacement& placement) {
  const models::ImageSize& size = placement.picture;
  const std::vector<int64_t> rows =
      PlacesOf(size.height, placement.scale_y, placement.top,
               placement.input.height, mask.size.height);
  const std::vector<int64_t> columns =
      PlacesOf(size.width, placement.scale_x, placement.left,
               placement.input.width, mask.size.width);
  ClassMask out{.size = size};
  out.classes.reserve(static_cast<size_t>(size.height * size.width));
  for (const int64_t row : rows) {
    const uint16_t* from = mask.classes.data() + row * mask.size.width;
    for (const int64_t column : columns) out.classes.push_back(from[column]);
  }
  return out;
}

StatusOr<std::map<int64_t, std::vector<int64_t>>> RunLengths(
    const ClassMask& mask, int64_t max_counts) {
  struct Runs {
    std::vector<int64_t> counts;
    int64_t end = 0;  // of the last run of the class
  };
  std::map<int64_t, Runs> by_class;
  const int64_t num_pixels = mask.size.height * mask.size.width;
  const auto class_at = [&](int64_t i) {
    const int64_t row = i % mask.size.height;
    return mask.classes[static_cast<size_t>(row * mask.size.width +
                                            i / mask.size.height)];
  };
  int64_t num_counts = 0;
  for (int64_t begin = 0; begin < num_pixels;) {
    const uint16_t own = class_at(begin);
    int64_t end = begin + 1;
    while (end < num_pixels && class_at(end) == own) ++end;
    Runs& runs = by_class[own];
    runs.counts.push_back(begin - runs.end);
    runs.counts.push_back(end - begin);
    runs.end = end;
    begin = end;
    num_counts += 2;
    if (num_counts > max_counts) {
      return InvalidArgument("the mask has more than " +
                             std::to_string(max_counts) +
                             " counts of runs; ask for mask: png")
          .At("mask");
    }
  }
  std::map<int64_t, std::vector<int64_t>> out;
  for (auto& [class_idx, runs] : by_class) {
    if (runs.end < num_pixels) runs.counts.push_back(num_pixels - runs.end);
    out[class_idx] = std::move(runs.counts);
  }
  return out;
}

}  // namespace millrace::handlers
