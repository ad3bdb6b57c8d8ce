#include "models/graph/plan/packed_form.h"

namespace millrace::models::graph {

std::vector<int64_t> ByteSizes(const Window& window, const Integers& integers) {
  std::vector<int64_t> sizes = {
      window.kernel_h, window.kernel_w,   window.stride_h,
      window.stride_w, window.dilation_h, window.dilation_w,
      window.pad_top,  window.pad_left,   integers.axis};
  sizes.insert(sizes.end(), integers.zeros.begin(), integers.zeros.end());
  return sizes;
}

}  // namespace millrace::models::graph
