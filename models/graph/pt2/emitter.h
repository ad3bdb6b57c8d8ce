// Appends nodes to a graph, with the small steps that lowering is made of.
//
//   Emitter emit(&graph, max_nodes);
//   const ValueId y = emit.Op("Add", {x, emit.Number(1.0, DType::kF32)});
//   const ValueId size = emit.List({emit.SizeOf(x, 0), Num::Of(64)});
//
// The first failure (an operator that is missing) is kept in status() and what
// follows it does no harm: whoever lowers a node looks once, at its end.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "config/base/status.h"
#include "models/graph/ir.h"

namespace millrace::models::graph::pt2 {

// A number that is known now, or is the value of rank 0 that the graph
// computes.
struct Num {
  DType dtype = DType::kI64;  // INT64, FP64 or BOOL
  ValueId id = kNoValue;      // kNoValue: known
  int64_t integer = 0;
  double real = 0;

  static Num Of(int64_t value) { return {.integer = value}; }
  static Num Real(double value) {
    return {.dtype = DType::kF64, .real = value};
  }
  static Num Truth(bool value) {
    return {.dtype = DType::kBool, .integer = value ? 1 : 0};
  }
  bool known() const { return id == kNoValue; }
  bool Is(int64_t value) const {
    return known() && dtype == DType::kI64 && integer == value;
  }
  double AsReal() const {
    return dtype == DType::kF64 ? real : static_cast<double>(integer);
  }
};

class Emitter {
 public:
  Emitter(Graph* graph, int64_t max_nodes)
      : graph_(graph), max_nodes_(max_nodes) {}

  // What nodes are called from now on.
  void SetName(std::string name) { name_ = std::move(name); }
  void Fail(Status status);
  Status TakeStatus();
  bool ok() const { return status_.ok(); }
  Graph& graph() { return *graph_; }

  ValueId Op(std::string_view op, std::vector<ValueId> inputs,
             Attrs attrs = {});
  std::vector<ValueId> Ops(std::string_view op, std::vector<ValueId> inputs,
                           Attrs attrs, size_t num_outputs);

  // The node that made the value; null for inputs and constants. Good until
  // the next node.
  const Node* MakerOf(ValueId value) const;

  // Constants; equal lists of integers are made once.
  ValueId Constant(Tensor tensor);
  ValueId Number(double value, DType dtype);  // rank 0
  ValueId Integer(int64_t value, DType dtype);
  ValueId Ints(const std::vector<int64_t>& values);  // INT64, rank 1

  ValueId Cast(ValueId x, DType from, DType to);
  ValueId Reshape(ValueId x, const std::vector<Num>& sizes);
  ValueId ReshapeLike(ValueId x, ValueId like);
  ValueId Expand(ValueId x, ValueId sizes);
  ValueId Transpose(ValueId x, const std::vector<int64_t>& order);
  ValueId Unsqueeze(ValueId x, const std::vector<int64_t>& axes);
  ValueId Squeeze(ValueId x, const std::vector<int64_t>& axes);
  ValueId Slice(ValueId x, int64_t axis, Num start, Num end, Num step);
  ValueId Concat(std::vector<ValueId> parts, int64_t axis);
  ValueId Shape(ValueId x);
  Num SizeOf(ValueId x, int64_t axis);

  // A value of rank 0 and of `dtype`; a list of rank 1, INT64.
  ValueId Value(const Num& number, DType dtype);
  ValueId List(const std::vector<Num>& numbers);
  // Folded when both are known. `op`: Add, Sub, Mul, Div (of integers: of
  // equal sign, exact), …
  Num Add(const Num& a, const Num& b);
  Num Sub(const Num& a, const Num& b);
  Num Mul(const Num& a, const Num& b);
  Num FloorDiv(const Num& a, const Num& b);

 private:
  Graph* graph_;
  const int64_t max_nodes_;
  std::string name_;
  Status status_;
  std::map<std::vector<int64_t>, ValueId> lists_;
  std::unordered_map<ValueId, size_t> made_by_;  // index of the node
};

}  // namespace millrace::models::graph::pt2
