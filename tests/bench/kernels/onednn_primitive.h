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
#include <oneapi/dnnl/dnnl.hpp>
#include <string>
#include <unordered_map>
#include <vector>

namespace millrace::bench {

using Type = dnnl::memory::data_type;

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

  void Run() { primitive_.execute(stream_, args_); }
  std::byte* src() { return Data(DNNL_ARG_SRC); }
  std::byte* dst() { return Data(DNNL_ARG_DST); }

  std::string name;

 private:
  template <typename Desc>
  void Take(const Desc& desc, const dnnl::primitive& primitive);
  void Add(int arg, const dnnl::memory::desc& desc);
  void AddScales(int arg, int64_t count);
  std::byte* Data(int arg) {
    return static_cast<std::byte*>(args_.at(arg).get_data_handle());
  }

  dnnl::stream stream_;
  dnnl::primitive primitive_;
  Buffers own_;
  std::unordered_map<int, dnnl::memory> args_;
};

}  // namespace millrace::bench
