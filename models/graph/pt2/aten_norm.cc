// Normalisations and softmax. Those that PyTorch has with statistics as further
// results give the first result alone.
#include <cmath>
#include <limits>
#include <utility>

#include "models/graph/pt2/aten.h"

namespace millrace::models::graph::pt2 {
namespace {

// The operand, or as many of one value when it is left out.
ValueId OrFilled(Lowering& n, std::string_view name, double value,
                 const std::vector<Num>& sizes, DType type) {
  if (n.Has(name)) return n.In(name);
  return n.emit().Expand(n.emit().Number(value, type), n.emit().List(sizes));
}

// By the statistics of the operand itself, as layers do that standardise their
// weights.
void OwnStatistics(Lowering& n) {
  const Operand x = n.Arg("input");
  if (x.rank() < 2) return n.Fail("an operand with channels is needed");
  Emitter& e = n.emit();
  std::vector<int64_t> others = {0};
  std::vector<int64_t> behind;
  for (int64_t axis = 2; axis < x.rank(); ++axis) {
    others.push_back(axis);
    behind.push_back(axis - 1);
  }
  const auto mean = [&](ValueId of) {
    return e.Op("ReduceMean", {of, e.Ints(others)}, {{"keepdims", int64_t{1}}});
  };
  const ValueId away = e.Op("Sub", {x.id, mean(x.id)});
  const ValueId variance = mean(e.Op("Mul", {away, away}));
  const ValueId deviation =
      e.Op("Sqrt",
           {e.Op("Add", {variance, e.Number(n.Real("eps", 1e-5), x.dtype())})});
  ValueId y = e.Op("Div", {away, deviation});
  if (n.Has("weight")) {
    y = e.Op("Mul", {y, e.Unsqueeze(n.In("weight"), behind)});
  }
  if (n.Has("bias")) y = e.Op("Add", {y, e.Unsqueeze(n.In("bias"), behind)});
  n.Return(y);
}

void TrainingNorm(Lowering& n) {
  n.Fail("batch norm of training; export the model after eval()");
}

void BatchNorm(Lowering& n) {
  const Operand x = n.Arg("input");
  if (n.Flag("training", false)) {
    if (n.Has("running_mean")) return TrainingNorm(n);
    return OwnStatistics(n);
  }
  if (x.rank() < 2) return n.Fail("an operand with channels is needed");
  if (!n.Has("running_mean") || !n.Has("running_var")) {
    return n.Fail("batch norm without statistics");
  }
  const std::vector<Num> channels = {n.Size(x, 1)};
  n.Return(n.emit().Op("BatchNormalization",
                       {x.id, OrFilled(n, "weight", 1, channels, x.dtype()),
                        OrFilled(n, "bias", 0, channels, x.dtype()),
                        n.In("running_mean"), n.In("running_var")},
                       {{"epsilon", n.Real("eps", 1e-5)}}));
}

void InstanceNorm(Lowering& n) {
  const Operand x = n.Arg("input");
  if (!n.Flag("use_input_stats", true)) return BatchNorm(n);
  if (x.rank() < 3) return n.Fail("an operand of images is needed");
  const std::vector<Num> channels = {n.Size(x, 1)};
  n.Return(n.emit().Op("InstanceNormalization",
                       {x.id, OrFilled(n, "weight", 1, channels, x.dtype()),
                        OrFilled(n, "bias", 0, channels, x.dtype())},
                       {{"epsilon", n.Real("eps", 1e-5)}}));
}

void LayerNorm(Lowering& n) {
  const Operand x = n.Arg("input");
  const std::vector<Num> sizes = n.Numbers("normalized_shape");
  std::vector<ValueId> operands = {x.id,
                                   OrFilled(n, "weight", 1, sizes, x.dtype())};
  if (n.Has("bias")) operands.push_back(n.In("bias"));
  n.Return(n.emit().Op("LayerNormalization", std::move(operands),
                       {{"axis", -static_cast<int64_t>(sizes.size())},
                        {"epsilon", n.Real("eps", 1e-5)}}));
}

double SmallestStep(DType type) {
  switch (type) {
    case DType::kF64:
      return std::numeric_limits<double>::epsilon();
    case DType::kF16:
      return 0x1p-10;
    case DType::kBF16:
      return 0x1p-7;
    default:
      return 0x1p-23;
  }
}

void RmsNorm(Lowering& n) {
  const Operand x = n.Arg("input");
  const std::vector<Num> sizes = n.Numbers("normalized_shape");
  n.Return(n.emit().Op("RMSNormalization",
                       {x.id, OrFilled(n, "weight", 1, sizes, x.dtype())},
                       {{"axis", -static_cast<int64_t>(sizes.size())},
                        {"epsilon", n.Real("eps", SmallestStep(x.dtype()))}}));
}

void GroupNorm(Lowering& n) {
  const Operand x = n.Arg("input");
  if (x.rank() < 2) return n.Fail("an operand with channels is needed");
  const std::vector<Num> channels = {n.Size(x, 1)};
  n.Return(n.emit().Op(
      "GroupNormalization",
      {x.id, OrFilled(n, "weight", 1, channels, x.dtype()),
       OrFilled(n, "bias", 0, channels, x.dtype())},
      {{"num_groups", n.Int(n.Has("group") ? "group" : "num_groups", 1)},
       {"epsilon", n.Real("eps", 1e-5)}}));
}

void Along(Lowering& n, std::string_view op) {
  const Operand x = n.Arg("self");
  Emitter& e = n.emit();
  const DType type = n.OutType(0);
  const ValueId cast = e.Cast(x.id, x.dtype(), type);
  if (x.rank() == 0) {
    return n.Return(e.Number(op == "Softmax" ? 1 : 0, type));
  }
  n.Return(e.Op(op, {cast}, {{"axis", n.Axis("dim", -1, x.rank())}}));
}
void Softmax(Lowering& n) { Along(n, "Softmax"); }
void LogSoftmax(Lowering& n) { Along(n, "LogSoftmax"); }

// Zeros where everything is minus infinity.
void SafeSoftmax(Lowering& n) {
  const Operand x = n.Arg("self");
  Emitter& e = n.emit();
  const DType type = n.OutType(0);
  const int64_t axis = n.Axis("dim", -1, x.rank());
  const ValueId cast = e.Cast(x.id, x.dtype(), type);
  const ValueId most =
      e.Op("ReduceMax", {cast, e.Ints({axis})}, {{"keepdims", int64_t{1}}});
  const ValueId masked =
      e.Op("Equal",
           {most, e.Number(-std::numeric_limits<double>::infinity(), type)});
  n.Return(e.Op("Where", {masked, e.Number(0, type),
                          e.Op("Softmax", {cast}, {{"axis", axis}})}));
}

constexpr AtenOp kRows[] = {
    {"aten.batch_norm.default", BatchNorm},
    {"aten._native_batch_norm_legit_no_training.default", BatchNorm},
    {"aten._native_batch_norm_legit.default", BatchNorm},
    {"aten._native_batch_norm_legit.no_stats", OwnStatistics},
    {"aten._native_batch_norm_legit_functional.default", TrainingNorm},
    {"aten.native_batch_norm.default", BatchNorm},
    {"aten.instance_norm.default", InstanceNorm},
    {"aten.layer_norm.default", LayerNorm},
    {"aten.native_layer_norm.default", LayerNorm},
    {"aten.rms_norm.default", RmsNorm},
    {"aten._fused_rms_norm.default", RmsNorm},
    {"aten.group_norm.default", GroupNorm},
    {"aten.native_group_norm.default", GroupNorm},
    {"aten.softmax.int", Softmax},
    {"aten._softmax.default", Softmax},
    {"aten.special_softmax.int", Softmax},
    {"aten.log_softmax.int", LogSoftmax},
    {"aten._log_softmax.default", LogSoftmax},
    {"aten._safe_softmax.default", SafeSoftmax},
};

}  // namespace

std::span<const AtenOp> NormRows() { return kRows; }

}  // namespace millrace::models::graph::pt2
