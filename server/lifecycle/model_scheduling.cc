#include "server/lifecycle/model_scheduling.h"

#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "config/drift_settings.h"
#include "config/micro_batching_settings.h"
#include "config/ragged_settings.h"
#include "config/session_settings.h"
#include "config/shadow_settings.h"
#include "model_config.pb.h"
#include "server/lifecycle/model_config.h"

namespace millrace::server {

std::string DatatypeOf(inference::DataType type) {
  if (type == inference::TYPE_INVALID) return {};
  if (type == inference::TYPE_STRING) return "BYTES";
  return inference::DataType_Name(type).substr(5);
}

namespace {

template <typename Declared>
std::vector<config::DeclaredTensor> DeclaredOf(const Declared& tensors,
                                               bool without_batch) {
  std::vector<config::DeclaredTensor> all;
  for (const auto& tensor : tensors) {
    config::DeclaredTensor declared{
        .name = tensor.name(),
        .datatype = DatatypeOf(tensor.data_type()),
        .dims = {tensor.dims().begin(), tensor.dims().end()},
        .has_dims = !tensor.dims().empty()};
    if (without_batch) declared.dims.insert(declared.dims.begin(), -1);
    all.push_back(std::move(declared));
  }
  return all;
}

template <typename Declared>
std::vector<config::TensorReshape> ReshapesOf(const Declared& tensors) {
  std::vector<config::TensorReshape> all;
  for (const auto& tensor : tensors) {
    if (!tensor.has_reshape()) continue;
    const auto& shape = tensor.reshape().shape();
    all.push_back({.name = tensor.name(),
                   .dims = {tensor.dims().begin(), tensor.dims().end()},
                   .shape = {shape.begin(), shape.end()}});
  }
  return all;
}

Status Wrong(const std::string& why) {
  return InvalidArgument("sequence_batching " + why).At("sequence_batching");
}

using Control = inference::ModelSequenceBatching::Control;

StatusOr<config::SequenceControl> ControlOf(const std::string& input,
                                            const Control& control) {
  using Kind = config::SequenceControl::Kind;
  config::SequenceControl settings;
  settings.input = input;
  if (control.kind() == Control::CONTROL_SEQUENCE_CORRID) {
    settings.kind = Kind::kCorrelationId;
    settings.datatype = DatatypeOf(control.data_type());
    return settings;
  }
  settings.kind =
      control.kind() == Control::CONTROL_SEQUENCE_START ? Kind::kStart
      : control.kind() == Control::CONTROL_SEQUENCE_END ? Kind::kEnd
                                                        : Kind::kReady;
  const int given = (control.int32_false_true_size() > 0 ? 1 : 0) +
                    (control.fp32_false_true_size() > 0 ? 1 : 0) +
                    (control.bool_false_true_size() > 0 ? 1 : 0);
  const auto read = [&](const auto& values, const char* datatype) {
    if (values.size() != 2) return false;
    settings.datatype = datatype;
    settings.if_false = static_cast<double>(values[0]);
    settings.if_true = static_cast<double>(values[1]);
    return true;
  };
  if (given != 1 || !(read(control.int32_false_true(), "INT32") ||
                      read(control.fp32_false_true(), "FP32") ||
                      read(control.bool_false_true(), "BOOL"))) {
    return Wrong("has control_input '" + input +
                 "', which needs one of int32_false_true, fp32_false_true and "
                 "bool_false_true, each with two values");
  }
  return settings;
}

StatusOr<config::SequenceState> StateOf(
    const inference::ModelSequenceBatching::State& state, bool has_batch) {
  config::SequenceState settings{
      .input = state.input_name(),
      .output = state.output_name(),
      .datatype = DatatypeOf(state.data_type()),
      .dims = {state.dims().begin(), state.dims().end()},
      .has_dims = !state.dims().empty()};
  if (state.initial_state_size() > 1) {
    return Wrong("has several initial states for '" + state.input_name() +
                 "'; keep one");
  }
  if (state.initial_state_size() == 1) {
    const auto& initial = state.initial_state(0);
    settings.initial_file = initial.data_file();
    if (!initial.dims().empty()) {
      settings.dims = {initial.dims().begin(), initial.dims().end()};
      settings.has_dims = true;
    }
  }
  if (settings.has_dims && has_batch) {
    settings.dims.insert(settings.dims.begin(), 1);
  }
  return settings;
}

}  // namespace

config::EnsembleSettings EnsembleOf(const inference::ModelConfig& message) {
  const bool without_batch = message.max_batch_size() > 0;
  config::EnsembleSettings settings;
  settings.inputs = DeclaredOf(message.input(), without_batch);
  settings.outputs = DeclaredOf(message.output(), without_batch);
  for (const auto& step : message.ensemble_scheduling().step()) {
    settings.steps.push_back(
        {.model = step.model_name(),
         .version = step.model_version(),
         .input_map = {step.input_map().begin(), step.input_map().end()},
         .output_map = {step.output_map().begin(), step.output_map().end()}});
  }
  return settings;
}

// What a config.yaml declared, for clients that ask.
void DescribeEnsemble(const config::EnsembleSettings& settings,
                      inference::ModelConfig* message) {
  message->set_platform("ensemble");
  if (message->has_ensemble_scheduling()) return;
  for (const config::EnsembleStep& step : settings.steps) {
    auto* told = message->mutable_ensemble_scheduling()->add_step();
    told->set_model_name(step.model);
    told->set_model_version(step.version);
    told->mutable_input_map()->insert(step.input_map.begin(),
                                      step.input_map.end());
    told->mutable_output_map()->insert(step.output_map.begin(),
                                       step.output_map.end());
  }
}

StatusOr<config::SequenceSettings> SequencesOf(
    const inference::ModelConfig& message) {
  const inference::ModelSequenceBatching& batching =
      message.sequence_batching();
  config::SequenceSettings settings;
  settings.has_batch = message.max_batch_size() > 0;
  settings.oldest = batching.has_oldest();
  settings.direct = batching.has_direct();
  if (batching.max_sequence_idle_microseconds() > 0) {
    // Beyond a year it is never.
    constexpr uint64_t kYearUs = uint64_t{365} * 24 * 3600 * 1'000'000;
    settings.max_idle_us = static_cast<int64_t>(
        std::min(batching.max_sequence_idle_microseconds(), kYearUs));
  }
  const int64_t asked = batching.oldest().max_candidate_sequences();
  if (asked < 0) {
    return Wrong("has max_candidate_sequences " + std::to_string(asked) +
                 " but needs at least 1");
  }
  if (settings.oldest && asked > 0) settings.max_sequences = asked;
  for (const auto& input : batching.control_input()) {
    for (const Control& control : input.control()) {
      ASSIGN_OR_RETURN(config::SequenceControl read,
                       ControlOf(input.name(), control));
      settings.controls.push_back(std::move(read));
    }
  }
  for (const auto& state : batching.state()) {
    ASSIGN_OR_RETURN(config::SequenceState read,
                     StateOf(state, settings.has_batch));
    settings.states.push_back(std::move(read));
  }
  return settings;
}

Status SetSequences(const std::string& json, inference::ModelConfig* message) {
  const auto status = google::protobuf::util::JsonStringToMessage(
      json, message->mutable_sequence_batching(), {});
  if (status.ok()) return OkStatus();
  return Wrong("cannot be read: " + std::string(status.message()));
}

StatusOr<std::shared_ptr<const config::ReshapeSettings>> ReshapeOf(
    const inference::ModelConfig& message) {
  config::ReshapeSettings settings{.has_batch = message.max_batch_size() > 0,
                                   .inputs = ReshapesOf(message.input()),
                                   .outputs = ReshapesOf(message.output())};
  std::shared_ptr<const config::ReshapeSettings> reshape;
  if (settings.inputs.empty() && settings.outputs.empty()) return reshape;
  if (message.has_ensemble_scheduling()) {
    return InvalidArgument(
               "reshape is set for an ensemble, whose tensors have the shapes "
               "of its steps; set it for the models of these")
        .At("reshape");
  }
  reshape = std::make_shared<const config::ReshapeSettings>(settings);
  return reshape;
}

StatusOr<config::PipelineSettings> ModelConfig::Pipeline() const {
  if ((message_->platform() == "ensemble") !=
      message_->has_ensemble_scheduling()) {
    return InvalidArgument(
               "an ensemble has platform 'ensemble' and the steps of "
               "ensemble_scheduling; here one of them is missing")
        .At("platform");
  }
  config::PipelineSettings pipeline;
  if (message_->has_ensemble_scheduling()) {
    pipeline.ensemble =
        std::make_shared<const config::EnsembleSettings>(EnsembleOf(*message_));
  }
  if (message_->has_sequence_batching()) {
    ASSIGN_OR_RETURN(config::SequenceSettings sequences,
                     SequencesOf(*message_));
    pipeline.sequences =
        std::make_shared<const config::SequenceSettings>(std::move(sequences));
  }
  ASSIGN_OR_RETURN(pipeline.warmup, WarmupOf(*message_));
  ASSIGN_OR_RETURN(pipeline.reshape, ReshapeOf(*message_));
  const auto ragged = message_->parameters().find("ragged_inputs");
  if (ragged != message_->parameters().end()) {
    ASSIGN_OR_RETURN(config::RaggedSettings settings,
                     config::ParseRagged(ragged->second.string_value()));
    pipeline.ragged =
        std::make_shared<const config::RaggedSettings>(std::move(settings));
  }
  const auto session = message_->parameters().find("session");
  if (session != message_->parameters().end()) {
    ASSIGN_OR_RETURN(config::SessionSettings settings,
                     config::ParseSession(session->second.string_value()));
    pipeline.session =
        std::make_shared<const config::SessionSettings>(std::move(settings));
  }
  return pipeline;
}

StatusOr<std::shared_ptr<const config::SequenceSettings>>
ModelConfig::AddSequences(const std::string& json,
                          const config::ModelSettings& settings) {
  message_->set_max_batch_size(static_cast<int32_t>(
      std::max<int64_t>(settings.graph.max_batch_size, 0)));
  RETURN_IF_ERROR(SetSequences(json, message_.get()));
  ASSIGN_OR_RETURN(config::PipelineSettings pipeline, Pipeline());
  return pipeline.sequences;
}

void ModelConfig::DescribePipeline(const config::PipelineSettings& pipeline) {
  if (pipeline.ensemble != nullptr) {
    DescribeEnsemble(*pipeline.ensemble, message_.get());
  }
  if (pipeline.ragged != nullptr) {
    (*message_->mutable_parameters())["ragged_inputs"].set_string_value(
        config::RaggedText(*pipeline.ragged));
  }
  if (pipeline.drift != nullptr) {
    (*message_->mutable_parameters())["drift"].set_string_value(
        config::DriftText(*pipeline.drift));
  }
  if (pipeline.session != nullptr) {
    (*message_->mutable_parameters())["session"].set_string_value(
        config::SessionText(*pipeline.session));
  }
  if (pipeline.shadow != nullptr) {
    (*message_->mutable_parameters())["shadow"].set_string_value(
        config::ShadowText(*pipeline.shadow));
  }
  if (pipeline.micro_batching != nullptr) {
    (*message_->mutable_parameters())["micro_batching"].set_string_value(
        config::MicroBatchingText(*pipeline.micro_batching));
  }
}

}  // namespace millrace::server
