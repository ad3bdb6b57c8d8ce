// config.pbtxt by the text parser of protocol buffers, which knows lines and
// field names; its messages become ours.
#include "server/lifecycle/model_config.h"

#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/text_format.h>
#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <utility>

#include "config/base/json.h"
#include "handlers/generate_tensors.h"
#include "handlers/named_tensors.h"
#include "model_config.pb.h"
#include "models/tensor/strings.h"

namespace millrace::server {
namespace {

using Json = nlohmann::ordered_json;
using models::DType;

// Known to Triton, not to this server.
constexpr std::string_view kNotSupported[] = {"model_repository_agents",
                                              "allow_ragged_batch",
                                              "batch_input", "batch_output"};

// Known to Triton, too: hints for its backends, its GPUs and its metrics, which
// change no answer.
constexpr std::string_view kHints[] = {
    "optimization", "format",      "rate_limiter",  "host_policy",
    "runtime",      "metric_tags", "model_metrics", "model_transaction_policy"};

bool IsHint(std::string_view field) {
  return std::find(std::begin(kHints), std::end(kHints), field) !=
         std::end(kHints);
}

// The unknown field that a message of the parser quotes; else empty.
std::string UnknownField(const std::string& message) {
  const size_t at = message.find("no field named \"");
  std::string field;
  if (at != std::string::npos) {
    field = message.substr(at + 16);
    field.resize(std::min(field.find('"'), field.size()));
  } else if (const size_t colon = message.find(": Cannot find field");
             colon != std::string::npos) {
    field = message.substr(0, colon);
    field = field.substr(field.rfind(' ') + 1);
  }
  return field;
}

std::string InOurWords(const std::string& message) {
  const std::string field = UnknownField(message);
  if (field.empty()) return message;
  for (const std::string_view known : kNotSupported) {
    if (known == field) {
      return "the field '" + field +
             "' is not supported by this server; remove it";
    }
  }
  return "unknown field '" + field + "'";
}

class FirstError final : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int line, int, const std::string& message) override {
    if (!text_.empty()) return;
    text_ = "line " + std::to_string(line + 1) + ": " + InOurWords(message);
  }
  // Of fields that the messages do not have.
  void AddWarning(int line, int column, const std::string& message) override {
    const std::string field = UnknownField(message);
    if (IsHint(field)) {
      hints_.insert(field);
    } else if (!field.empty()) {
      AddError(line, column, message);
    }
  }
  const std::string& text() const { return text_; }
  const std::set<std::string>& hints() const { return hints_; }

 private:
  std::string text_;
  std::set<std::string> hints_;
};

// Takes them out of a configuration in JSON.
void TakeHints(Json& value, std::set<std::string>* hints) {
  if (value.is_array()) {
    for (Json& each : value) TakeHints(each, hints);
  }
  if (!value.is_object()) return;
  for (const std::string_view hint : kHints) {
    const auto at = value.find(std::string(hint));
    if (at == value.end()) continue;
    hints->insert(std::string(hint));
    value.erase(at);
  }
  for (const char* field : {"input", "instance_group"}) {
    if (const auto at = value.find(field); at != value.end()) {
      TakeHints(*at, hints);
    }
  }
}

// Protocol buffers write 64-bit numbers as texts; clients of this protocol get
// numbers.
void NumbersFromTexts(Json& value, bool is_number) {
  static const std::set<std::string> kNames = {"dims",
                                               "shape",
                                               "versions",
                                               "model_version",
                                               "max_sequence_idle_microseconds",
                                               "max_queue_delay_microseconds",
                                               "priority_levels",
                                               "default_priority_level",
                                               "default_timeout_microseconds"};
  if (value.is_object()) {
    for (auto& [key, child] : value.items()) {
      NumbersFromTexts(child, kNames.count(key) > 0);
    }
  } else if (value.is_array()) {
    for (Json& child : value) NumbersFromTexts(child, is_number);
  } else if (is_number && value.is_string()) {
    const std::string text = value.get<std::string>();
    const char* end = text.data() + text.size();
    int64_t number = 0;
    uint64_t whole = 0;  // beyond what is signed
    if (std::from_chars(text.data(), end, number).ec == std::errc()) {
      value = number;
    } else if (std::from_chars(text.data(), end, whole).ec == std::errc()) {
      value = whole;
    }
  }
}

inference::DataType DataTypeOf(DType dtype) {
  if (dtype == models::kString) return inference::TYPE_STRING;
  inference::DataType type = inference::TYPE_INVALID;
  inference::DataType_Parse("TYPE_" + std::string(models::DTypeName(dtype)),
                            &type);
  return type;
}

template <typename Declared>
std::string SizesText(const Declared& dims) {
  std::string text = "[";
  for (const int64_t size : dims) {
    text += (text.size() > 1 ? ", " : "") + std::to_string(size);
  }
  return text + "]";
}

template <typename Declared>
Status CheckTensors(const char* field, const Declared& declared,
                    const std::vector<models::TensorSpec>& specs,
                    bool without_batch) {
  for (const auto& tensor : declared) {
    const std::string what =
        std::string(field) + " '" + tensor.name() + "' of the configuration";
    const auto spec = std::find_if(
        specs.begin(), specs.end(),
        [&](const models::TensorSpec& s) { return s.name == tensor.name(); });
    if (spec == specs.end()) {
      return InvalidArgument(what + " is not in the model, which has " +
                             handlers::NamesOf(specs))
          .At(field);
    }
    if (tensor.data_type() != inference::TYPE_INVALID &&
        tensor.data_type() != DataTypeOf(spec->dtype)) {
      return InvalidArgument(what + " has data_type " +
                             inference::DataType_Name(tensor.data_type()) +
                             " but the model has " +
                             inference::DataType_Name(DataTypeOf(spec->dtype)))
          .At("data_type");
    }
    if (!spec->rank_known || tensor.dims().empty()) continue;
    std::vector<int64_t> dims(tensor.dims().begin(), tensor.dims().end());
    if (without_batch) dims.insert(dims.begin(), -1);
    bool same = dims.size() == spec->dims.size();
    for (size_t i = 0; same && i < dims.size(); ++i) {
      same = dims[i] == spec->dims[i] || dims[i] == -1 || spec->dims[i] == -1;
    }
    if (!same) {
      return InvalidArgument(what + " has dims " + SizesText(tensor.dims()) +
                             (without_batch ? ", which max_batch_size makes " +
                                                  SizesText(dims) + ","
                                            : "") +
                             " but the model has " + SizesText(spec->dims))
          .At("dims");
    }
  }
  return OkStatus();
}

template <typename Tensor>
void Declare(const models::TensorSpec& spec, bool without_batch,
             Tensor* tensor) {
  tensor->set_name(spec.name);
  tensor->set_data_type(DataTypeOf(spec.dtype));
  for (size_t i = without_batch ? 1 : 0; i < spec.dims.size(); ++i) {
    tensor->add_dims(spec.dims[i]);
  }
}

}  // namespace

ModelConfig::ModelConfig()
    : message_(std::make_shared<inference::ModelConfig>()) {}

ModelConfig::ModelConfig(inference::ModelConfig message)
    : message_(std::make_shared<inference::ModelConfig>(std::move(message))) {}

StatusOr<ModelConfig> ModelConfig::FromText(const std::string& text,
                                            const std::string& where) {
  ModelConfig config;
  google::protobuf::TextFormat::Parser parser;
  FirstError error;
  parser.RecordErrorsTo(&error);
  parser.AllowUnknownField(true);  // all but hints are errors
  const bool parsed = parser.ParseFromString(text, config.message_.get());
  config.hints_ = error.hints();
  if (parsed && error.text().empty()) return config;
  return InvalidArgument(where + " " + error.text()).At("config");
}

StatusOr<ModelConfig> ModelConfig::FromJson(const std::string& json) {
  // Checked by our own parser first, which has limits.
  ASSIGN_OR_RETURN(Json tree, ParseJson(json));
  if (!tree.is_object()) {
    return InvalidArgument("config must be a JSON object").At("config");
  }
  ModelConfig config;
  TakeHints(tree, &config.hints_);
  const auto status = google::protobuf::util::JsonStringToMessage(
      DumpJson(tree), config.message_.get(), {});
  if (status.ok()) return config;
  return InvalidArgument("config: " + InOurWords(std::string(status.message())))
      .At("config");
}

ModelConfig ModelConfig::FromSettings(const config::ModelSettings& settings,
                                      const config::VersionPolicy& policy) {
  ModelConfig config;
  inference::ModelConfig& message = *config.message_;
  inference::ModelVersionPolicy& versions = *message.mutable_version_policy();
  if (policy.all) {
    versions.mutable_all();
  } else if (!policy.specific.empty()) {
    for (const int64_t version : policy.specific) {
      versions.mutable_specific()->add_versions(version);
    }
  } else {
    versions.mutable_latest()->set_num_versions(static_cast<uint32_t>(
        std::min<int64_t>(policy.latest, std::numeric_limits<int32_t>::max())));
  }
  const config::GraphSettings& graph = settings.graph;
  if (graph.max_batch_size != 1) {
    inference::ModelDynamicBatching& batching =
        *message.mutable_dynamic_batching();
    batching.set_max_queue_delay_microseconds(
        static_cast<uint64_t>(graph.max_queue_delay_us));
    batching.set_preserve_ordering(graph.preserve_ordering);
    batching.set_priority_levels(static_cast<uint64_t>(graph.priority_levels));
    batching.set_default_priority_level(
        static_cast<uint64_t>(graph.default_priority_level));
  }
  return config;
}

std::string ModelConfig::StampText() const {
  inference::ModelConfig without = *message_;
  without.clear_instance_group();
  return ModelConfig(std::move(without)).ToJson();
}

std::string ModelConfig::ToJson() const {
  google::protobuf::util::JsonPrintOptions options;
  options.always_print_primitive_fields = true;
  options.preserve_proto_field_names = true;
  std::string text;
  if (!google::protobuf::util::MessageToJsonString(*message_, &text, options)
           .ok()) {
    return "{}";
  }
  auto tree = ParseJson(text);
  if (!tree.ok()) return "{}";
  NumbersFromTexts(*tree, false);
  return DumpJson(*tree);
}

const std::string& ModelConfig::name() const { return message_->name(); }

const std::string& ModelConfig::default_model_filename() const {
  return message_->default_model_filename();
}

StatusOr<std::vector<std::string>> ModelConfig::ChooseVersions(
    const std::vector<std::string>& available) const {
  const inference::ModelVersionPolicy& policy = message_->version_policy();
  if (policy.has_all()) return available;
  if (policy.has_specific()) {
    std::vector<std::string> chosen;
    for (const int64_t number : policy.specific().versions()) {
      const std::string version = std::to_string(number);
      if (std::find(available.begin(), available.end(), version) ==
          available.end()) {
        return InvalidArgument("version_policy asks for version " + version +
                               ", which has no folder with a model")
            .At("version_policy");
      }
      chosen.push_back(version);
    }
    if (chosen.empty()) {
      return InvalidArgument("version_policy.specific names no versions")
          .At("version_policy");
    }
    return chosen;
  }
  const size_t wanted = std::max<size_t>(policy.latest().num_versions(), 1);
  const size_t first =
      available.size() > wanted ? available.size() - wanted : 0;
  return std::vector<std::string>(
      available.begin() + static_cast<ptrdiff_t>(first), available.end());
}

Status ModelConfig::Check(
    const std::vector<models::TensorSpec>& inputs,
    const std::vector<models::TensorSpec>& outputs) const {
  const bool without_batch = message_->max_batch_size() > 0;
  RETURN_IF_ERROR(
      CheckTensors("input", message_->input(), inputs, without_batch));
  return CheckTensors("output", message_->output(), outputs, without_batch);
}

namespace {

// As the setting names devices. What auto chose, the model's parameters say.
void SetDevice(const std::string& names, inference::ModelInstanceGroup* group) {
  if (!names.starts_with("cuda")) {
    group->set_kind(names == "auto" ? inference::ModelInstanceGroup::KIND_AUTO
                                    : inference::ModelInstanceGroup::KIND_CPU);
    return;
  }
  group->set_kind(inference::ModelInstanceGroup::KIND_GPU);
  for (size_t at = 0; (at = names.find(':', at)) != std::string::npos; ++at) {
    int32_t gpu = 0;
    const auto [end, error] = std::from_chars(names.data() + at + 1,
                                              names.data() + names.size(), gpu);
    if (error == std::errc()) group->add_gpus(gpu);
  }
}

}  // namespace

void ModelConfig::Complete(const std::string& name, const std::string& platform,
                           const std::vector<models::TensorSpec>& inputs,
                           const std::vector<models::TensorSpec>& outputs,
                           const config::ModelSettings& settings) {
  inference::ModelConfig& message = *message_;
  message.set_name(name);
  if (message.platform().empty()) message.set_platform(platform);
  const bool is_ensemble = message.has_ensemble_scheduling();
  if (message.backend().empty() && !is_ensemble) {
    message.set_backend("millrace");
  }
  if (message.version_policy().policy_choice_case() ==
      inference::ModelVersionPolicy::POLICY_CHOICE_NOT_SET) {
    message.mutable_version_policy()->mutable_latest()->set_num_versions(1);
  }
  if (message.instance_group().empty() && !is_ensemble) {
    inference::ModelInstanceGroup* group = message.add_instance_group();
    group->set_name(name);
    group->set_count(static_cast<int32_t>(settings.graph.instance_count));
    SetDevice(settings.common.device, group);
  }
  if (settings.graph.response_cache) {
    message.mutable_response_cache()->set_enable(true);
  }
  const bool without_batch = message.max_batch_size() > 0;
  if (message.input().empty()) {
    for (const models::TensorSpec& spec : inputs) {
      Declare(spec, without_batch, message.add_input());
    }
  }
  if (message.output().empty()) {
    for (const models::TensorSpec& spec : outputs) {
      Declare(spec, without_batch, message.add_output());
    }
  }
}

void ModelConfig::CompleteText(const std::string& name,
                               const std::string& platform,
                               const config::ModelSettings& settings) {
  Complete(name, platform, {}, {}, settings);
  const auto declare = [](const models::TensorSpec& spec, auto* tensor) {
    tensor->set_name(spec.name);
    tensor->set_data_type(DataTypeOf(spec.dtype));
    for (const int64_t size : spec.dims) tensor->add_dims(size);
  };
  inference::ModelConfig& message = *message_;
  if (message.input().empty()) {
    for (const models::TensorSpec& spec : handlers::GenerateInputs()) {
      declare(spec, message.add_input());
      if (handlers::IsOptionalInput(spec.name)) {
        message.mutable_input(message.input_size() - 1)->set_optional(true);
      }
    }
  }
  if (message.output().empty()) {
    for (const models::TensorSpec& spec : handlers::GenerateOutputs()) {
      declare(spec, message.add_output());
    }
  }
}

}  // namespace millrace::server
