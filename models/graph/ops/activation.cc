// Activations: functions of one element. 16-bit floats are computed in f32 and
// rounded once. Formulas are those of ONNX, written so that large arguments do
// not overflow.
#include <cmath>

#include "models/graph/ops/facts.h"
#include "models/graph/ops/op_groups.h"
#include "models/graph/ops/operands.h"

namespace millrace::models::graph {
namespace {

template <typename M>
M SigmoidOf(M x) {
  // The smaller of e^x and e^-x: what is near 0 keeps its digits.
  const M small = std::exp(-std::abs(x));
  return (x >= 0 ? M(1) : small) / (M(1) + small);
}
template <typename M>
M SoftplusOf(M x) {
  return std::max(x, M(0)) + std::log1p(std::exp(-std::abs(x)));
}

// Each is made from the node's attributes and maps float or double.
struct LeakyRelu {
  explicit LeakyRelu(const Attrs& a) : alpha(a.Float("alpha", 0.01)) {}
  template <typename M>
  M operator()(M x) const {
    return x < 0 ? static_cast<M>(alpha) * x : x;
  }
  double alpha;
};
struct Elu {
  explicit Elu(const Attrs& a) : alpha(a.Float("alpha", 1)) {}
  template <typename M>
  M operator()(M x) const {
    return x < 0 ? static_cast<M>(alpha) * std::expm1(x) : x;
  }
  double alpha;
};
struct Selu {
  explicit Selu(const Attrs& a)
      : alpha(a.Float("alpha", 1.67326319217681884765625)),
        gamma(a.Float("gamma", 1.05070102214813232421875)) {}
  template <typename M>
  M operator()(M x) const {
    return static_cast<M>(gamma) *
           (x > 0 ? x : static_cast<M>(alpha) * std::expm1(x));
  }
  double alpha;
  double gamma;
};
struct Celu {
  explicit Celu(const Attrs& a) : alpha(a.Float("alpha", 1)) {}
  template <typename M>
  M operator()(M x) const {
    const M scale = static_cast<M>(alpha);
    return x > 0 ? x : scale * std::expm1(x / scale);
  }
  double alpha;
};
struct Gelu {
  explicit Gelu(const Attrs& a)
      : tanh(a.Text("approximate", "none") == "tanh") {}
  template <typename M>
  M operator()(M x) const {
    if (tanh) {
      const M inner = static_cast<M>(0.7978845608028654) *
                      (x + static_cast<M>(0.044715) * x * x * x);
      return static_cast<M>(0.5) * x * (M(1) + std::tanh(inner));
    }
    return static_cast<M>(0.5) * x *
           (M(1) + std::erf(x * static_cast<M>(0.7071067811865476)));
  }
  bool tanh;
};
struct Sigmoid {
  explicit Sigmoid(const Attrs&) {}
  template <typename M>
  M operator()(M x) const {
    return SigmoidOf(x);
  }
};
struct HardSigmoid {
  explicit HardSigmoid(const Attrs& a)
      : alpha(a.Float("alpha", 0.2)), beta(a.Float("beta", 0.5)) {}
  template <typename M>
  M operator()(M x) const {
    const M y = static_cast<M>(alpha) * x + static_cast<M>(beta);
    return y < 0 ? M(0) : (y > 1 ? M(1) : y);
  }
  double alpha;
  double beta;
};
struct HardSwish {
  explicit HardSwish(const Attrs&) {}
  template <typename M>
  M operator()(M x) const {
    const M y = x / M(6) + static_cast<M>(0.5);
    return x * (y < 0 ? M(0) : (y > 1 ? M(1) : y));
  }
};
struct Softplus {
  explicit Softplus(const Attrs&) {}
  template <typename M>
  M operator()(M x) const {
    return SoftplusOf(x);
  }
};
struct Softsign {
  explicit Softsign(const Attrs&) {}
  template <typename M>
  M operator()(M x) const {
    return x / (M(1) + std::abs(x));
  }
};
struct Mish {
  explicit Mish(const Attrs&) {}
  template <typename M>
  M operator()(M x) const {
    return x * std::tanh(SoftplusOf(x));
  }
};
// PyTorch's SiLU, with alpha of 1.
struct Swish {
  explicit Swish(const Attrs& a) : alpha(a.Float("alpha", 1)) {}
  template <typename M>
  M operator()(M x) const {
    return x * SigmoidOf(static_cast<M>(alpha) * x);
  }
  double alpha;
};
struct ThresholdedRelu {
  explicit ThresholdedRelu(const Attrs& a) : alpha(a.Float("alpha", 1)) {}
  template <typename M>
  M operator()(M x) const {
    return x > static_cast<M>(alpha) ? x : M(0);
  }
  double alpha;
};
struct Shrink {
  explicit Shrink(const Attrs& a)
      : bias(a.Float("bias", 0)), lambd(a.Float("lambd", 0.5)) {}
  template <typename M>
  M operator()(M x) const {
    if (x < -static_cast<M>(lambd)) return x + static_cast<M>(bias);
    return x > static_cast<M>(lambd) ? x - static_cast<M>(bias) : M(0);
  }
  double bias;
  double lambd;
};
struct Tanh {
  explicit Tanh(const Attrs&) {}
  template <typename M>
  M operator()(M x) const {
    return std::tanh(x);
  }
};

Types Infer(const Call& call) {
  RETURN_IF_ERROR(OneFloat(call));
  return Outputs(call, {{call.arg(0).dtype, call.arg(0).shape}});
}

template <typename F>
Status Run(const Call& call, std::span<const Result> results,
           const Team& team) {
  const F f(call.attrs());
  const auto [begin, end] = team.Share(results[0].num_elements(), 64);
  DispatchFloat(call.arg(0).dtype, [&, b = begin, e = end]<typename T>() {
    const T* x = call.arg(0).data<T>();
    T* y = results[0].data<T>();
    for (int64_t i = b; i < e; ++i) {
      y[i] = static_cast<T>(f(static_cast<MathType<T>>(x[i])));
    }
  });
  return OkStatus();
}

Types InferNumber(const Call& call) {
  RETURN_IF_ERROR(CountOperands(call, 1, 1));
  if (call.arg(0).dtype == DType::kBool) {
    return InvalidArgument("the operand is BOOL; numbers are needed");
  }
  return Outputs(call, {{call.arg(0).dtype, call.arg(0).shape}});
}

// Keeps NaN, as PyTorch does.
Status RunRelu(const Call& call, std::span<const Result> results,
               const Team& team) {
  const auto [begin, end] = team.Share(results[0].num_elements(), 64);
  Dispatch(call.arg(0).dtype, [&, b = begin, e = end]<typename T>() {
    using M = MathType<T>;
    const T* x = call.arg(0).data<T>();
    T* y = results[0].data<T>();
    for (int64_t i = b; i < e; ++i) {
      const M v = x[i];
      y[i] = v < M(0) ? static_cast<T>(M(0)) : x[i];
    }
  });
  return OkStatus();
}

// ---- what a layer before them can apply ----
float Number(const Call& call, std::string_view name, double otherwise) {
  return static_cast<float>(call.attrs().Float(name, otherwise));
}

std::optional<Activation> LeakyReluOf(const Call& call) {
  return Activation{Unary::kLeakyRelu, Number(call, "alpha", 0.01)};
}
std::optional<Activation> EluOf(const Call& call) {
  return Activation{Unary::kElu, Number(call, "alpha", 1)};
}
std::optional<Activation> GeluOf(const Call& call) {
  const bool tanh = call.attrs().Text("approximate", "none") == "tanh";
  return Activation{tanh ? Unary::kGeluTanh : Unary::kGeluErf};
}
std::optional<Activation> HardSigmoidOf(const Call& call) {
  return Activation{Unary::kHardSigmoid, Number(call, "alpha", 0.2),
                    Number(call, "beta", 0.5)};
}
std::optional<Activation> SoftplusOf(const Call&) {
  return Activation{Unary::kSoftplus, 1};
}
std::optional<Activation> SwishOf(const Call& call) {
  if (Number(call, "alpha", 1) != 1) return std::nullopt;
  return Activation{Unary::kSilu};
}

constexpr OpDef kOps[] = {
    {"Relu", InferNumber, RunRelu, Work::kSplits,
     kActivationFact<Unary::kRelu>},
    {"LeakyRelu",
     Infer,
     Run<LeakyRelu>,
     Work::kSplits,
     {.elementwise = Elementwise::kUnary, .activation = LeakyReluOf}},
    {"Elu",
     Infer,
     Run<Elu>,
     Work::kSplits,
     {.elementwise = Elementwise::kUnary, .activation = EluOf}},
    {"Selu", Infer, Run<Selu>, Work::kSplits, kUnaryFact},
    {"Celu", Infer, Run<Celu>, Work::kSplits, kUnaryFact},
    {"Gelu",
     Infer,
     Run<Gelu>,
     Work::kSplits,
     {.elementwise = Elementwise::kUnary, .activation = GeluOf}},
    {"Sigmoid", Infer, Run<Sigmoid>, Work::kSplits,
     kActivationFact<Unary::kSigmoid>},
    {"HardSigmoid",
     Infer,
     Run<HardSigmoid>,
     Work::kSplits,
     {.elementwise = Elementwise::kUnary, .activation = HardSigmoidOf}},
    {"HardSwish", Infer, Run<HardSwish>, Work::kSplits,
     kActivationFact<Unary::kHardSwish>},
    {"Softplus",
     Infer,
     Run<Softplus>,
     Work::kSplits,
     {.elementwise = Elementwise::kUnary, .activation = SoftplusOf}},
    {"Softsign", Infer, Run<Softsign>, Work::kSplits, kUnaryFact},
    {"Mish", Infer, Run<Mish>, Work::kSplits, kActivationFact<Unary::kMish>},
    {"Swish",
     Infer,
     Run<Swish>,
     Work::kSplits,
     {.elementwise = Elementwise::kUnary, .activation = SwishOf}},
    {"ThresholdedRelu", Infer, Run<ThresholdedRelu>, Work::kSplits, kUnaryFact},
    {"Shrink", Infer, Run<Shrink>, Work::kSplits},
    {"Tanh", Infer, Run<Tanh>, Work::kSplits, kActivationFact<Unary::kTanh>},
};

}  // namespace

std::span<const OpDef> ActivationOps() { return kOps; }

}  // namespace millrace::models::graph
