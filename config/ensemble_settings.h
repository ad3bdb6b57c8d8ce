// An ensemble: a graph of models of one repository, as its configuration
// declares it. Tensors of the ensemble have names of their own; each step maps
// the inputs and outputs of its model to them.
//
//   ensemble:
//     steps:
//       - model: preprocess
//         inputs: {raw: picture}      # of the model: of the ensemble
//         outputs: {pixels: pixels}
//       - model: classify
//         inputs: {x: pixels}
//         outputs: {logits: scores}
//         when: brightness > 0.1      # else the step and what needs it is left
//
// config.pbtxt has the same as ensemble_scheduling.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "config/base/status.h"

namespace YAML {
class Node;
}

namespace millrace::config {

// What a configuration declares of an input or output.
struct DeclaredTensor {
  std::string name;
  std::string datatype = {};  // "FP32"; empty: not declared
  // -1: differs between requests; with the batch's.
  std::vector<int64_t> dims = {};
  bool has_dims = false;
};

// Holds when any element of the tensor compares so.
struct StepCondition {
  enum class Compare { kLess, kAtMost, kEqual, kNotEqual, kAtLeast, kGreater };
  std::string tensor;  // of the ensemble
  Compare compare = Compare::kGreater;
  double value = 0;
};

struct EnsembleStep {
  std::string model;
  int64_t version = -1;                           // -1: names none
  std::map<std::string, std::string> input_map;   // model's → ensemble's
  std::map<std::string, std::string> output_map;  // model's → ensemble's
  std::optional<StepCondition> when = {};
};

struct EnsembleSettings {
  static constexpr size_t kMaxSteps = 256;

  std::vector<EnsembleStep> steps;
  // Empty: tensors that no step makes are inputs; those that no step takes are
  // outputs. Types and sizes that are not declared are those of the steps.
  std::vector<DeclaredTensor> inputs;
  std::vector<DeclaredTensor> outputs;
};

// "score > 0.5"; INVALID_ARGUMENT says what is wanted.
StatusOr<StepCondition> ParseCondition(const std::string& text);

// The value of the key `ensemble` in config.yaml. May throw what yaml-cpp
// throws for values of another kind.
StatusOr<EnsembleSettings> ReadEnsemble(const YAML::Node& node);

}  // namespace millrace::config
