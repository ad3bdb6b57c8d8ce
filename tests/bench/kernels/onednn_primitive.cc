#include "tests/bench/kernels/onednn_primitive.h"

#include <oneapi/dnnl/dnnl.hpp>
#include <unordered_map>

namespace millrace::bench {
namespace {

using dnnl::memory;
using DataType = dnnl::memory::data_type;

dnnl::engine& Engine() {
  static dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

DataType DataTypeOf(Type type) {
  return type == Type::f32    ? DataType::f32
         : type == Type::bf16 ? DataType::bf16
                              : DataType::u8;
}

}  // namespace

struct OneDnn::Impl {
  Impl(Primitive kind, DataType type, DataType to, const Layer& l,
       const Share& s, const std::vector<float>& weights);

  template <typename Desc>
  void Take(const Desc& desc, const dnnl::primitive& primitive);
  void Add(int arg, const memory::desc& desc);
  void AddScales(int arg, int64_t count);
  std::byte* Data(int arg) {
    return static_cast<std::byte*>(args_.at(arg).get_data_handle());
  }

  dnnl::stream stream_;
  dnnl::primitive primitive_;
  Buffers own_;
  std::unordered_map<int, memory> args_;
  std::string name_;
};

template <typename Desc>
void OneDnn::Impl::Take(const Desc& desc, const dnnl::primitive& primitive) {
  primitive_ = primitive;
  name_ = desc.impl_info_str();
  Add(DNNL_ARG_SRC, desc.src_desc());
  Add(DNNL_ARG_WEIGHTS, desc.weights_desc());
  Add(DNNL_ARG_BIAS, desc.bias_desc());
  Add(DNNL_ARG_DST, desc.dst_desc());
  Add(DNNL_ARG_SCRATCHPAD, desc.scratchpad_desc());
  // Zeros might cost less.
  std::memset(own_.front()->data, 0x3f, desc.src_desc().get_size());
}

void OneDnn::Impl::Add(int arg, const memory::desc& desc) {
  own_.push_back(
      std::make_unique<Buffer>(static_cast<int64_t>(desc.get_size())));
  args_[arg] = memory(desc, Engine(), own_.back()->data);
}

void OneDnn::Impl::AddScales(int arg, int64_t count) {
  Add(DNNL_ARG_ATTR_SCALES | arg,
      {{count}, DataType::f32, memory::format_tag::x});
  std::fill_n(own_.back()->as<float>(), count, count == 1 ? 1.0f : 1e-3f);
}

OneDnn::Impl::Impl(Primitive kind, DataType type, DataType to, const Layer& l,
                   const Share& s, const std::vector<float>& weights)
    : stream_(Engine()) {
  const bool bytes = type == DataType::u8;
  const DataType of_weights = bytes ? DataType::s8 : type;
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  dnnl::post_ops ops;
  ops.append_eltwise(dnnl::algorithm::eltwise_relu, 0, 0);
  attr.set_post_ops(ops);
  if (bytes) {
    attr.set_scales_mask(DNNL_ARG_WEIGHTS, kind == Primitive::kMatmul ? 2 : 1);
    attr.set_scales_mask(DNNL_ARG_DST, 0);
  }
  memory::desc plain;
  if (kind == Primitive::kConvolution) {
    const memory::dims x{s.images, l.channels, s.in_height, s.in_width};
    const memory::dims w{l.outputs, l.channels, l.kernel, l.kernel};
    const memory::dims y{s.images, l.outputs, s.out_height, s.out_width};
    const auto behind = [&](int64_t out, int64_t in) {
      return std::max<int64_t>((out - 1) * l.stride + l.kernel - s.pad - in, 0);
    };
    const dnnl::convolution_forward::primitive_desc desc(
        Engine(), dnnl::prop_kind::forward_inference,
        dnnl::algorithm::convolution_direct,
        {x, type, memory::format_tag::nhwc},
        {w, of_weights, memory::format_tag::any},
        {{l.outputs}, DataType::f32, memory::format_tag::x},
        {y, to, memory::format_tag::nhwc}, {l.stride, l.stride}, {s.pad, s.pad},
        {behind(s.out_height, s.in_height), behind(s.out_width, s.in_width)},
        attr);
    plain = {w, DataType::f32, memory::format_tag::ohwi};
    Take(desc, dnnl::convolution_forward(desc));
  } else if (kind == Primitive::kInnerProduct) {
    const dnnl::inner_product_forward::primitive_desc desc(
        Engine(), dnnl::prop_kind::forward_inference,
        {{s.pixels(), l.k()}, type, memory::format_tag::ab},
        {{l.outputs, l.k()}, of_weights, memory::format_tag::any},
        {{l.outputs}, DataType::f32, memory::format_tag::x},
        {{s.pixels(), l.outputs}, to, memory::format_tag::ab}, attr);
    plain = {{l.outputs, l.k()}, DataType::f32, memory::format_tag::ab};
    Take(desc, dnnl::inner_product_forward(desc));
  } else {
    const dnnl::matmul::primitive_desc desc(
        Engine(), {{s.pixels(), l.k()}, type, memory::format_tag::ab},
        {{l.k(), l.outputs}, of_weights, memory::format_tag::any},
        {{1, l.outputs}, DataType::f32, memory::format_tag::ab},
        {{s.pixels(), l.outputs}, to, memory::format_tag::ab}, attr);
    plain = {{l.k(), l.outputs}, DataType::f32, memory::format_tag::ba};
    Take(desc, dnnl::matmul(desc));
  }
  std::vector<float> w = weights;
  if (bytes) {
    for (float& v : w) v = static_cast<float>(static_cast<int>(2000 * v));
  }
  memory from(plain, Engine(), w.data());
  dnnl::reorder(from, args_.at(DNNL_ARG_WEIGHTS))
      .execute(stream_, from, args_.at(DNNL_ARG_WEIGHTS));
  if (bytes) {
    AddScales(DNNL_ARG_WEIGHTS, l.outputs);
    AddScales(DNNL_ARG_DST, 1);
  }
}

OneDnn::OneDnn(Primitive kind, Type type, Type to, const Layer& layer,
               const Share& share, const std::vector<float>& weights)
    : impl_(std::make_unique<Impl>(kind, DataTypeOf(type), DataTypeOf(to),
                                   layer, share, weights)) {}
OneDnn::~OneDnn() = default;

void OneDnn::Run() { impl_->primitive_.execute(impl_->stream_, impl_->args_); }
std::byte* OneDnn::src() { return impl_->Data(DNNL_ARG_SRC); }
std::byte* OneDnn::dst() { return impl_->Data(DNNL_ARG_DST); }
const std::string& OneDnn::name() const { return impl_->name_; }

}  // namespace millrace::bench
