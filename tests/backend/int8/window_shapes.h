// Windows over images of bytes, of all kinds.
#pragma once

#include "tests/backend/int8/int8.h"

namespace millrace::models {

struct WindowShape {
  int64_t height, width, channels;
  Window window;
  int64_t out_height, out_width;
};

inline const WindowShape kWindowShapes[] = {
    {9, 21, 40, {3, 3, 1, 1, 1, 1, 1, 1}, 9, 21},
    {10, 10, 129, {3, 3, 2, 2, 1, 1, 1, 1}, 5, 5},
    {9, 11, 7, {5, 5, 1, 1, 1, 1, 2, 2}, 9, 11},
    {8, 9, 16, {3, 2, 1, 2, 2, 3, 1, 1}, 6, 4},
    {2, 2, 64, {7, 7, 1, 1, 1, 1, 3, 3}, 2, 2},
    {1, 40, 33, {1, 9, 1, 1, 1, 1, 0, 4}, 1, 40},
    {6, 7, 72, {5, 5, 2, 2, 1, 1, 2, 2}, 3, 4},
    {4, 5, 184, {3, 3, 1, 1, 1, 1, 1, 1}, 4, 5},
    {3, 3, 1, {3, 3, 1, 1, 1, 1, 1, 1}, 3, 3},
    // Windows beyond both ends, and a stride wider than the kernel.
    {2, 3, 24, {3, 9, 1, 1, 1, 1, 1, 6}, 2, 7},
    {7, 13, 32, {2, 2, 3, 4, 1, 1, 0, 0}, 2, 3},
};

}  // namespace millrace::models
