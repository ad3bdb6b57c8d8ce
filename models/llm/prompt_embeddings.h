// Vectors that stand in place of the embeddings of some tokens of a prompt:
// rows that an encoder made of images.
//
//   tokens       [ t0 t1 im im im t5 ]     im: placeholders
//   embeddings   [ e0 e1 r0 r1 r2 e5 ]     r: rows of an image
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace millrace::models {

// Numbers of images are from 0 to this.
inline constexpr int32_t kMostImageNumber = (1 << 28) - 1;

// Immutable once a request has it: shared by its completions and by the slots
// that they run in, until the last of them ends.
struct PromptEmbeddings {
  // Consecutive positions of one image, or of one part of it.
  struct Span {
    int32_t first = 0;  // position
    int32_t count = 0;
    // Images with one number have the same rows, as long as the model is
    // loaded: the prefix cache tells images by it.
    int32_t image = 0;
    std::shared_ptr<const std::vector<float>> values = {};
    size_t begin = 0;  // of values, where the first row begins
  };

  int64_t width = 0;        // of a row, the model's hidden size
  std::vector<Span> spans;  // ascending, none overlaps

  // Null: the token there has its own embedding.
  const Span* SpanAt(int32_t position) const {
    const auto behind =
        std::ranges::upper_bound(spans, position, {}, &Span::first);
    if (behind == spans.begin()) return nullptr;
    const Span& span = *(behind - 1);
    return position - span.first < span.count ? &span : nullptr;
  }
  // [width], or null.
  const float* RowAt(int32_t position) const {
    const Span* span = SpanAt(position);
    if (span == nullptr) return nullptr;
    return span->values->data() + span->begin +
           static_cast<size_t>(position - span->first) *
               static_cast<size_t>(width);
  }
};

}  // namespace millrace::models
