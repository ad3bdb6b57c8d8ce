// An operator: its name, what it makes of the types of its operands, a plain
// function that computes it on the host, and the facts that passes need of it.
// Faster ways to compute the same are chosen by the plan; the plain function
// always answers.
//
// Adding one: a row in the group's file under models/graph/ops, a row in the
// importer's table (PyTorch only: ONNX names are the graph's own), a row in the
// test. README.md of this folder shows it by an example.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "config/base/status.h"
#include "models/graph/ir.h"

namespace millrace::models::graph {

// An operand as far as it is known: its type always; its bytes when it is a
// constant or when the node is about to run.
struct Arg {
  bool given = false;
  DType dtype = DType::kF32;
  Shape shape;
  const std::byte* bytes = nullptr;

  template <typename T>
  const T* data() const {
    return reinterpret_cast<const T*>(bytes);
  }
  int64_t num_elements() const { return shape.num_elements(); }
};

struct Call {
  const Node& node;
  std::span<const Arg> args;

  const Attrs& attrs() const { return node.attrs; }
  // An operand that was left out is an Arg that is not given.
  const Arg& arg(size_t i) const;
  size_t num_outputs() const { return node.outputs.size(); }
};

// Where a result goes: dense, of the inferred type, not overlapping operands.
struct Result {
  DType dtype = DType::kF32;
  Shape shape;
  std::byte* bytes = nullptr;

  template <typename T>
  T* data() const {
    return reinterpret_cast<T*>(bytes);
  }
  int64_t num_elements() const { return shape.num_elements(); }
};

// Which part of a call this thread does. All members of a team make the same
// call with the same operands; there is no barrier inside.
struct Team {
  int index = 0;
  int count = 1;
  // This member's contiguous part of [0, n), in whole multiples of `unit`.
  std::pair<int64_t, int64_t> Share(int64_t n, int64_t unit = 1) const;
};

// Whether an operator's function divides its work among a team; otherwise
// member 0 alone calls it.
enum class Work : uint8_t { kWhole, kSplits };

// How the elements of the one result follow from those of the operands.
enum class Elementwise : uint8_t {
  kNo,
  kUnary,      // element i from element i of operand 0, and scalars beside it
  kBroadcast,  // element i from element i of all operands, broadcast
};

// Whether an operator works on tensors of strings.
enum class Strings : uint8_t {
  kNone,
  kTakes,  // reads them, or moves elements of any size
  kMakes,  // takes them, and makes new ones: the interpreter appends an operand
           // to the call, where they are kept (StoreOf, string_types.h)
};

// Operands that may hold the numbers of rows, as in x[row, …] for all rows.
enum class RowNumbers : uint8_t {
  kNone,
  kPlain,   // operand 1
  kTuples,  // operand 1, the first of each tuple along its last axis
};

// How the pass that chooses layouts (passes/layout.h) carries an operator to
// operands whose axes stand in another order. Elementwise operators and those
// that reshape need no rule.
enum class LayoutRule : uint8_t {
  kAsWritten,  // the axes must stand as they are written
  kTranspose,
  kConcat,
  kSplit,
  kSlice,
  kSelect,    // a Gather of one index
  kReduce,    // over the axes of the attribute or of operand 1
  kOneScale,  // elementwise where operand 1 is one number
  kSoftmax,
  kLayerNorm,
  kBatchNorm,
  kGroupNorm,
  kPool,
  kResize,
  kConv,
  kConvTranspose,
  kLinear,  // the weight is [outputs, inputs]
  kMatMul,
  kGemm,
  kAttention,
};

struct Activation;  // fused_params.h
class RowView;      // row_view.h

// A layer: operand 0 meets a weight, which is operand 1.
struct LayerFacts {
  // The axis of the weight along which the outputs lie.
  int (*outputs_axis)(const Node& node) = nullptr;
  // Axes of a weight that the int8 kernels take.
  int min_weight_rank = 2;
  int max_weight_rank = 2;
  // Whether there is an int8 form of this node; null: always.
  bool (*has_int8)(const Node& node) = nullptr;
};

// What importers, passes and the interpreter may assume of an operator. A fact
// that is left out costs speed, or a graph is refused; results stay correct.
struct OpFacts {
  Elementwise elementwise = Elementwise::kNo;
  // The result is the elements of operand 0 in their order, in another shape.
  bool reshapes = false;
  // Operand 1 says the shape of the result; it may differ with the batch.
  bool has_shape_operand = false;
  // The result is some elements of operand 0, so that no more of it is read.
  bool looks_up = false;
  // Has products whose factors may be rounded to bf16, whatever `layer` says.
  bool has_bf16_products = false;
  RowNumbers row_numbers = RowNumbers::kNone;
  LayoutRule layout = LayoutRule::kAsWritten;
  // Whether a result that has the type of operand 0 is operand 0, as that of a
  // Slice of everything. Operands may lack their bytes. Null: only what
  // reshapes.
  bool (*is_needless)(const Call& call) = nullptr;
  Strings strings = Strings::kNone;
  // It may stand without its operand 0.
  bool stands_alone = false;
  // The function that a layer before it can apply to its results, when this
  // call is one. Constant operands have their bytes; the rest is FP32.
  std::optional<Activation> (*activation)(const Call& call) = nullptr;
  // Whether each row of the results depends on the same row of the operands
  // alone, given that some operands have rows. Null: elementwise operators
  // keep rows apart, others are not known to.
  bool (*keeps_rows)(const RowView& node) = nullptr;
  // Null: no layer.
  const LayerFacts* layer = nullptr;
};

struct OpDef {
  std::string_view name;
  // The types of all outputs. Says what is wrong with operands or attributes
  // (INVALID_ARGUMENT), that a type or mode is not supported (UNIMPLEMENTED),
  // or that the answer needs the bytes of an operand (NeedsBytes).
  StatusOr<std::vector<ValueType>> (*infer)(const Call& call) = nullptr;
  // Every operand has its bytes. Results that are not read are there too.
  // Fails only for what the types do not show, such as an index out of range.
  Status (*run)(const Call& call, std::span<const Result> results,
                const Team& team) = nullptr;
  Work work = Work::kWhole;
  OpFacts facts = {};
  // False for what draws random numbers: it is never folded.
  bool pure = true;
};

// Null when there is no operator of that name.
const OpDef* FindOp(std::string_view name);
// In the order of their groups.
std::vector<const OpDef*> AllOps();

// "the operand's bytes are not known yet", for infer.
Status NeedsBytes(std::string_view what);
bool IsNeedsBytes(const Status& status);
// The integers in a constant operand of INT32 or INT64 and rank 0 or 1.
StatusOr<std::vector<int64_t>> IntsOf(const Arg& arg, std::string_view what);

}  // namespace millrace::models::graph
