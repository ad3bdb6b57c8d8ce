// An ensemble whose names, types and order are checked: tensors by number, and
// the steps that each one wakes.
//
//   ASSIGN_OR_RETURN(EnsemblePlan plan,
//                    EnsemblePlan::Create("ocr", settings, ports_of_steps));
//
// Immutable after Create.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "config/base/status.h"
#include "config/ensemble_settings.h"
#include "handlers/task_forms.h"
#include "models/tensor/tensor_spec.h"

namespace millrace::handlers {

// What the model of a step takes and gives. A step that maps an input which is
// not among them asks for the model's task, where it has one.
struct StepPorts {
  std::vector<models::TensorSpec> inputs;
  std::vector<models::TensorSpec> outputs;
  std::vector<TaskForm> task_forms = {};
};

struct EnsemblePlan {
  struct Port {
    std::string name;  // of the model
    size_t tensor;     // of the ensemble
  };
  struct Step {
    std::string model;
    std::string version;  // empty: the latest
    std::vector<Port> inputs;
    std::vector<Port> outputs;  // those that the ensemble takes
    bool conditional = false;
    size_t condition_tensor = 0;
    config::StepCondition::Compare compare = {};
    double value = 0;
    size_t num_needed = 0;  // different tensors it waits for
  };
  struct Tensor {
    std::string name;
    std::vector<size_t> takers;  // steps that wait for it, each once
    size_t num_makers = 0;       // steps that may make it; 0: an input
  };

  std::vector<Step> steps;
  std::vector<Tensor> tensors;
  std::vector<size_t> inputs;   // tensors, in the order of the specs
  std::vector<size_t> outputs;  // the same
  std::vector<models::TensorSpec> input_specs;
  std::vector<models::TensorSpec> output_specs;

  // `ports` has an entry for each step. INVALID_ARGUMENT is a sentence: a
  // tensor that nothing makes or that two steps make, an input of a model that
  // is not mapped, types or sizes that differ, steps that wait for each other.
  static StatusOr<EnsemblePlan> Create(const std::string& name,
                                       const config::EnsembleSettings& settings,
                                       const std::vector<StepPorts>& ports);
};

}  // namespace millrace::handlers
