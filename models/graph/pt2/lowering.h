// One ATen node on its way into the graph: its arguments by name, with types
// and sizes as far as the file knows them, and where its results go.
//
//   void Linear(Lowering& n) {
//     n.Return(n.emit().Op("Linear", {n.In("input"), n.In("weight"),
//                                     n.InOrNone("bias")}));
//   }
//
// Arguments that stand at their schema's default are absent from the file: each
// row says the default where it asks. Failures are kept by the emitter.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "models/graph/pt2/emitter.h"
#include "models/graph/pt2/program.h"

namespace millrace::models::graph::pt2 {

// A tensor operand: its value now, and what the file says of it.
struct Operand {
  ValueId id = kNoValue;
  const TensorMeta* meta = nullptr;

  explicit operator bool() const { return meta != nullptr; }
  DType dtype() const { return meta->dtype; }
  int rank() const { return meta->rank(); }
};

// Who knows values by the names of the file.
class Names {
 public:
  virtual ~Names() = default;
  // The tensor as all changes in place so far have left it.
  virtual Operand Tensor(const std::string& name) = 0;
  virtual Num Number(const std::string& name) = 0;
  virtual const TensorMeta* Meta(const std::string& name) = 0;
};

class Lowering {
 public:
  Lowering(const NodeSpec& spec, Names& names, Emitter& emitter);

  Emitter& emit() { return emit_; }
  const NodeSpec& spec() const { return spec_; }
  void Fail(std::string_view why) { emit_.Fail(Unimplemented(why)); }

  bool Has(std::string_view name) const;  // given, and not None
  Operand Arg(std::string_view name);     // fails when it is no tensor
  Operand ArgOrNone(std::string_view name);
  ValueId In(std::string_view name) { return Arg(name).id; }
  ValueId InOrNone(std::string_view name) { return ArgOrNone(name).id; }
  std::vector<Operand> Args(std::string_view name);  // a list of tensors

  Num Number(std::string_view name);  // fails when absent
  Num Number(std::string_view name, Num otherwise);
  // Known now; fails when the graph computes them.
  int64_t Int(std::string_view name, int64_t otherwise);
  double Real(std::string_view name, double otherwise);
  bool Flag(std::string_view name, bool otherwise);
  std::string_view Text(std::string_view name, std::string_view otherwise);
  std::optional<DType> Type(std::string_view name);
  // A single number counts as a list of one; absent: empty.
  std::vector<Num> Numbers(std::string_view name);
  std::vector<int64_t> Ints(std::string_view name);
  // As many as `count`: one stands for all, absent for `otherwise`.
  std::vector<int64_t> Ints(std::string_view name, size_t count,
                            int64_t otherwise);
  // An axis from 0 on; fails when it is out of range.
  int64_t Axis(std::string_view name, int64_t otherwise, int rank);
  // Axes from 0 on, each once; absent or empty: all of them.
  std::vector<int64_t> Axes(std::string_view name, int rank);

  // A size as a constant where the file says that it is fixed.
  Num Size(const Operand& x, int64_t axis);
  std::vector<Num> Sizes(const Operand& x);

  size_t num_outputs() const { return outputs_.size(); }
  // What the file says of a result; null when it is no tensor.
  const TensorMeta* OutMeta(size_t i) const;
  DType OutType(size_t i) const;  // FP32 when unknown
  void Return(ValueId value) { Return(0, value); }
  void Return(size_t i, ValueId value);
  // With a cast when the file promises another type.
  void ReturnAs(DType dtype, ValueId value);
  void ReturnNumber(const Num& number) { number_ = number; }

  const std::vector<std::string>& output_names() const { return names_out_; }
  const std::vector<ValueId>& outputs() const { return outputs_; }
  const Num& number() const { return number_; }

 private:
  Num Resolve(const Scalar& scalar);
  const Argument* Given(std::string_view name) const;

  const NodeSpec& spec_;
  Names& names_;
  Emitter& emit_;
  std::vector<std::string> names_out_;  // "": not wanted
  std::vector<ValueId> outputs_;
  Num number_;
};

// How a result may share memory with the first operand.
enum class Alias : uint8_t {
  kNever,
  kAlways,        // a view
  kIfStrided,     // a view when strides allow it, else a copy
  kIfSameType,    // the operand itself, unless its type changes
  kIfSameLayout,  // the operand itself, unless its strides change
};

// A row of the table of ATen overloads.
struct AtenOp {
  std::string_view name;  // "aten.conv2d.default"
  void (*lower)(Lowering& n);
  Alias alias = Alias::kNever;
  // For views: the operand with the view's elements replaced by `part`; which
  // view, when there are several. Null: the part has all elements in order.
  ValueId (*write_back)(Lowering& n, const Operand& whole, ValueId part,
                        size_t view) = nullptr;
};

// The element type that PyTorch computes in (torch.result_type): tensors with
// dimensions decide, then those without, then numbers, unless a later kind is
// of a higher category.
class Promotion {
 public:
  Promotion& Add(const Operand& x);
  Promotion& Add(const Num& number);
  DType Type() const;

 private:
  std::optional<DType> sized_, scalar_, number_;
};

}  // namespace millrace::models::graph::pt2
