// What the JSON of an exported program says, as plain structs: names, numbers
// and kinds are checked, nothing is interpreted yet.
//
// Source: torch/_export/serde/schema.py of PyTorch 2.5 to 2.15, schema major
// version 8.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "config/base/status.h"
#include "models/graph/import.h"
#include "models/tensor/dtype.h"

namespace millrace::models::graph::pt2 {

// One size. `hint` is the size when fixed, else that of the example.
struct Dim {
  int64_t hint = 0;
  bool fixed = true;
  std::string symbol;  // "s77" when the size is nothing but a symbol
};

struct TensorMeta {
  DType dtype = DType::kF32;
  bool is_complex = false;  // of two numbers of that type each
  std::vector<Dim> sizes;
  std::vector<int64_t> strides;  // in elements, of the example
  int64_t storage_offset = 0;    // in elements

  int rank() const { return static_cast<int>(sizes.size()); }
};

// A number, or the name of one that is computed by the graph.
struct Scalar {
  enum class Kind : uint8_t { kInt, kFloat, kBool, kName };
  Kind kind = Kind::kInt;
  int64_t integer = 0;  // kInt, kBool
  double real = 0;      // kFloat
  std::string name;     // kName

  static Scalar Int(int64_t value) {
    return {.kind = Kind::kInt, .integer = value, .name = {}};
  }
  static Scalar Float(double value) {
    return {.kind = Kind::kFloat, .real = value, .name = {}};
  }
};

struct Program;

struct Argument {
  enum class Kind : uint8_t {
    kNone,
    kTensor,   // tensors[0]
    kTensors,  // tensors; "" where an optional one is left out
    kScalar,   // scalars[0]
    kScalars,
    kText,   // text
    kDType,  // dtype
    kGraph,  // a body of a higher-order operator
    kOther,  // devices, layouts, memory formats; `text` is the key
  };
  Kind kind = Kind::kNone;
  std::vector<std::string> tensors;
  std::vector<Scalar> scalars;
  std::string text;
  DType dtype = DType::kF32;
};

// A higher-order operator's bodies are programs whose inputs are all of a user,
// in the order of the node's operands:
//
//   cond        inputs: condition, operands;     bodies: then, else
//   while_loop  inputs: condition, values, more; body: (values, more) →
//                                                condition, values
//   scan, map   inputs: values, lists, more;     body: (values, items, more) →
//                                                values, items
struct NodeSpec {
  std::string target;  // "aten.conv2d.default", without "torch.ops."
  std::string name;
  std::vector<std::pair<std::string, Argument>> inputs;  // by schema name
  std::vector<Argument> outputs;
  std::vector<std::shared_ptr<const Program>> bodies;
  size_t num_carried = 0;  // values that go from one trip to the next
  size_t num_scanned = 0;  // lists whose items are handed out, trip by trip

  const Argument* Find(std::string_view argument) const;
};

// What a graph input stands for.
struct InputSpec {
  // A token orders effects, such as printing; it has no elements.
  enum class Kind : uint8_t { kUser, kWeight, kConstant, kToken };
  Kind kind = Kind::kUser;
  Argument argument;
  std::string key;   // in the configuration of weights or of constants
  std::string what;  // "parameter", "buffer", …
};

struct OutputSpec {
  bool is_token = false;
  bool is_mutation = false;  // a buffer or an input, written back
  Argument argument;
  std::string target;  // of the mutation
};

struct Program {
  std::string schema_version;  // "8.20"
  std::string torch_version;
  std::vector<InputSpec> inputs;
  std::vector<OutputSpec> outputs;
  std::vector<std::string> output_names;  // of user outputs; may be empty
  std::vector<NodeSpec> nodes;
  std::unordered_map<std::string, TensorMeta> tensors;
  // Least and greatest value of each symbol.
  std::unordered_map<std::string, std::pair<int64_t, int64_t>> ranges;
};

StatusOr<Program> ParseProgram(std::string_view json,
                               const ImportLimits& limits);

// Where the bytes of a tensor lie.
struct StoredTensor {
  std::string path_name;  // "weight_3"
  TensorMeta meta;
};

// A weights or constants configuration, by full name.
StatusOr<std::unordered_map<std::string, StoredTensor>> ParseStored(
    std::string_view json);

}  // namespace millrace::models::graph::pt2
