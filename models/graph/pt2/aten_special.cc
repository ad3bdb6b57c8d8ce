// Less common functions of elements, rows and pairs.
#include <limits>
#include <string>

#include "models/graph/pt2/aten.h"
#include "models/graph/pt2/sides.h"
#include "models/tensor/shape.h"

namespace millrace::models::graph::pt2 {
namespace {

struct Input {
  DType type;
  ValueId id;
  int rank;
};
Input Real(Lowering& n, const char* name) {
  const Operand x = n.Arg(name);
  const DType type = IsFloat(x.dtype()) ? x.dtype() : DType::kF32;
  return {type, n.emit().Cast(x.id, x.dtype(), type), x.rank()};
}

ValueId Is(Emitter& e, ValueId x, bool plus, bool minus) {
  return e.Op("IsInf", {x},
              {{"detect_positive", int64_t{plus}},
               {"detect_negative", int64_t{minus}}});
}
void IsPosInf(Lowering& n) {
  n.Return(Is(n.emit(), Real(n, "self").id, true, false));
}
void IsNegInf(Lowering& n) {
  n.Return(Is(n.emit(), Real(n, "self").id, false, true));
}

void NanToNum(Lowering& n) {
  const Operand x = n.Arg("self");
  if (!IsFloat(x.dtype())) return n.Return(x.id);
  const double largest = x.dtype() == DType::kF64    ? 1.7976931348623157e308
                         : x.dtype() == DType::kF16  ? 65504
                         : x.dtype() == DType::kBF16 ? 3.3895313892515355e38
                                                     : 3.4028234663852886e38;
  Emitter& e = n.emit();
  ValueId y = e.Op("Where", {e.Op("IsNaN", {x.id}),
                             e.Number(n.Real("nan", 0), x.dtype()), x.id});
  y = e.Op("Where", {Is(e, x.id, true, false),
                     e.Number(n.Real("posinf", largest), x.dtype()), y});
  n.Return(e.Op("Where", {Is(e, x.id, false, true),
                          e.Number(n.Real("neginf", -largest), x.dtype()), y}));
}

void Erfc(Lowering& n) {
  const Input x = Real(n, "self");
  n.ReturnAs(x.type, n.emit().Op("Erfc", {x.id}));
}

void Logit(Lowering& n) {
  Input x = Real(n, "self");
  Emitter& e = n.emit();
  if (n.Has("eps")) {
    const double eps = n.Real("eps", 0);
    x.id =
        e.Op("Clip", {x.id, e.Number(eps, x.type), e.Number(1 - eps, x.type)});
  }
  const ValueId rest = e.Op("Sub", {e.Number(1, x.type), x.id});
  n.ReturnAs(x.type, e.Op("Log", {e.Op("Div", {x.id, rest})}));
}

// log(eᵃ + eᵇ) = max + log(1 + e^(-|a - b|))
void LogAddExp(Lowering& n) {
  const Pair p = Operands(n, true);
  Emitter& e = n.emit();
  const ValueId most = e.Op("Max", {p.a, p.b});
  const ValueId away = e.Op("Neg", {e.Op("Abs", {e.Op("Sub", {p.a, p.b})})});
  const ValueId sum = e.Op("Add", {most, e.Op("Softplus", {away})});
  // Of two infinities there is no difference.
  n.ReturnAs(p.type, e.Op("Where", {e.Op("IsInf", {most}), most, sum}));
}

void Hypot(Lowering& n) {
  const Input a = Real(n, "self");
  const Input b = Real(n, "other");
  Emitter& e = n.emit();
  n.ReturnAs(a.type, e.Op("Sqrt", {e.Op("Add", {e.Op("Mul", {a.id, a.id}),
                                                e.Op("Mul", {b.id, b.id})})}));
}

void Frac(Lowering& n) {
  const Operand x = n.Arg("self");
  Emitter& e = n.emit();
  const ValueId whole =
      e.Op("Where", {e.Op("Less", {x.id, e.Number(0, x.dtype())}),
                     e.Op("Ceil", {x.id}), e.Op("Floor", {x.id})});
  n.Return(e.Op("Sub", {x.id, whole}));
}

void Times(Lowering& n, double factor) {
  const Input x = Real(n, "self");
  n.ReturnAs(x.type,
             n.emit().Op("Mul", {x.id, n.emit().Number(factor, x.type)}));
}
void Deg2Rad(Lowering& n) { Times(n, 0.017453292519943295); }
void Rad2Deg(Lowering& n) { Times(n, 57.29577951308232); }

// x · log(y), 0 where x is.
void XLogY(Lowering& n) {
  const Pair p = Operands(n, true);
  Emitter& e = n.emit();
  const ValueId zero = e.Number(0, p.type);
  const ValueId y = e.Op("Mul", {p.a, e.Op("Log", {p.b})});
  n.ReturnAs(p.type, e.Op("Where", {e.Op("Equal", {p.a, zero}), zero, y}));
}
// -x · log(x), 0 where x is; below 0 minus infinity.
void Entropy(Lowering& n) {
  const Input x = Real(n, "self");
  Emitter& e = n.emit();
  const ValueId zero = e.Number(0, x.type);
  const ValueId y = e.Op("Neg", {e.Op("Mul", {x.id, e.Op("Log", {x.id})})});
  const ValueId rest =
      e.Op("Where",
           {e.Op("Less", {x.id, zero}),
            e.Number(-std::numeric_limits<double>::infinity(), x.type), zero});
  n.ReturnAs(x.type, e.Op("Where", {e.Op("Greater", {x.id, zero}), y, rest}));
}

// sin(πx) / πx
void Sinc(Lowering& n) {
  const Input x = Real(n, "self");
  Emitter& e = n.emit();
  const ValueId turn = e.Op("Mul", {x.id, e.Number(3.141592653589793, x.type)});
  const ValueId zero = e.Number(0, x.type);
  n.ReturnAs(x.type,
             e.Op("Where", {e.Op("Equal", {x.id, zero}), e.Number(1, x.type),
                            e.Op("Div", {e.Op("Sin", {turn}), turn})}));
}

// (1 + erf(x / √2)) / 2
void NormalShare(Lowering& n) {
  const Input x = Real(n, "self");
  Emitter& e = n.emit();
  const ValueId erf =
      e.Op("Erf", {e.Op("Mul", {x.id, e.Number(0.7071067811865476, x.type)})});
  n.ReturnAs(x.type, e.Op("Mul", {e.Op("Add", {erf, e.Number(1, x.type)}),
                                  e.Number(0.5, x.type)}));
}

void SignBit(Lowering& n) {
  const Operand x = n.Arg("self");
  n.ReturnAs(DType::kBool,
             n.emit().Op("Less", {x.id, n.emit().Number(0, x.dtype())}));
}

// The first's size with the second's sign.
void CopySign(Lowering& n) {
  const Pair p = Operands(n, true);
  Emitter& e = n.emit();
  const ValueId size = e.Op("Abs", {p.a});
  n.ReturnAs(p.type, e.Op("Where", {e.Op("Less", {p.b, e.Number(0, p.type)}),
                                    e.Op("Neg", {size}), size}));
}

void Heaviside(Lowering& n) {
  const Pair p = Operands(n, false, "self", "values");
  Emitter& e = n.emit();
  const ValueId zero = e.Number(0, p.type);
  const ValueId step =
      e.Cast(e.Op("Greater", {p.a, zero}), DType::kBool, p.type);
  n.ReturnAs(p.type, e.Op("Where", {e.Op("Equal", {p.a, zero}), p.b, step}));
}

void FloatPower(Lowering& n) {
  const Pair p = Operands(n, true, "self", "exponent");
  Emitter& e = n.emit();
  n.ReturnAs(DType::kF64, e.Op("Pow", {e.Cast(p.a, p.type, DType::kF64),
                                       e.Cast(p.b, p.type, DType::kF64)}));
}

void LdExp(Lowering& n) {
  const Pair p = Operands(n, true);
  Emitter& e = n.emit();
  n.ReturnAs(p.type,
             e.Op("Mul", {p.a, e.Op("Pow", {e.Number(2, p.type), p.b})}));
}

// |a - b| <= atol + rtol · |b|
void IsClose(Lowering& n) {
  const Pair p = Operands(n, true);
  Emitter& e = n.emit();
  const auto number = [&](const char* name, double otherwise) {
    return e.Number(n.Real(name, otherwise), p.type);
  };
  const ValueId room =
      e.Op("Add", {number("atol", 1e-8),
                   e.Op("Mul", {number("rtol", 1e-5), e.Op("Abs", {p.b})})});
  const ValueId near =
      e.Op("LessOrEqual", {e.Op("Abs", {e.Op("Sub", {p.a, p.b})}), room});
  ValueId same = e.Op("Equal", {p.a, p.b});
  if (n.Flag("equal_nan", false)) {
    same =
        e.Op("Or",
             {same, e.Op("And", {e.Op("IsNaN", {p.a}), e.Op("IsNaN", {p.b})})});
  }
  n.ReturnAs(DType::kBool, e.Op("Or", {same, near}));
}

// Of reals: 0 or π.
void Angle(Lowering& n) {
  const Input x = Real(n, "self");
  Emitter& e = n.emit();
  const ValueId zero = e.Number(0, x.type);
  const ValueId turned = e.Op(
      "Where",
      {e.Op("Less", {x.id, zero}), e.Number(3.141592653589793, x.type), zero});
  n.ReturnAs(x.type, e.Op("Where", {e.Op("IsNaN", {x.id}), x.id, turned}));
}

void CountNonzero(Lowering& n) {
  const Operand x = n.Arg("self");
  Emitter& e = n.emit();
  const ValueId truth = e.Cast(x.id, x.dtype(), DType::kBool);
  n.Return(e.Op("ReduceSum",
                {e.Cast(truth, DType::kBool, DType::kI64),
                 e.Ints(n.Axes("dim", x.rank()))},
                {{"keepdims", int64_t{0}}}));
}

void AMinMax(Lowering& n) {
  const Operand x = n.Arg("self");
  Emitter& e = n.emit();
  const ValueId axes = e.Ints(n.Axes("dim", x.rank()));
  const Attrs attrs = {{"keepdims", int64_t{n.Flag("keepdim", false)}}};
  n.Return(0, e.Op("ReduceMin", {x.id, axes}, attrs));
  n.Return(1, e.Op("ReduceMax", {x.id, axes}, attrs));
}

void CumProd(Lowering& n) {
  const Operand x = n.Arg("self");
  Emitter& e = n.emit();
  n.Return(
      e.Op("CumProd", {e.Cast(x.id, x.dtype(), n.OutType(0)),
                       e.Integer(n.Axis("dim", 0, x.rank()), DType::kI64)}));
}

// v · g / |v|, the norm taken over all axes but one.
void WeightNorm(Lowering& n) {
  const Operand v = n.Arg("v");
  Emitter& e = n.emit();
  const int64_t kept = n.Axis("dim", 0, v.rank());
  std::vector<int64_t> axes;
  for (int64_t axis = 0; axis < v.rank(); ++axis) {
    if (axis != kept) axes.push_back(axis);
  }
  const ValueId norm =
      e.Op("ReduceL2", {v.id, e.Ints(axes)}, {{"keepdims", int64_t{1}}});
  n.Return(0, e.Op("Mul", {v.id, e.Op("Div", {n.In("g"), norm})}));
  n.Return(1, norm);
}

void LogSigmoidForward(Lowering& n) {
  const Input x = Real(n, "self");
  Emitter& e = n.emit();
  n.Return(e.Op("Neg", {e.Op("Softplus", {e.Op("Neg", {x.id})})}));
}

// |a - b| along the last axis, of each row of a with each of b.
void CDist(Lowering& n) {
  const Operand a = n.Arg("x1");
  const Operand b = n.Arg("x2");
  const double p = n.Real("p", 2);
  if (a.rank() != b.rank() || a.rank() < 2 || (p != 1 && p != 2)) {
    return n.Fail("distances of order " + std::to_string(p));
  }
  Emitter& e = n.emit();
  const ValueId away = e.Op("Sub", {e.Unsqueeze(a.id, {a.rank() - 1}),
                                    e.Unsqueeze(b.id, {a.rank() - 2})});
  n.Return(e.Op(p == 1 ? "ReduceL1" : "ReduceL2", {away, e.Ints({a.rank()})},
                {{"keepdims", int64_t{0}}}));
}

void CosineSimilarity(Lowering& n) {
  const Operand a = n.Arg("x1");
  const Operand b = n.Arg("x2");
  if (a.rank() != b.rank()) return n.Fail("operands of different ranks");
  Emitter& e = n.emit();
  const ValueId axes = e.Ints({n.Axis("dim", 1, a.rank())});
  const Attrs attrs = {{"keepdims", int64_t{0}}};
  const ValueId least = e.Number(n.Real("eps", 1e-8), a.dtype());
  const auto norm = [&](ValueId x) {
    return e.Op("Max", {e.Op("ReduceL2", {x, axes}, attrs), least});
  };
  n.Return(
      e.Op("Div", {e.Op("ReduceSum", {e.Op("Mul", {a.id, b.id}), axes}, attrs),
                   e.Op("Mul", {norm(a.id), norm(b.id)})}));
}

void VecDot(Lowering& n) {
  const Operand a = n.Arg("x");
  const Operand b = n.Arg("y");
  Emitter& e = n.emit();
  n.Return(e.Op("ReduceSum",
                {e.Op("Mul", {a.id, b.id}),
                 e.Ints({n.Axis("dim", -1, std::max(a.rank(), b.rank()))})},
                {{"keepdims", int64_t{0}}}));
}

// Places on and below, or on and above, a diagonal of a fixed matrix.
void TriangleIndices(Lowering& n, bool upper) {
  const int64_t rows = n.Int("row", 0);
  const int64_t columns = n.Int("col", 0);
  const int64_t offset = n.Int("offset", 0);
  if (rows < 0 || columns < 0 || rows > (1 << 12) || columns > (1 << 12)) {
    return n.Fail("a triangle of this size");
  }
  std::vector<int64_t> places[2];
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t column = 0; column < columns; ++column) {
      const int64_t above = column - row;
      if (upper ? above < offset : above > offset) continue;
      places[0].push_back(row);
      places[1].push_back(column);
    }
  }
  Emitter& e = n.emit();
  const ValueId both = e.Concat({e.Unsqueeze(e.Ints(places[0]), {0}),
                                 e.Unsqueeze(e.Ints(places[1]), {0})},
                                0);
  n.Return(e.Cast(both, DType::kI64, n.OutType(0)));
}
void TrilIndices(Lowering& n) { TriangleIndices(n, false); }
void TriuIndices(Lowering& n) { TriangleIndices(n, true); }

void Ravel(Lowering& n) {
  n.Return(n.emit().Reshape(n.In("self"), {Num::Of(-1)}));
}

constexpr AtenOp kRows[] = {
    {"aten.xlogy.Tensor", XLogY},
    {"aten.xlogy.Scalar_Other", XLogY},
    {"aten.xlogy.Scalar_Self", XLogY},
    {"aten.special_entr.default", Entropy},
    {"aten.sinc.default", Sinc},
    {"aten.special_ndtr.default", NormalShare},
    {"aten.signbit.default", SignBit},
    {"aten.copysign.Tensor", CopySign},
    {"aten.copysign.Scalar", CopySign},
    {"aten.heaviside.default", Heaviside},
    {"aten.float_power.Tensor_Scalar", FloatPower},
    {"aten.float_power.Tensor_Tensor", FloatPower},
    {"aten.ldexp.Tensor", LdExp},
    {"aten.isclose.default", IsClose},
    {"aten.angle.default", Angle},
    {"aten.isposinf.default", IsPosInf},
    {"aten.isneginf.default", IsNegInf},
    {"aten.nan_to_num.default", NanToNum},
    {"aten.erfc.default", Erfc},
    {"aten.logit.default", Logit},
    {"aten.logaddexp.default", LogAddExp},
    {"aten.hypot.default", Hypot},
    {"aten.frac.default", Frac},
    {"aten.deg2rad.default", Deg2Rad},
    {"aten.rad2deg.default", Rad2Deg},
    {"aten.log_sigmoid_forward.default", LogSigmoidForward},
    {"aten.count_nonzero.default", CountNonzero},
    {"aten.count_nonzero.dim_IntList", CountNonzero},
    {"aten.aminmax.default", AMinMax},
    {"aten.cumprod.default", CumProd},
    {"aten._weight_norm.default", WeightNorm},
    {"aten._weight_norm_interface.default", WeightNorm},
    {"aten.cdist.default", CDist},
    {"aten._cdist_forward.default", CDist},
    {"aten.cosine_similarity.default", CosineSimilarity},
    {"aten.linalg_vecdot.default", VecDot},
    {"aten.tril_indices.default", TrilIndices},
    {"aten.triu_indices.default", TriuIndices},
    {"aten.ravel.default", Ravel, Alias::kIfStrided},
};

}  // namespace

std::span<const AtenOp> SpecialRows() { return kRows; }

}  // namespace millrace::models::graph::pt2
