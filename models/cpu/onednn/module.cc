// libmillrace_onednn.so: the one file that knows oneDNN. Each primitive runs on
// its calling thread: OpenMP, which this build of oneDNN stands on, is told so
// for every thread that comes here.
#include <array>
#include <exception>
#include <oneapi/dnnl/dnnl.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "models/cpu/onednn/onednn.h"

// Of libgomp, which libdnnl stands on.
extern "C" void omp_set_num_threads(int);

namespace millrace::models::onednn {
namespace {

using dnnl::memory;
using DataType = memory::data_type;
using Tag = memory::format_tag;

const dnnl::engine& Engine() {
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

// The calling thread's, which computes alone from now on.
dnnl::stream& Stream() {
  thread_local dnnl::stream stream = [] {
    omp_set_num_threads(1);
    return dnnl::stream(Engine());
  }();
  return stream;
}

DataType Of(Type type) {
  return type == Type::kBf16 ? DataType::bf16
         : type == Type::kU8 ? DataType::u8
                             : DataType::f32;
}

struct Function {
  dnnl::algorithm algorithm;
  float alpha;
  float beta;
};

// Nothing: oneDNN has no such function.
std::optional<Function> FunctionOf(Unary f, float a, float b) {
  using Algorithm = dnnl::algorithm;
  switch (f) {
    case Unary::kRelu:
      return Function{Algorithm::eltwise_relu, 0, 0};
    case Unary::kClip:
      return Function{Algorithm::eltwise_clip, a, b};
    case Unary::kLeakyRelu:
      return Function{Algorithm::eltwise_relu, a, 0};
    case Unary::kSigmoid:
      return Function{Algorithm::eltwise_logistic, 0, 0};
    case Unary::kHardSigmoid:
      return Function{Algorithm::eltwise_hardsigmoid, a, b};
    case Unary::kHardSwish:
      return Function{Algorithm::eltwise_hardswish, 1.0f / 6, 0.5f};
    case Unary::kSilu:
      return Function{Algorithm::eltwise_swish, 1, 0};
    case Unary::kGeluErf:
      return Function{Algorithm::eltwise_gelu_erf, 0, 0};
    case Unary::kGeluTanh:
      return Function{Algorithm::eltwise_gelu_tanh, 0, 0};
    case Unary::kTanh:
      return Function{Algorithm::eltwise_tanh, 0, 0};
    case Unary::kElu:
      return Function{Algorithm::eltwise_elu, a, 0};
    case Unary::kMish:
      return Function{Algorithm::eltwise_mish, 0, 0};
    default:
      return std::nullopt;
  }
}

// Reference code, and general products that would turn the weight in each call.
bool IsSlow(const std::string& implementation) {
  return implementation.find("ref") != std::string::npos ||
         implementation.find("gemm:") != std::string::npos ||
         implementation.find("simple") != std::string::npos;
}

class LayerOf final : public Layer {
 public:
  // Throws dnnl::error where there is no such primitive.
  LayerOf(const LayerSizes& sizes, const LayerOf* like) : sizes_(sizes) {
    Stream();
    MakeAttributes();
    if (sizes.kind == Kind::kProduct) {
      MakeProduct(like);
    } else {
      MakeConvolution(like);
    }
  }

  int64_t packed_bytes() const override {
    return static_cast<int64_t>(weights_.get_size());
  }
  int64_t scratch_bytes() const override {
    return static_cast<int64_t>(scratch_.get_size());
  }
  std::string Implementation() const override { return implementation_; }

  bool Pack(const void* weights, void* packed) const override try {
    memory from(plain_, Engine(), const_cast<void*>(weights));
    memory to(weights_, Engine(), packed);
    dnnl::reorder(from, to).execute(Stream(), from, to);
    return true;
  } catch (const std::exception&) {
    return false;
  }

  bool Run(const LayerArgs& args) const override try {
    if (SumsResidual() && args.residual != args.y) return false;
    std::vector<dnnl_exec_arg_t> list;
    std::vector<memory> memories;
    list.reserve(kMostArgs);
    memories.reserve(kMostArgs);
    const auto add = [&](int arg, const memory::desc& desc, const void* data) {
      memories.emplace_back(desc, Engine(), const_cast<void*>(data));
      list.push_back({arg, memories.back().get()});
    };
    add(DNNL_ARG_SRC, x_, args.x);
    add(DNNL_ARG_WEIGHTS, weights_, args.weights);
    add(DNNL_ARG_DST, y_, args.y);
    add(DNNL_ARG_SCRATCHPAD, scratch_, args.scratch);
    if (sizes_.has_bias) add(DNNL_ARG_BIAS, bias_, args.bias);
    if (residual_at_ >= 0) {
      add(DNNL_ARG_ATTR_MULTIPLE_POST_OP(residual_at_) | DNNL_ARG_SRC_1,
          residual_, args.residual);
    }
    if (gate_at_ >= 0) {
      add(DNNL_ARG_ATTR_MULTIPLE_POST_OP(gate_at_) | DNNL_ARG_SRC_1, gate_,
          args.gate);
    }
    if (sizes_.x == Type::kU8) {
      add(DNNL_ARG_ATTR_SCALES | DNNL_ARG_WEIGHTS,
          {{Outputs()}, DataType::f32, Tag::x}, args.scales);
      add(DNNL_ARG_ATTR_ZERO_POINTS | DNNL_ARG_SRC,
          {{1}, DataType::s32, Tag::x}, &args.x_zero);
    }
    if (sizes_.y == Type::kU8) {
      add(DNNL_ARG_ATTR_SCALES | DNNL_ARG_DST, {{1}, DataType::f32, Tag::x},
          &sizes_.y_scale);
      add(DNNL_ARG_ATTR_ZERO_POINTS | DNNL_ARG_DST,
          {{1}, DataType::s32, Tag::x}, &args.y_zero);
    }
    return dnnl_primitive_execute(primitive_.get(), Stream().get(),
                                  static_cast<int>(list.size()),
                                  list.data()) == dnnl_success;
  } catch (const std::exception&) {
    return false;
  }

 private:
  static constexpr size_t kMostArgs = 12;

  int64_t Outputs() const {
    return sizes_.kind == Kind::kProduct ? sizes_.n : sizes_.outputs;
  }
  // A residual of U8 stands where the result will be; else it has memory of its
  // own.
  bool SumsResidual() const {
    return sizes_.x == Type::kU8 && sizes_.residual != Type::kNone;
  }

  void MakeAttributes() {
    const bool is_product = sizes_.kind == Kind::kProduct;
    const memory::dims sizes =
        is_product ? memory::dims{sizes_.rows, sizes_.n}
                   : memory::dims{1, sizes_.outputs, sizes_.out_height,
                                  sizes_.out_width};
    const Tag tag = is_product ? Tag::ab : Tag::nhwc;
    y_ = {sizes, Of(sizes_.y), tag};
    dnnl::post_ops ops;
    const auto add_residual = [&] {
      if (SumsResidual()) {
        ops.append_sum(sizes_.residual_scale, sizes_.residual_zero);
        return;
      }
      residual_at_ = ops.len();
      residual_ = {sizes, Of(sizes_.residual), tag};
      ops.append_binary(dnnl::algorithm::binary_add, residual_);
    };
    const bool has_residual = sizes_.residual != Type::kNone;
    if (has_residual && sizes_.residual_first) add_residual();
    if (sizes_.f != Unary::kNone) {
      const std::optional<Function> f =
          FunctionOf(sizes_.f, sizes_.a, sizes_.b);
      if (!f) {
        throw dnnl::error(dnnl_unimplemented, "no such function");
      }
      ops.append_eltwise(f->algorithm, f->alpha, f->beta);
    }
    if (sizes_.has_gate) {
      gate_at_ = ops.len();
      gate_ = {sizes, DataType::f32, tag};
      ops.append_binary(dnnl::algorithm::binary_mul, gate_);
    }
    if (has_residual && !sizes_.residual_first) add_residual();
    attributes_.set_post_ops(ops);
    attributes_.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    if (sizes_.x == Type::kU8) {
      const int outputs = is_product ? 2 : sizes_.groups > 1 ? 3 : 1;
      attributes_.set_scales_mask(DNNL_ARG_WEIGHTS, outputs);
      attributes_.set_zero_points_mask(DNNL_ARG_SRC, 0);
    }
    if (sizes_.y == Type::kU8) {
      attributes_.set_scales_mask(DNNL_ARG_DST, 0);
      attributes_.set_zero_points_mask(DNNL_ARG_DST, 0);
    }
  }

  // The first implementation of those that are made for this CPU.
  template <typename Primitive, typename Desc>
  void Take(Desc desc) {
    implementation_ = desc.impl_info_str();
    if (IsSlow(implementation_)) {
      throw dnnl::error(dnnl_unimplemented, "no fast implementation");
    }
    primitive_ = Primitive(desc);
    weights_ = desc.weights_desc();
    scratch_ = desc.scratchpad_desc();
  }

  DataType WeightType() const {
    return sizes_.x == Type::kU8 ? DataType::s8 : Of(sizes_.x);
  }
  DataType PlainType() const {
    return sizes_.x == Type::kU8 ? DataType::s8 : DataType::f32;
  }

  void MakeProduct(const LayerOf* like) {
    const LayerSizes& s = sizes_;
    x_ = {{s.rows, s.k}, Of(s.x), Tag::ab};
    bias_ = {{1, s.n}, DataType::f32, Tag::ab};
    plain_ = {{s.k, s.n}, PlainType(), s.weight_kn ? Tag::ab : Tag::ba};
    const memory::desc weights =
        like != nullptr ? like->weights_
                        : memory::desc({s.k, s.n}, WeightType(), Tag::any);
    using Desc = dnnl::matmul::primitive_desc;
    Take<dnnl::matmul>(s.has_bias
                           ? Desc(Engine(), x_, weights, bias_, y_, attributes_)
                           : Desc(Engine(), x_, weights, y_, attributes_));
  }

  void MakeConvolution(const LayerOf* like) {
    const LayerSizes& s = sizes_;
    x_ = {{1, s.channels, s.height, s.width}, Of(s.x), Tag::nhwc};
    bias_ = {{s.outputs}, DataType::f32, Tag::x};
    const int64_t each = s.channels / s.groups;
    const bool grouped = s.groups > 1;
    const memory::dims of_weights =
        grouped ? memory::dims{s.groups, s.outputs / s.groups, each, s.kernel_h,
                               s.kernel_w}
                : memory::dims{s.outputs, each, s.kernel_h, s.kernel_w};
    plain_ = {of_weights, PlainType(), grouped ? Tag::goihw : Tag::oihw};
    const memory::desc weights =
        like != nullptr ? like->weights_
                        : memory::desc(of_weights, WeightType(), Tag::any);
    const memory::dims strides{s.stride_h, s.stride_w};
    const memory::dims dilations{s.dilation_h - 1, s.dilation_w - 1};
    const memory::dims before{s.pad_top, s.pad_left};
    const memory::dims behind{s.pad_bottom, s.pad_right};
    constexpr auto kForward = dnnl::prop_kind::forward_inference;
    constexpr auto kDirect = dnnl::algorithm::convolution_direct;
    using Desc = dnnl::convolution_forward::primitive_desc;
    Take<dnnl::convolution_forward>(
        s.has_bias ? Desc(Engine(), kForward, kDirect, x_, weights, bias_, y_,
                          strides, dilations, before, behind, attributes_)
                   : Desc(Engine(), kForward, kDirect, x_, weights, y_, strides,
                          dilations, before, behind, attributes_));
  }

  const LayerSizes sizes_;
  dnnl::primitive_attr attributes_;
  memory::desc x_, weights_, plain_, bias_, y_, scratch_, residual_, gate_;
  int residual_at_ = -1;  // among the operations behind the sum
  int gate_at_ = -1;
  dnnl::primitive primitive_;
  std::string implementation_;
};

class LibraryOf final : public Library {
 public:
  std::unique_ptr<Layer> Make(const LayerSizes& sizes,
                              const Layer* like) const override try {
    return std::make_unique<LayerOf>(sizes, static_cast<const LayerOf*>(like));
  } catch (const std::exception&) {
    return nullptr;
  }
};

}  // namespace
}  // namespace millrace::models::onednn

extern "C" __attribute__((visibility("default")))
const millrace::models::onednn::Library*
MillraceOneDnn(int32_t version) {
  using namespace millrace::models::onednn;  // NOLINT
  static const LibraryOf library;
  return version == kVersion ? &library : nullptr;
}
