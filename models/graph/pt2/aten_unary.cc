// Operators of one operand, element by element, and changes of type.
#include "models/graph/pt2/aten.h"

namespace millrace::models::graph::pt2 {
namespace {

struct Input {
  DType type;
  ValueId id;
};

// Integers become FP32, as PyTorch's functions of reals do.
Input Real(Lowering& n, std::string_view name = "self") {
  const Operand x = n.Arg(name);
  const DType type = IsFloat(x.dtype()) ? x.dtype() : DType::kF32;
  return {type, n.emit().Cast(x.id, x.dtype(), type)};
}

// Rows whose ONNX operator is all there is.
template <size_t N>
struct Name {
  constexpr Name(const char (&text)[N]) {  // NOLINT
    for (size_t i = 0; i < N; ++i) chars[i] = text[i];
  }
  char chars[N] = {};
};
template <Name kOp>
void RealOp(Lowering& n) {
  const Input x = Real(n);
  n.ReturnAs(x.type, n.emit().Op(kOp.chars, {x.id}));
}
template <Name kOp>
void SameType(Lowering& n) {
  const Operand x = n.Arg("self");
  n.ReturnAs(x.dtype(), n.emit().Op(kOp.chars, {x.id}));
}
// Of integers: nothing to do.
template <Name kOp>
void Rounding(Lowering& n) {
  const Operand x = n.Arg("self");
  n.ReturnAs(x.dtype(),
             IsFloat(x.dtype()) ? n.emit().Op(kOp.chars, {x.id}) : x.id);
}

void Identity(Lowering& n) { n.Return(n.In("self")); }
// The form in place calls its operand otherwise. The second result of
// native_dropout, what was kept, is for training alone.
void Dropout(Lowering& n) {
  if (n.Flag("train", false))
    return n.Fail("dropout of training; export the model after eval()");
  n.Return(n.In(n.Has("self") ? "self" : "input"));
}

// x · y, x + y and so on with a number.
ValueId With(Lowering& n, const char* op, const Input& x, double value) {
  return n.emit().Op(op, {x.id, n.emit().Number(value, x.type)});
}

void Rsqrt(Lowering& n) {
  const Input x = Real(n);
  n.ReturnAs(x.type, n.emit().Op("Reciprocal", {n.emit().Op("Sqrt", {x.id})}));
}

void Square(Lowering& n) {
  const Operand x = n.Arg("self");
  n.ReturnAs(x.dtype(), n.emit().Op("Mul", {x.id, x.id}));
}

void Exp2(Lowering& n) {
  const Input x = Real(n);
  n.ReturnAs(x.type, n.emit().Op("Pow", {n.emit().Number(2, x.type), x.id}));
}

void LogTimes(Lowering& n, double scale) {
  Input x = Real(n);
  x.id = n.emit().Op("Log", {x.id});
  n.ReturnAs(x.type, With(n, "Mul", x, scale));
}
void Log2(Lowering& n) { LogTimes(n, 1.4426950408889634); }
void Log10(Lowering& n) { LogTimes(n, 0.4342944819032518); }

void Trunc(Lowering& n) {
  const Operand x = n.Arg("self");
  Emitter& e = n.emit();
  if (!IsFloat(x.dtype())) return n.Return(x.id);
  n.ReturnAs(x.dtype(),
             e.Op("Where", {e.Op("Less", {x.id, e.Number(0, x.dtype())}),
                            e.Op("Ceil", {x.id}), e.Op("Floor", {x.id})}));
}

void LogicalNot(Lowering& n) {
  const Operand x = n.Arg("self");
  Emitter& e = n.emit();
  n.ReturnAs(DType::kBool,
             e.Op("Not", {e.Cast(x.id, x.dtype(), DType::kBool)}));
}

void BitwiseNot(Lowering& n) {
  const Operand x = n.Arg("self");
  n.ReturnAs(
      x.dtype(),
      n.emit().Op(x.dtype() == DType::kBool ? "Not" : "BitwiseNot", {x.id}));
}

void IsNan(Lowering& n) {
  const Input x = Real(n);
  n.ReturnAs(DType::kBool, n.emit().Op("IsNaN", {x.id}));
}
void IsInf(Lowering& n) {
  const Input x = Real(n);
  n.ReturnAs(DType::kBool, n.emit().Op("IsInf", {x.id}));
}
void IsFinite(Lowering& n) {
  const Input x = Real(n);
  Emitter& e = n.emit();
  n.ReturnAs(DType::kBool, e.Op("Not", {e.Op("Or", {e.Op("IsNaN", {x.id}),
                                                    e.Op("IsInf", {x.id})})}));
}

void Gelu(Lowering& n) {
  n.Return(n.emit().Op(
      "Gelu", {n.In("self")},
      {{"approximate", std::string(n.Text("approximate", "none"))}}));
}

void Silu(Lowering& n) {
  n.Return(n.emit().Op("Swish", {n.In("self")}, {{"alpha", 1.0}}));
}

void HardSigmoid(Lowering& n) {
  n.Return(n.emit().Op("HardSigmoid", {n.In("self")},
                       {{"alpha", 1.0 / 6}, {"beta", 0.5}}));
}

void ClipBetween(Lowering& n, double least, double most) {
  const Operand x = n.Arg("self");
  n.Return(n.emit().Op("Clip", {x.id, n.emit().Number(least, x.dtype()),
                                n.emit().Number(most, x.dtype())}));
}
void Hardtanh(Lowering& n) {
  ClipBetween(n, n.Real("min_val", -1), n.Real("max_val", 1));
}
void Relu6(Lowering& n) { ClipBetween(n, 0, 6); }

void LeakyRelu(Lowering& n) {
  n.Return(n.emit().Op("LeakyRelu", {n.In("self")},
                       {{"alpha", n.Real("negative_slope", 0.01)}}));
}

void Elu(Lowering& n) {
  if (n.Real("scale", 1) != 1 || n.Real("input_scale", 1) != 1) {
    return n.Fail("elu with a scale");
  }
  n.Return(n.emit().Op("Elu", {n.In("self")}, {{"alpha", n.Real("alpha", 1)}}));
}

void Celu(Lowering& n) {
  n.Return(
      n.emit().Op("Celu", {n.In("self")}, {{"alpha", n.Real("alpha", 1)}}));
}

// The slope, one for each channel, lies along dimension 1.
void Prelu(Lowering& n) {
  const Operand x = n.Arg("self");
  const Operand slope = n.Arg("weight");
  ValueId weight = slope.id;
  if (slope.rank() == 1 && x.rank() > 2) {
    std::vector<int64_t> axes;
    for (int axis = 1; axis < x.rank() - 1; ++axis) axes.push_back(axis);
    weight = n.emit().Unsqueeze(weight, axes);
  }
  n.Return(n.emit().Op("PRelu", {x.id, weight}));
}

void Softplus(Lowering& n) {
  const double beta = n.Real("beta", 1);
  const double threshold = n.Real("threshold", 20);
  Input x = Real(n);
  Emitter& e = n.emit();
  const Input scaled = {x.type, beta == 1 ? x.id : With(n, "Mul", x, beta)};
  Input y = {x.type, e.Op("Softplus", {scaled.id})};
  if (beta != 1) y.id = With(n, "Div", y, beta);
  n.ReturnAs(x.type, e.Op("Where",
                          {With(n, "Greater", scaled, threshold), x.id, y.id}));
}

void LogSigmoid(Lowering& n) {
  const Input x = Real(n);
  Emitter& e = n.emit();
  n.Return(e.Op("Neg", {e.Op("Softplus", {e.Op("Neg", {x.id})})}));
}

void Threshold(Lowering& n) {
  const Operand x = n.Arg("self");
  Emitter& e = n.emit();
  const ValueId above =
      e.Op("Greater", {x.id, e.Value(n.Number("threshold"), x.dtype())});
  n.Return(e.Op("Where", {above, x.id, e.Value(n.Number("value"), x.dtype())}));
}

void Shrink(Lowering& n, bool soft) {
  const double lambda = n.Real("lambd", 0.5);
  n.Return(n.emit().Op("Shrink", {n.In("self")},
                       {{"lambd", lambda}, {"bias", soft ? lambda : 0.0}}));
}
void Softshrink(Lowering& n) { Shrink(n, true); }
void Hardshrink(Lowering& n) { Shrink(n, false); }

void Glu(Lowering& n) {
  const Operand x = n.Arg("self");
  const int64_t axis = n.Axis("dim", -1, x.rank());
  Emitter& e = n.emit();
  const auto halves =
      e.Ops("Split", {x.id}, {{"axis", axis}, {"num_outputs", int64_t{2}}}, 2);
  n.Return(e.Op("Mul", {halves[0], e.Op("Sigmoid", {halves[1]})}));
}

// Every form of to(): the file says what comes out.
void To(Lowering& n) {
  const Operand x = n.Arg("self");
  n.ReturnAs(x.dtype(), x.id);
}

constexpr AtenOp kRows[] = {
    {"aten.abs.default", SameType<"Abs">},
    {"aten.neg.default", SameType<"Neg">},
    {"aten.sign.default", SameType<"Sign">},
    {"aten.sgn.default", SameType<"Sign">},
    {"aten.relu.default", SameType<"Relu">},
    {"aten.ceil.default", Rounding<"Ceil">},
    {"aten.floor.default", Rounding<"Floor">},
    {"aten.round.default", Rounding<"Round">},
    {"aten.trunc.default", Trunc},
    {"aten.exp.default", RealOp<"Exp">},
    {"aten.log.default", RealOp<"Log">},
    {"aten.sqrt.default", RealOp<"Sqrt">},
    {"aten.reciprocal.default", RealOp<"Reciprocal">},
    {"aten.sin.default", RealOp<"Sin">},
    {"aten.cos.default", RealOp<"Cos">},
    {"aten.tan.default", RealOp<"Tan">},
    {"aten.asin.default", RealOp<"Asin">},
    {"aten.acos.default", RealOp<"Acos">},
    {"aten.atan.default", RealOp<"Atan">},
    {"aten.sinh.default", RealOp<"Sinh">},
    {"aten.cosh.default", RealOp<"Cosh">},
    {"aten.asinh.default", RealOp<"Asinh">},
    {"aten.acosh.default", RealOp<"Acosh">},
    {"aten.atanh.default", RealOp<"Atanh">},
    {"aten.tanh.default", RealOp<"Tanh">},
    {"aten.sigmoid.default", RealOp<"Sigmoid">},
    {"aten.erf.default", RealOp<"Erf">},
    {"aten.rsqrt.default", Rsqrt},
    {"aten.square.default", Square},
    {"aten.exp2.default", Exp2},
    {"aten.expm1.default", RealOp<"Expm1">},
    {"aten.log1p.default", RealOp<"Log1p">},
    {"aten.log2.default", Log2},
    {"aten.log10.default", Log10},
    {"aten.logical_not.default", LogicalNot},
    {"aten.bitwise_not.default", BitwiseNot},
    {"aten.isnan.default", IsNan},
    {"aten.isinf.default", IsInf},
    {"aten.isfinite.default", IsFinite},
    {"aten.gelu.default", Gelu},
    {"aten.silu.default", Silu},
    {"aten.mish.default", SameType<"Mish">},
    {"aten.selu.default", SameType<"Selu">},
    {"aten.hardswish.default", SameType<"HardSwish">},
    {"aten.hardsigmoid.default", HardSigmoid},
    {"aten.hardtanh.default", Hardtanh},
    {"aten.relu6.default", Relu6},
    {"aten.leaky_relu.default", LeakyRelu},
    {"aten.elu.default", Elu},
    {"aten.celu.default", Celu},
    {"aten.prelu.default", Prelu},
    {"aten._prelu_kernel.default", Prelu},
    {"aten.softplus.default", Softplus},
    {"aten.log_sigmoid.default", LogSigmoid},
    {"aten.threshold.default", Threshold},
    {"aten.softshrink.default", Softshrink},
    {"aten.hardshrink.default", Hardshrink},
    {"aten.glu.default", Glu},
    {"aten.native_dropout.default", Dropout},
    {"aten.dropout.default", Dropout, Alias::kAlways},
    {"aten.feature_dropout.default", Dropout, Alias::kAlways},
    {"aten.alpha_dropout.default", Dropout, Alias::kAlways},
    {"aten.alias.default", Identity, Alias::kAlways},
    {"aten.detach.default", Identity, Alias::kAlways},
    {"aten.lift.default", Identity, Alias::kAlways},
    {"aten.lift_fresh.default", Identity, Alias::kAlways},
    {"aten.lift_fresh_copy.default", Identity},
    {"aten.detach_copy.default", Identity},
    {"aten.alias_copy.default", Identity},
    {"aten.clone.default", Identity},
    {"aten.positive.default", Identity, Alias::kAlways},
    {"aten.contiguous.default", Identity, Alias::kIfSameLayout},
    {"aten.to.dtype", To, Alias::kIfSameType},
    {"aten.to.dtype_layout", To, Alias::kIfSameType},
    {"aten.to.device", To, Alias::kIfSameType},
    {"aten.to.other", To, Alias::kIfSameType},
    {"aten.type_as.default", To, Alias::kIfSameType},
    {"aten._to_copy.default", To},
};

}  // namespace

std::span<const AtenOp> UnaryRows() { return kRows; }

}  // namespace millrace::models::graph::pt2
