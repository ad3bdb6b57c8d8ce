#include "models/graph/pt2/strides.h"

#include <vector>

#include "models/tensor/shape.h"

namespace millrace::models::graph::pt2 {
namespace {

// Neighbouring dimensions that go on in memory as if they were one; sizes of 1
// do not count.
struct Run {
  int64_t size = 1;
  int64_t stride = 0;  // of its innermost dimension
};

}  // namespace

bool CanBeViewed(const TensorMeta& from, const TensorMeta& to) {
  std::vector<Run> runs;  // innermost first
  int64_t elements = 1;
  for (int i = from.rank() - 1; i >= 0; --i) {
    const int64_t size = from.sizes[static_cast<size_t>(i)].hint;
    const int64_t stride = from.strides[static_cast<size_t>(i)];
    if (size == 0) return true;
    if (elements > Shape::kMaxElements / size) return false;
    elements *= size;
    if (size == 1) continue;
    if (!runs.empty() && stride % runs.back().size == 0 &&
        stride / runs.back().size == runs.back().stride) {
      runs.back().size *= size;
    } else {
      runs.push_back({.size = size, .stride = stride});
    }
  }
  // Each size must divide what is left of a run.
  size_t at = 0;
  for (int i = to.rank() - 1; i >= 0; --i) {
    const int64_t size = to.sizes[static_cast<size_t>(i)].hint;
    if (size == 1) continue;
    if (at < runs.size() && runs[at].size == 1) ++at;
    if (at == runs.size() || size == 0 || runs[at].size % size != 0) {
      return false;
    }
    runs[at].size /= size;
  }
  return true;
}

bool SameStrides(const TensorMeta& a, const TensorMeta& b) {
  if (a.rank() != b.rank()) return false;
  for (size_t i = 0; i < a.sizes.size(); ++i) {
    if (a.sizes[i].hint > 1 && a.strides[i] != b.strides[i]) return false;
  }
  return true;
}

bool IsContiguous(const TensorMeta& meta) {
  int64_t stride = 1;
  for (size_t i = meta.sizes.size(); i-- > 0;) {
    const int64_t size = meta.sizes[i].hint;
    if (size > 1 && meta.strides[i] != stride) return false;
    if (size > 0 && stride > Shape::kMaxElements / size) return false;
    stride *= size;
  }
  return true;
}

}  // namespace millrace::models::graph::pt2
