// Types flow from the makers of a tensor to its takers: each end says what it
// knows, and two that know different things are an error that names both.
#include "handlers/ensemble/ensemble_plan.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "handlers/named_tensors.h"
#include "models/tensor/dtype.h"
#include "models/tensor/strings.h"

namespace millrace::handlers {
namespace {

using models::TensorSpec;

std::string DimsText(const std::vector<int64_t>& dims) {
  std::string text = "[";
  for (const int64_t size : dims) {
    text += (text.size() > 1 ? "," : "") + std::to_string(size);
  }
  return text + "]";
}

class Builder {
 public:
  Builder(const std::string& name, const config::EnsembleSettings& settings,
          const std::vector<StepPorts>& ports)
      : name_(name), settings_(settings), ports_(ports) {}

  StatusOr<EnsemblePlan> Build() {
    if (settings_.steps.empty()) return Wrong("has no steps");
    for (const config::DeclaredTensor& input : settings_.inputs) {
      RETURN_IF_ERROR(Declare(input, "input"));
    }
    for (size_t i = 0; i < settings_.steps.size(); ++i) {
      RETURN_IF_ERROR(AddStep(i));
    }
    for (size_t i = 0; i < plan_.steps.size(); ++i) {
      RETURN_IF_ERROR(AddCondition(i));
    }
    RETURN_IF_ERROR(CheckInputs());
    RETURN_IF_ERROR(CheckMakers());
    RETURN_IF_ERROR(CheckOutputs());
    RETURN_IF_ERROR(CheckOrder());
    for (EnsemblePlan::Step& step : plan_.steps) step.num_needed = 0;
    for (const EnsemblePlan::Tensor& tensor : plan_.tensors) {
      for (const size_t taker : tensor.takers) ++plan_.steps[taker].num_needed;
    }
    for (const size_t tensor : plan_.inputs) {
      plan_.input_specs.push_back(SpecOf(tensor));
    }
    for (const size_t tensor : plan_.outputs) {
      plan_.output_specs.push_back(SpecOf(tensor));
    }
    return std::move(plan_);
  }

 private:
  // What is known of a tensor, and who said it first.
  struct Known {
    bool has_type = false;
    models::DType dtype = models::DType::kF32;
    std::string type_from = {};
    bool has_dims = false;
    std::vector<int64_t> dims = {};
    std::string dims_from = {};
    bool declared_input = false;
    std::vector<size_t> makers = {};
  };

  Status Wrong(const std::string& why) const {
    return InvalidArgument("the ensemble '" + name_ + "' " + why)
        .At("ensemble_scheduling");
  }

  size_t Tensor(const std::string& name) {
    const auto [at, is_new] = index_.try_emplace(name, plan_.tensors.size());
    if (is_new) {
      plan_.tensors.push_back({.name = name, .takers = {}});
      known_.emplace_back();
    }
    return at->second;
  }

  static std::string StepText(size_t step, const std::string& model) {
    return "step " + std::to_string(step + 1) + " (model '" + model + "')";
  }

  Status Declare(const config::DeclaredTensor& declared, const char* what) {
    const size_t tensor = Tensor(declared.name);
    const std::string from =
        std::string("the ensemble's ") + what + " '" + declared.name + "'";
    if (what[0] == 'i') {
      if (known_[tensor].declared_input) {
        return Wrong("declares input '" + declared.name + "' twice");
      }
      known_[tensor].declared_input = true;
      plan_.inputs.push_back(tensor);
    }
    if (!declared.datatype.empty()) {
      const auto dtype = models::DTypeFromName(declared.datatype);
      if (!dtype.has_value()) {
        return Wrong("declares " + declared.name + " as " + declared.datatype +
                     ", which this server does not have");
      }
      RETURN_IF_ERROR(Type(tensor, *dtype, from));
    }
    if (declared.has_dims) return Sizes(tensor, declared.dims, from);
    return OkStatus();
  }

  Status Type(size_t tensor, models::DType dtype, const std::string& from) {
    Known& known = known_[tensor];
    if (known.has_type && known.dtype != dtype) {
      return Wrong("has tensor '" + plan_.tensors[tensor].name + "' as " +
                   std::string(models::DTypeName(known.dtype)) + " in " +
                   known.type_from + " but as " +
                   std::string(models::DTypeName(dtype)) + " in " + from);
    }
    if (!known.has_type) known.type_from = from;
    known.has_type = true;
    known.dtype = dtype;
    return OkStatus();
  }

  Status Sizes(size_t tensor, const std::vector<int64_t>& dims,
               const std::string& from) {
    Known& known = known_[tensor];
    if (!known.has_dims) {
      known.has_dims = true;
      known.dims = dims;
      known.dims_from = from;
      return OkStatus();
    }
    bool same = known.dims.size() == dims.size();
    for (size_t i = 0; same && i < dims.size(); ++i) {
      same = known.dims[i] == dims[i] || known.dims[i] == -1 || dims[i] == -1;
    }
    if (!same) {
      return Wrong("has tensor '" + plan_.tensors[tensor].name +
                   "' with shape " + DimsText(known.dims) + " in " +
                   known.dims_from + " but " + DimsText(dims) + " in " + from);
    }
    for (size_t i = 0; i < dims.size(); ++i) {
      if (known.dims[i] == -1) known.dims[i] = dims[i];
    }
    return OkStatus();
  }

  Status Meet(size_t tensor, const TensorSpec& spec, const std::string& from) {
    RETURN_IF_ERROR(Type(tensor, spec.dtype, from));
    return spec.rank_known ? Sizes(tensor, spec.dims, from) : OkStatus();
  }

  Status AddStep(size_t i) {
    const config::EnsembleStep& settings = settings_.steps[i];
    const std::string where = StepText(i, settings.model);
    EnsemblePlan::Step step;
    step.model = settings.model;
    if (settings.version > 0) step.version = std::to_string(settings.version);
    const TaskForm form = FormOf(ports_[i], settings);
    for (const auto& [port, tensor_name] : settings.input_map) {
      const TensorSpec* spec = Find(form.inputs, port);
      if (spec == nullptr) {
        return Wrong(where + " maps input '" + port +
                     "', which the model does not have; it takes " +
                     NamesOf(ports_[i].inputs) + TasksText(ports_[i]));
      }
      const size_t tensor = Tensor(tensor_name);
      step.inputs.push_back({port, tensor});
      AddTaker(tensor, i);
      RETURN_IF_ERROR(Meet(tensor, *spec, "input '" + port + "' of " + where));
    }
    for (const TensorSpec& spec : form.inputs) {
      if (settings.input_map.count(spec.name) > 0) continue;
      return Wrong(where + " maps nothing to input '" + spec.name +
                   "' of its model");
    }
    for (const auto& [port, tensor_name] : settings.output_map) {
      const TensorSpec* spec = Find(form.outputs, port);
      if (spec == nullptr) {
        return Wrong(where + " maps output '" + port +
                     "', which the model does not have; it gives " +
                     NamesOf(form.outputs));
      }
      const size_t tensor = Tensor(tensor_name);
      known_[tensor].makers.push_back(i);
      step.outputs.push_back({port, tensor});
      RETURN_IF_ERROR(Meet(tensor, *spec, "output '" + port + "' of " + where));
    }
    if (step.outputs.empty()) return Wrong(where + " maps no output");
    plan_.steps.push_back(std::move(step));
    return OkStatus();
  }

  // The model's tensors, or those of its task where the step maps inputs that
  // only the task has; their names are then what the step calls them.
  static TaskForm FormOf(const StepPorts& ports,
                         const config::EnsembleStep& step) {
    const bool is_graph = std::all_of(
        step.input_map.begin(), step.input_map.end(), [&](const auto& each) {
          return Find(ports.inputs, each.first) != nullptr;
        });
    std::optional<TaskForm> fitting;  // by its inputs
    for (size_t i = 0; !is_graph && i < ports.task_forms.size(); ++i) {
      TaskForm form = ports.task_forms[i];
      if (form.inputs.size() != step.input_map.size()) continue;
      for (TensorSpec& spec : form.inputs) {
        if (!spec.name.empty()) continue;
        for (const auto& [port, tensor] : step.input_map) {
          if (Find(form.inputs, port) != nullptr) continue;
          spec.name = port;
          break;
        }
      }
      const bool fits = std::all_of(
          form.inputs.begin(), form.inputs.end(), [&](const TensorSpec& spec) {
            return step.input_map.count(spec.name) > 0;
          });
      if (!fits) continue;
      if (!fitting.has_value()) fitting = form;
      const bool gives_all =
          std::all_of(step.output_map.begin(), step.output_map.end(),
                      [&](const auto& each) {
                        return Find(form.outputs, each.first) != nullptr;
                      });
      if (gives_all) return form;
    }
    return fitting.value_or(TaskForm{ports.inputs, ports.outputs});
  }

  // Behind the names of the model's own inputs.
  static std::string TasksText(const StepPorts& ports) {
    std::string text;
    for (const TaskForm& form : ports.task_forms) {
      text += ", or as BYTES ";
      for (size_t i = 0; i < form.inputs.size(); ++i) {
        const std::string& name = form.inputs[i].name;
        text += (i > 0 ? " and " : "") +
                (name.empty() ? "one input of any name" : "'" + name + "'");
      }
    }
    return text;
  }

  Status AddCondition(size_t i) {
    const auto& when = settings_.steps[i].when;
    if (!when.has_value()) return OkStatus();
    EnsemblePlan::Step& step = plan_.steps[i];
    step.conditional = true;
    step.condition_tensor = Tensor(when->tensor);
    step.compare = when->compare;
    step.value = when->value;
    AddTaker(step.condition_tensor, i);
    return OkStatus();
  }

  void AddTaker(size_t tensor, size_t step) {
    std::vector<size_t>& takers = plan_.tensors[tensor].takers;
    if (std::find(takers.begin(), takers.end(), step) == takers.end()) {
      takers.push_back(step);
    }
  }

  Status CheckInputs() {
    for (size_t t = 0; t < plan_.tensors.size(); ++t) {
      const EnsemblePlan::Tensor& tensor = plan_.tensors[t];
      if (!known_[t].makers.empty() || known_[t].declared_input) continue;
      if (!settings_.inputs.empty()) {
        return Wrong("reads tensor '" + tensor.name + "' in " +
                     StepText(tensor.takers.front(),
                              plan_.steps[tensor.takers.front()].model) +
                     ", but it is no input and no step makes it");
      }
      known_[t].declared_input = true;
      plan_.inputs.push_back(t);
    }
    for (const size_t t : plan_.inputs) {
      if (plan_.tensors[t].takers.empty()) {
        return Wrong("has input '" + plan_.tensors[t].name +
                     "', which no step takes");
      }
    }
    if (plan_.inputs.empty()) return Wrong("has no inputs");
    return OkStatus();
  }

  // Several steps may make one tensor where each has a condition: alternatives.
  Status CheckMakers() {
    for (size_t t = 0; t < plan_.tensors.size(); ++t) {
      const std::vector<size_t>& makers = known_[t].makers;
      plan_.tensors[t].num_makers = makers.size();
      const std::string& name = plan_.tensors[t].name;
      if (known_[t].declared_input && !makers.empty()) {
        return Wrong("has input '" + name + "', which " +
                     StepText(makers[0], plan_.steps[makers[0]].model) +
                     " makes as well");
      }
      const bool all_conditional =
          std::all_of(makers.begin(), makers.end(),
                      [&](size_t i) { return plan_.steps[i].conditional; });
      if (makers.size() > 1 && !all_conditional) {
        return Wrong("has tensor '" + name + "' made by " +
                     StepText(makers[0], plan_.steps[makers[0]].model) +
                     " and by " +
                     StepText(makers[1], plan_.steps[makers[1]].model) +
                     "; give it two names, or both steps a condition");
      }
      if (!known_[t].has_type) {
        return Wrong("tests tensor '" + name + "', which nothing makes");
      }
    }
    for (const EnsemblePlan::Step& step : plan_.steps) {
      if (!step.conditional ||
          known_[step.condition_tensor].dtype != models::kString) {
        continue;
      }
      return Wrong("tests tensor '" +
                   plan_.tensors[step.condition_tensor].name +
                   "', which is BYTES; conditions compare numbers");
    }
    return OkStatus();
  }

  Status CheckOutputs() {
    for (const config::DeclaredTensor& output : settings_.outputs) {
      const auto at = index_.find(output.name);
      if (at == index_.end() || known_[at->second].makers.empty()) {
        return Wrong("has output '" + output.name + "', which no step makes");
      }
      if (std::find(plan_.outputs.begin(), plan_.outputs.end(), at->second) !=
          plan_.outputs.end()) {
        return Wrong("declares output '" + output.name + "' twice");
      }
      RETURN_IF_ERROR(Declare(output, "output"));
      plan_.outputs.push_back(at->second);
    }
    for (size_t t = 0; settings_.outputs.empty() && t < plan_.tensors.size();
         ++t) {
      if (plan_.tensors[t].takers.empty()) plan_.outputs.push_back(t);
    }
    if (plan_.outputs.empty()) {
      return Wrong("has no outputs: each tensor is taken by a step");
    }
    return OkStatus();
  }

  // Runs the graph on paper: what never gets its inputs waits in a circle.
  Status CheckOrder() const {
    std::vector<size_t> missing(plan_.steps.size());
    for (const EnsemblePlan::Tensor& tensor : plan_.tensors) {
      for (const size_t taker : tensor.takers) ++missing[taker];
    }
    std::vector<size_t> makers_left(plan_.tensors.size());
    std::vector<size_t> ready = plan_.inputs;
    for (size_t t = 0; t < plan_.tensors.size(); ++t) {
      makers_left[t] = known_[t].makers.size();
    }
    size_t num_run = 0;
    while (!ready.empty()) {
      const size_t tensor = ready.back();
      ready.pop_back();
      for (const size_t taker : plan_.tensors[tensor].takers) {
        if (--missing[taker] > 0) continue;
        ++num_run;
        for (const EnsemblePlan::Port& port : plan_.steps[taker].outputs) {
          if (--makers_left[port.tensor] == 0) ready.push_back(port.tensor);
        }
      }
    }
    if (num_run == plan_.steps.size()) return OkStatus();
    std::string circle;
    for (size_t i = 0; i < plan_.steps.size(); ++i) {
      if (missing[i] == 0) continue;
      circle +=
          (circle.empty() ? "" : ", ") + StepText(i, plan_.steps[i].model);
    }
    return Wrong("has steps that wait for each other in a cycle: " + circle);
  }

  static const TensorSpec* Find(const std::vector<TensorSpec>& specs,
                                const std::string& name) {
    for (const TensorSpec& spec : specs) {
      if (spec.name == name) return &spec;
    }
    return nullptr;
  }

  TensorSpec SpecOf(size_t tensor) const {
    const Known& known = known_[tensor];
    TensorSpec spec{.name = plan_.tensors[tensor].name,
                    .dtype = known.dtype,
                    .dims = known.dims,
                    .rank_known = known.has_dims,
                    .text = std::string(models::DTypeName(known.dtype))};
    if (known.has_dims) spec.text += " " + DimsText(known.dims);
    return spec;
  }

  const std::string& name_;
  const config::EnsembleSettings& settings_;
  const std::vector<StepPorts>& ports_;
  EnsemblePlan plan_;
  std::vector<Known> known_;  // by tensor
  std::map<std::string, size_t> index_;
};

}  // namespace

StatusOr<EnsemblePlan> EnsemblePlan::Create(
    const std::string& name, const config::EnsembleSettings& settings,
    const std::vector<StepPorts>& ports) {
  return Builder(name, settings, ports).Build();
}

}  // namespace millrace::handlers
