// A class for each pixel of a picture, and its two forms on the wire.
//
// Pure functions.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "config/base/status.h"
#include "models/image/preprocess.h"

namespace millrace::handlers {

struct ClassMask {
  models::ImageSize size = {};
  std::vector<uint16_t> classes = {};  // [height, width]

  std::map<int64_t, int64_t> PixelsByClass() const;
};

// The class of the highest score of each pixel, the lower one of equals.
// scores [classes, height, width]. INTERNAL where one is no number.
StatusOr<ClassMask> BestClasses(std::span<const float> scores,
                                int64_t num_classes,
                                const models::ImageSize& size);

// The mask of the picture that lay so in the graph's input, which `mask` covers
// at any size: each pixel has the class at its centre.
ClassMask InPicture(const ClassMask& mask,
                    const models::ImagePlacement& placement);

// COCO's run-length encoding, not compressed: pixels column by column, by turns
// so many of others and so many of the class, from the first one on. By class.
// INVALID_ARGUMENT where all have more numbers than `max_counts`.
StatusOr<std::map<int64_t, std::vector<int64_t>>> RunLengths(
    const ClassMask& mask, int64_t max_counts);

}  // namespace millrace::handlers
