// The convolutions that tests of kernels run: of all kinds, of images that are
// parts of wider ones, of ragged sizes.
#pragma once

#include <cstdint>

#include "models/cpu/graph_kernels.h"

namespace millrace::models {

struct ConvShape {
  int64_t height, width, channels, n;
  Window window;
  int64_t out_height, out_width;
  int64_t extra;  // channels of the image beside ours
};

inline const ConvShape kConvShapes[] = {
    // A pointwise layer, dense, then as a group of a wider image.
    {5, 7, 24, 40, {}, 5, 7, 0},
    {5, 7, 24, 40, {}, 5, 7, 8},
    // 3 x 3, padded, strided, dilated.
    {9, 11, 20, 33, {3, 3, 1, 1, 1, 1, 1, 1}, 9, 11, 0},
    {9, 11, 20, 17, {3, 3, 2, 2, 1, 1, 1, 1}, 5, 6, 0},
    {9, 11, 5, 9, {3, 3, 1, 1, 2, 2, 2, 2}, 9, 11, 3},
    // A stem: few channels, wide kernel.
    {23, 23, 3, 64, {7, 7, 2, 2, 1, 1, 3, 3}, 12, 12, 0},
    {9, 11, 3, 20, {3, 3, 1, 1, 1, 1, 1, 1}, 9, 11, 0},
    // Uneven everything; more padding at the end than at the start.
    {6, 13, 7, 21, {2, 5, 1, 3, 1, 1, 0, 1}, 6, 5, 0},
    // Long k: several blocks; more pixels than a block of them.
    {4, 4, 160, 18, {3, 3, 1, 1, 1, 1, 1, 1}, 4, 4, 0},
    {12, 17, 4, 5, {3, 3, 1, 1, 1, 1, 1, 1}, 12, 17, 0},
    {10, 11, 90, 33, {3, 3, 1, 1, 1, 1, 1, 1}, 10, 11, 0},
    // One dimension, and a kernel that never lies inside.
    {1, 50, 16, 16, {1, 4, 1, 2, 1, 3, 0, 5}, 1, 26, 0},
    {2, 2, 8, 8, {5, 5, 1, 1, 1, 1, 2, 2}, 2, 2, 0},
    // Wide images, read in place: padded, strided, dilated downwards, uneven;
    // a stem, a signal, and one beside other channels, which is not.
    {6, 40, 6, 21, {3, 3, 1, 1, 1, 1, 1, 1}, 6, 40, 0},
    {9, 61, 5, 40, {3, 3, 2, 2, 1, 1, 1, 1}, 5, 31, 0},
    {9, 30, 5, 9, {3, 3, 1, 1, 2, 1, 2, 1}, 9, 30, 0},
    {6, 58, 7, 33, {2, 5, 3, 2, 1, 1, 1, 0}, 3, 29, 0},
    {15, 60, 3, 40, {7, 7, 2, 2, 1, 1, 3, 3}, 8, 30, 0},
    {1, 200, 4, 18, {1, 8, 1, 5, 1, 1, 0, 3}, 1, 40, 0},
    {4, 30, 6, 10, {1, 1, 1, 1, 1, 1, 0, 0}, 4, 30, 2},
    {4, 30, 6, 10, {3, 3, 1, 1, 1, 1, 1, 1}, 4, 30, 2},
    // Whole steps of tiles, read in place: plain, strided both ways, dilated
    // and
    // beside other channels, uneven, a kernel row of whole steps, no padding.
    {9, 11, 32, 40, {3, 3, 1, 1, 1, 1, 1, 1}, 9, 11, 0},
    {9, 12, 64, 33, {3, 3, 2, 2, 1, 1, 1, 1}, 5, 6, 0},
    {10, 9, 32, 17, {3, 3, 1, 1, 2, 2, 2, 2}, 10, 9, 4},
    {8, 13, 32, 21, {2, 5, 1, 3, 1, 1, 0, 1}, 7, 4, 0},
    {7, 9, 16, 9, {3, 2, 2, 1, 1, 1, 1, 1}, 4, 10, 0},
    {6, 40, 8, 12, {3, 4, 1, 1, 1, 1, 1, 2}, 6, 41, 0},
    {9, 9, 32, 33, {3, 3, 3, 2, 1, 1, 0, 0}, 3, 4, 0},
};

}  // namespace millrace::models
