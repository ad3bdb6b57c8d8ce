#include "handlers/sequences/sequence_ports.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "config/base/read_file.h"
#include "handlers/named_tensors.h"
#include "models/tensor/dtype.h"
#include "models/tensor/strings.h"

namespace millrace::handlers {
namespace {

using config::SequenceControl;
using models::DType;
using models::TensorSpec;

constexpr size_t kMaxStateFileBytes = size_t{256} << 20;

Status Wrong(const std::string& model, const std::string& why) {
  return InvalidArgument("sequence_batching of the model '" + model + "' " +
                         why)
      .At("sequence_batching");
}

// Takes it out of the list.
StatusOr<TensorSpec> TakeOut(const std::string& model, const std::string& what,
                             const std::string& name,
                             std::vector<TensorSpec>* specs) {
  const auto at =
      std::find_if(specs->begin(), specs->end(),
                   [&](const TensorSpec& spec) { return spec.name == name; });
  if (at == specs->end()) {
    return Wrong(model, "names " + what + " '" + name +
                            "', which the model does not have or which is "
                            "named twice; left are " +
                            NamesOf(*specs));
  }
  TensorSpec spec = std::move(*at);
  specs->erase(at);
  return spec;
}

Status CheckType(const std::string& model, const std::string& datatype,
                 const TensorSpec& spec) {
  if (datatype.empty() || datatype == models::DTypeName(spec.dtype)) {
    return OkStatus();
  }
  return Wrong(model, "has '" + spec.name + "' as " + datatype +
                          " but the model has " +
                          std::string(models::DTypeName(spec.dtype)));
}

// Sizes that vary become 1.
std::vector<int64_t> OneOf(const std::vector<int64_t>& dims) {
  std::vector<int64_t> sizes = dims;
  for (int64_t& size : sizes) size = std::max<int64_t>(size, 1);
  return sizes;
}

template <typename T>
void Put(double value, models::Tensor* tensor) {
  const T element = static_cast<T>(value);
  std::memcpy(tensor->bytes(), &element, sizeof(T));
}

bool PutNumber(DType dtype, double value, models::Tensor* tensor) {
  switch (dtype) {
    case DType::kBool:
      return Put<uint8_t>(value != 0 ? 1 : 0, tensor), true;
    case DType::kI32:
      return Put<int32_t>(value, tensor), true;
    case DType::kI64:
      return Put<int64_t>(value, tensor), true;
    case DType::kF32:
      return Put<float>(value, tensor), true;
    default:
      return false;
  }
}

// False: an id of another kind, or too large. A text id stays as long as the
// tensor, which has a copy.
bool PutId(const SequenceId& sequence, models::Tensor* tensor) {
  if (tensor->dtype() == models::kString) {
    const auto* text = std::get_if<std::string>(&sequence);
    if (text == nullptr) return false;
    const std::string_view view = *text;
    *tensor = models::MakeStrings(tensor->shape(), {&view, 1});
    return true;
  }
  const auto* number = std::get_if<uint64_t>(&sequence);
  if (number == nullptr) return false;
  const uint64_t id = *number;
  switch (tensor->dtype()) {
    case DType::kU64:
    case DType::kI64:
      std::memcpy(tensor->bytes(), &id, sizeof id);
      return true;
    case DType::kU32:
    case DType::kI32: {
      const auto narrow = static_cast<uint32_t>(id);
      std::memcpy(tensor->bytes(), &narrow, sizeof narrow);
      return narrow == id;
    }
    default:
      return false;
  }
}

StatusOr<models::Tensor> InitialState(const std::string& model,
                                      const config::SequenceState& state,
                                      const std::string& folder,
                                      const TensorSpec& spec) {
  std::vector<int64_t> dims = OneOf(state.has_dims ? state.dims : spec.dims);
  bool fits = !spec.rank_known || dims.size() == spec.dims.size();
  for (size_t i = 0; fits && spec.rank_known && i < dims.size(); ++i) {
    fits = spec.dims[i] < 0 || spec.dims[i] == dims[i];
  }
  ASSIGN_OR_RETURN(const models::Shape shape, models::Shape::Checked(dims));
  if (!fits) {
    return Wrong(model, "has a state for '" + spec.name + "' of " +
                            models::TypeText(spec.dtype, shape) +
                            " but the model takes " + spec.text);
  }
  if (state.initial_file.empty())
    return models::Tensor::Make(spec.dtype, shape);
  if (spec.dtype == models::kString) {
    return Wrong(model, "has data_file '" + state.initial_file +
                            "' for a state of strings, which begins with "
                            "zero_data alone");
  }
  if (state.initial_file.find('/') != std::string::npos) {
    return Wrong(model, "has data_file '" + state.initial_file +
                            "' but wants the name of a file in the folder "
                            "initial_state");
  }
  const std::string path = folder + "/" + state.initial_file;
  ASSIGN_OR_RETURN(const std::string bytes,
                   ReadFileOf("data_file", path, kMaxStateFileBytes));
  models::Tensor tensor = models::Tensor::Make(spec.dtype, shape);
  if (static_cast<int64_t>(bytes.size()) != tensor.num_bytes()) {
    return Wrong(model, "has an initial state in " + path + " of " +
                            std::to_string(bytes.size()) + " bytes, but " +
                            models::TypeText(spec.dtype, shape) + " has " +
                            std::to_string(tensor.num_bytes()));
  }
  std::memcpy(tensor.bytes(), bytes.data(), bytes.size());
  return tensor;
}

}  // namespace

StatusOr<SequencePorts> SequencePorts::Create(
    const std::string& model, const config::SequenceSettings& settings,
    const std::string& folder, const std::vector<TensorSpec>& inputs,
    const std::vector<TensorSpec>& outputs) {
  SequencePorts ports;
  ports.model_ = model;
  ports.inputs_ = inputs;
  ports.outputs_ = outputs;
  for (const SequenceControl& settings_of : settings.controls) {
    ASSIGN_OR_RETURN(
        const TensorSpec spec,
        TakeOut(model, "control input", settings_of.input, &ports.inputs_));
    RETURN_IF_ERROR(CheckType(model, settings_of.datatype, spec));
    ASSIGN_OR_RETURN(const models::Shape shape,
                     models::Shape::Checked(OneOf(spec.dims)));
    models::Tensor probe = models::Tensor::Make(spec.dtype, shape);
    const bool is_id =
        settings_of.kind == SequenceControl::Kind::kCorrelationId;
    if (shape.num_elements() != 1 ||
        !(is_id ? spec.dtype == models::kString || PutId(uint64_t{1}, &probe)
                : PutNumber(spec.dtype, 1, &probe))) {
      return Wrong(model, "has the control input '" + spec.name +
                              "', which is " + spec.text +
                              "; a control is one element of " +
                              (is_id ? "UINT64, INT64, UINT32, INT32 or BYTES"
                                     : "INT32, INT64, FP32 or BOOL"));
    }
    ports.controls_.push_back({settings_of, spec.dtype, shape});
  }
  for (const config::SequenceState& state : settings.states) {
    ASSIGN_OR_RETURN(const TensorSpec in, TakeOut(model, "the state's input",
                                                  state.input, &ports.inputs_));
    ASSIGN_OR_RETURN(
        const TensorSpec out,
        TakeOut(model, "the state's output", state.output, &ports.outputs_));
    RETURN_IF_ERROR(CheckType(model, state.datatype, in));
    if (in.dtype != out.dtype) {
      return Wrong(model, "has a state whose input '" + in.name + "' is " +
                              in.text + " but whose output '" + out.name +
                              "' is " + out.text);
    }
    ASSIGN_OR_RETURN(models::Tensor initial,
                     InitialState(model, state, folder, in));
    ports.initial_.push_back(std::move(initial));
    ports.states_.push_back(state);
  }
  return ports;
}

int64_t SequencePorts::initial_bytes() const {
  int64_t bytes = 0;
  for (const models::Tensor& each : initial_) bytes += each.num_bytes();
  return bytes;
}

std::vector<models::Tensor> SequencePorts::InitialStates() const {
  std::vector<models::Tensor> states;
  for (const models::Tensor& each : initial_) states.push_back(each.Share());
  return states;
}

Status SequencePorts::CheckId(const SequencePlace& place) const {
  for (const Control& control : controls_) {
    if (control.settings.kind != SequenceControl::Kind::kCorrelationId) {
      continue;
    }
    models::Tensor probe = models::Tensor::Make(control.dtype, control.shape);
    if (PutId(place.id, &probe)) continue;
    const auto* number = std::get_if<uint64_t>(&place.id);
    return InvalidArgument(
               "sequence_id is " +
               (number == nullptr ? "'" + std::get<std::string>(place.id) + "'"
                                  : std::to_string(*number)) +
               " but the model '" + model_ + "' takes it as " +
               std::string(models::DTypeName(control.dtype)) +
               (control.dtype == models::kString ? "; send a text"
                                                 : "; send a number that fits"))
        .At("sequence_id");
  }
  return OkStatus();
}

std::vector<NamedTensor> SequencePorts::Controls(
    const SequencePlace& place) const {
  std::vector<NamedTensor> all;
  for (const Control& control : controls_) {
    models::Tensor tensor = models::Tensor::Make(control.dtype, control.shape);
    const SequenceControl& settings = control.settings;
    bool holds = true;  // ready: each request is of a live sequence
    switch (settings.kind) {
      case SequenceControl::Kind::kCorrelationId:
        PutId(place.id, &tensor);
        break;
      case SequenceControl::Kind::kStart:
        holds = place.start;
        break;
      case SequenceControl::Kind::kEnd:
        holds = place.end;
        break;
      case SequenceControl::Kind::kReady:
        break;
    }
    if (settings.kind != SequenceControl::Kind::kCorrelationId) {
      PutNumber(control.dtype, holds ? settings.if_true : settings.if_false,
                &tensor);
    }
    all.push_back({settings.input, std::move(tensor)});
  }
  return all;
}

}  // namespace millrace::handlers
