// Losses: what a network exported with its training goal ends in.
#include "models/graph/pt2/aten.h"

namespace millrace::models::graph::pt2 {
namespace {

// reduction: 0 none, 1 the mean, 2 the sum.
void ReturnLoss(Lowering& n, DType type, ValueId loss) {
  const int64_t reduction = n.Int("reduction", 1);
  if (reduction < 0 || reduction > 2) return n.Fail("reduction out of range");
  if (reduction == 0) return n.ReturnAs(type, loss);
  n.ReturnAs(type, n.emit().Op(reduction == 1 ? "ReduceMean" : "ReduceSum",
                               {loss}, {{"keepdims", int64_t{0}}}));
}

struct Two {
  DType type;
  ValueId x;
  ValueId target;
};
Two Operands(Lowering& n) {
  const Operand x = n.Arg("self");
  const Operand target = n.Arg("target");
  return {x.dtype(), x.id, n.emit().Cast(target.id, target.dtype(), x.dtype())};
}

void MseLoss(Lowering& n) {
  const Two t = Operands(n);
  Emitter& e = n.emit();
  const ValueId away = e.Op("Sub", {t.x, t.target});
  ReturnLoss(n, t.type, e.Op("Mul", {away, away}));
}

void L1Loss(Lowering& n) {
  const Two t = Operands(n);
  Emitter& e = n.emit();
  ReturnLoss(n, t.type, e.Op("Abs", {e.Op("Sub", {t.x, t.target})}));
}

// Below `knee` half the square by `knee`, above it the distance less half of
// `knee`; Huber's is `knee` times that.
void Smooth(Lowering& n, double knee, double scale) {
  const Two t = Operands(n);
  Emitter& e = n.emit();
  const ValueId away = e.Op("Abs", {e.Op("Sub", {t.x, t.target})});
  if (knee <= 0) return ReturnLoss(n, t.type, away);
  const auto times = [&](ValueId x, double factor) {
    return e.Op("Mul", {x, e.Number(factor, t.type)});
  };
  const ValueId near = times(e.Op("Mul", {away, away}), 0.5 / knee * scale);
  const ValueId far =
      times(e.Op("Sub", {away, e.Number(0.5 * knee, t.type)}), scale);
  ReturnLoss(
      n, t.type,
      e.Op("Where", {e.Op("Less", {away, e.Number(knee, t.type)}), near, far}));
}
void SmoothL1Loss(Lowering& n) { Smooth(n, n.Real("beta", 1), 1); }
void HuberLoss(Lowering& n) {
  const double delta = n.Real("delta", 1);
  Smooth(n, delta, delta);
}

ValueId Weighted(Lowering& n, ValueId loss) {
  return n.Has("weight") ? n.emit().Op("Mul", {loss, n.In("weight")}) : loss;
}

// max(log x, -100), as PyTorch bounds it.
ValueId BoundedLog(Emitter& e, DType type, ValueId x) {
  return e.Op("Max", {e.Op("Log", {x}), e.Number(-100, type)});
}
void BinaryCrossEntropy(Lowering& n) {
  const Two t = Operands(n);
  Emitter& e = n.emit();
  const auto rest = [&](ValueId x) {
    return e.Op("Sub", {e.Number(1, t.type), x});
  };
  const ValueId sum = e.Op(
      "Add", {e.Op("Mul", {t.target, BoundedLog(e, t.type, t.x)}),
              e.Op("Mul", {rest(t.target), BoundedLog(e, t.type, rest(t.x))})});
  ReturnLoss(n, t.type, Weighted(n, e.Op("Neg", {sum})));
}

// (1 - t) x + (1 + (p - 1) t) softplus(-x)
void BinaryCrossEntropyWithLogits(Lowering& n) {
  const Two t = Operands(n);
  Emitter& e = n.emit();
  const ValueId one = e.Number(1, t.type);
  ValueId soft = e.Op("Softplus", {e.Op("Neg", {t.x})});
  if (n.Has("pos_weight")) {
    const ValueId more = e.Op("Sub", {n.In("pos_weight"), one});
    soft =
        e.Op("Mul", {soft, e.Op("Add", {one, e.Op("Mul", {more, t.target})})});
  }
  const ValueId linear = e.Op("Mul", {e.Op("Sub", {one, t.target}), t.x});
  ReturnLoss(n, t.type, Weighted(n, e.Op("Add", {linear, soft})));
}

// t (log t - x), 0 where t is.
void KlDiv(Lowering& n) {
  const Two t = Operands(n);
  Emitter& e = n.emit();
  if (n.Flag("log_target", false)) {
    return ReturnLoss(
        n, t.type,
        e.Op("Mul", {e.Op("Exp", {t.target}), e.Op("Sub", {t.target, t.x})}));
  }
  const ValueId zero = e.Number(0, t.type);
  const ValueId loss =
      e.Op("Mul", {t.target, e.Op("Sub", {e.Op("Log", {t.target}), t.x})});
  ReturnLoss(n, t.type,
             e.Op("Where", {e.Op("Greater", {t.target, zero}), loss, zero}));
}

// Of logarithms of probabilities [n, classes, ...] and classes [n, ...], those
// of ignore_index left out; the mean is over the rest, each by its weight.
void NegativeLogLikelihood(Lowering& n, ValueId log, const Operand& x) {
  const Operand target = n.Arg("target");
  if (x.rank() < 2 || target.rank() != x.rank() - 1 ||
      IsFloat(target.dtype()) || n.Real("label_smoothing", 0) != 0) {
    return n.Fail("a loss of this form (one row, probabilities, smoothing)");
  }
  Emitter& e = n.emit();
  const DType type = x.dtype();
  const ValueId wide = e.Cast(target.id, target.dtype(), DType::kI64);
  const ValueId ignored = e.Op(
      "Equal", {wide, e.Integer(n.Int("ignore_index", -100), DType::kI64)});
  const ValueId place =
      e.Op("Where", {ignored, e.Integer(0, DType::kI64), wide});
  const ValueId picked =
      e.Squeeze(e.Op("GatherElements", {log, e.Unsqueeze(place, {1})},
                     {{"axis", int64_t{1}}}),
                {1});
  const ValueId each = n.Has("weight")
                           ? e.Op("Gather", {n.In("weight"), place})
                           : e.Expand(e.Number(1, type), e.Shape(target.id));
  const ValueId weight = e.Op("Where", {ignored, e.Number(0, type), each});
  const ValueId loss = e.Op("Mul", {e.Op("Neg", {picked}), weight});
  const Attrs whole = {{"keepdims", int64_t{0}}};
  if (n.Int("reduction", 1) != 1) return ReturnLoss(n, type, loss);
  n.Return(0, e.Op("Div", {e.Op("ReduceSum", {loss}, whole),
                           e.Op("ReduceSum", {weight}, whole)}));
}
void NllLoss(Lowering& n) {
  const Operand x = n.Arg("self");
  NegativeLogLikelihood(n, x.id, x);
}
void CrossEntropyLoss(Lowering& n) {
  const Operand x = n.Arg("self");
  NegativeLogLikelihood(
      n, n.emit().Op("LogSoftmax", {x.id}, {{"axis", int64_t{1}}}), x);
}

constexpr AtenOp kRows[] = {
    {"aten.mse_loss.default", MseLoss},
    {"aten.l1_loss.default", L1Loss},
    {"aten.smooth_l1_loss.default", SmoothL1Loss},
    {"aten.huber_loss.default", HuberLoss},
    {"aten.binary_cross_entropy.default", BinaryCrossEntropy},
    {"aten.binary_cross_entropy_with_logits.default",
     BinaryCrossEntropyWithLogits},
    {"aten.kl_div.default", KlDiv},
    {"aten.nll_loss_nd.default", NllLoss},
    {"aten.nll_loss.default", NllLoss},
    {"aten.nll_loss2d.default", NllLoss},
    {"aten.nll_loss_forward.default", NllLoss},
    {"aten.nll_loss2d_forward.default", NllLoss},
    {"aten.cross_entropy_loss.default", CrossEntropyLoss},
};

}  // namespace

std::span<const AtenOp> LossRows() { return kRows; }

}  // namespace millrace::models::graph::pt2
