// A share of a layer computed by oneDNN on the calling thread: a convolution,
// an inner product or a matrix product, with weights packed before in the
// layout that it asks for (format_tag::any), a bias and ReLU.
//
//   OneDnn layer(Primitive::kMatmul, Type::bf16, Type::bf16, share, weights);
//   layer.Run();
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

namespace millrace::bench {

// Of values in memory; weights beside u8 are s8.
enum class Type { f32, bf16, u8 };

// A convolution of images; a matrix of m rows is one of 1 x m pixels.
struct Layer {
  const char* network;
  int count;  // in the network
  int64_t height, width, channels, outputs, kernel = 1, stride = 1;

  int64_t Out(int64_t size) const { return (size - 1) / stride + 1; }
  int64_t k() const { return kernel * kernel * channels; }
  bool is_matrix() const { return height == 1; }
};

// What one member computes of a layer: images of out_height rows.
struct Share {
  int64_t images;
  int64_t out_height, out_width;
  int64_t in_height, in_width;
  int64_t pad;  // top, left and right; below: as the sizes say

  int64_t pixels() const { return images * out_height * out_width; }
};

struct Buffer {
  explicit Buffer(int64_t bytes)
      : data(static_cast<std::byte*>(std::aligned_alloc(
            4096, static_cast<size_t>((bytes + 8191) / 4096 * 4096)))) {
    std::memset(data, 0, static_cast<size_t>(bytes));
  }
  ~Buffer() { std::free(data); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  template <typename T>
  T* as() {
    return reinterpret_cast<T*>(data);
  }
  std::byte* data;
};
using Buffers = std::vector<std::unique_ptr<Buffer>>;

enum class Primitive { kConvolution, kInnerProduct, kMatmul };

class OneDnn {
 public:
  // `type` is that of what it reads, `to` of its results; weights are f32,
  // [outputs][kernel][kernel][channels], and become `type`, or s8.
  OneDnn(Primitive kind, Type type, Type to, const Layer& layer,
         const Share& share, const std::vector<float>& weights);

  ~OneDnn();

  void Run();
  std::byte* src();
  std::byte* dst();
  // The implementation that oneDNN chose.
  const std::string& name() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace millrace::bench
