// Settings go through the same table as those of the server's file; the few
// keys that only a repository's model has are read here.
#include "config/model_file.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include <yaml-cpp/yaml.h>
#include <nlohmann/json.hpp>

#include "config/answer_visitor.h"
#include "config/base/json.h"
#include "config/base/nearest.h"
#include "config/base/utf8.h"
#include "config/drift_settings.h"
#include "config/ensemble_settings.h"
#include "config/external_settings.h"
#include "config/find_setting.h"
#include "config/micro_batching_settings.h"
#include "config/ragged_settings.h"
#include "config/session_settings.h"
#include "config/shadow_settings.h"
#include "config/task_settings.h"
#include "config/traffic_settings.h"
#include "config/transducer_settings.h"
#include "config/values.h"
#include "config/yaml.h"

namespace millrace::config {
namespace {

constexpr std::string_view kOwnKeys[] = {
    "version_policy",    "version_labels", "default_model_filename",
    "served_model_name", "task",           "task_options",
    "ensemble",          "ragged_inputs",  "sequence_batching",
    "session",           "external",       "micro_batching",
    "traffic",           "shadow",         "drift",
    "transducer",        "model_warmup"};
constexpr int64_t kMaxVersion = 999'999'999'999'999'999;
constexpr size_t kMaxLabels = 100;

// Scalars as strings, which readers of protocol buffers turn into what they
// want.
std::string JsonText(const YAML::Node& node) {
  if (node.IsScalar()) return DumpJson(node.Scalar());
  std::string text;
  if (node.IsMap()) {
    for (const auto& entry : node) {
      text += (text.empty() ? "" : ",") +
              DumpJson(entry.first.as<std::string>()) + ":" +
              JsonText(entry.second);
    }
    return "{" + text + "}";
  }
  for (const auto& each : node) {
    text += (text.empty() ? "" : ",") + JsonText(each);
  }
  return node.IsSequence() ? "[" + text + "]" : "null";
}

class Reader {
 public:
  Reader(std::string where, const ModelSettings& defaults)
      : where_(std::move(where)) {
    file_.settings = defaults;
  }

  StatusOr<ModelFile> Read(const YAML::Node& document) {
    if (document.IsNull()) return std::move(file_);
    if (!document.IsMap()) {
      return InvalidArgument(where_ +
                             " holds no settings; expected lines like "
                             "'max_batch_size: 8'")
          .At("config");
    }
    for (const auto& entry : document) {
      const std::string key = Canonical(entry.first.as<std::string>());
      RETURN_IF_ERROR(ReadKey(key, entry.second).Prefixed(At(entry.first)));
    }
    // Last, for the task decides which options there are.
    if (task_options_) RETURN_IF_ERROR(ReadTaskOptions(*task_options_));
    if (task_.kind != TaskKind::kNone) {
      file_.settings.task = std::make_shared<const TaskSettings>(task_);
      file_.pipeline.answer = std::make_shared<const AnswerSettings>(answer_);
    }
    return std::move(file_);
  }

 private:
  std::string At(const YAML::Node& node) const {
    return where_ + " line " + std::to_string(node.Mark().line + 1);
  }

  Status ReadKey(const std::string& key, const YAML::Node& value) {
    if (!seen_.insert(key).second) {
      return InvalidArgument(key + " is given twice; keep one of them").At(key);
    }
    if (key == "version_policy") return ReadPolicy(value);
    if (key == "version_labels") return ReadLabels(value);
    if (key == "task_options") {
      task_options_ = value;
      return OkStatus();
    }
    if (key == "sequence_batching") {
      file_.sequence_batching = JsonText(value);
      file_.fingerprint += key + "=" + file_.sequence_batching + "\n";
      return OkStatus();
    }
    if (key == "model_warmup") {
      if (!value.IsSequence()) {
        return InvalidArgument(
                   "model_warmup needs a list of samples, such as '- {inputs: "
                   "{x: {data_type: TYPE_FP32, dims: [1, 3], zero_data: "
                   "true}}}'")
            .At(key);
      }
      file_.model_warmup = JsonText(value);
      file_.fingerprint += key + "=" + file_.model_warmup + "\n";
      return OkStatus();
    }
    if (key == "ragged_inputs") {
      ASSIGN_OR_RETURN(RaggedSettings ragged, ReadRagged(value));
      file_.fingerprint += "ragged_inputs=" + RaggedText(ragged) + "\n";
      file_.pipeline.ragged =
          std::make_shared<const RaggedSettings>(std::move(ragged));
      return OkStatus();
    }
    if (key == "session") {
      ASSIGN_OR_RETURN(SessionSettings session, ReadSession(value));
      file_.fingerprint += key + "=" + SessionText(session) + "\n";
      file_.pipeline.session =
          std::make_shared<const SessionSettings>(std::move(session));
      return OkStatus();
    }
    if (key == "micro_batching") {
      ASSIGN_OR_RETURN(MicroBatchingSettings stages, ReadMicroBatching(value));
      file_.fingerprint += key + "=" + MicroBatchingText(stages) + "\n";
      file_.pipeline.micro_batching =
          std::make_shared<const MicroBatchingSettings>(stages);
      return OkStatus();
    }
    if (key == "drift") {
      ASSIGN_OR_RETURN(DriftSettings drift, ReadDrift(value));
      file_.fingerprint += key + "=" + DriftText(drift) + "\n";
      file_.pipeline.drift =
          std::make_shared<const DriftSettings>(std::move(drift));
      return OkStatus();
    }
    if (key == "transducer") {
      ASSIGN_OR_RETURN(TransducerSettings parts, ReadTransducer(value));
      file_.fingerprint += key + "=" + TransducerText(parts) + "\n";
      file_.pipeline.transducer =
          std::make_shared<const TransducerSettings>(std::move(parts));
      return OkStatus();
    }
    if (key == "traffic") {
      ASSIGN_OR_RETURN(TrafficSettings traffic, ReadTraffic(value));
      file_.pipeline.traffic =
          std::make_shared<const TrafficSettings>(std::move(traffic));
      return OkStatus();
    }
    if (key == "shadow") {
      ASSIGN_OR_RETURN(ShadowSettings shadow, ReadShadow(value));
      file_.pipeline.shadow =
          std::make_shared<const ShadowSettings>(std::move(shadow));
      file_.fingerprint += key + "=" + YAML::Dump(value) + "\n";
      return OkStatus();
    }
    if (key == "external") {
      ASSIGN_OR_RETURN(ExternalSettings external, ReadExternal(value));
      file_.pipeline.external =
          std::make_shared<const ExternalSettings>(std::move(external));
      file_.fingerprint += "external=" + YAML::Dump(value) + "\n";
      return OkStatus();
    }
    if (key == "ensemble") {
      ASSIGN_OR_RETURN(EnsembleSettings ensemble, ReadEnsemble(value));
      file_.pipeline.ensemble =
          std::make_shared<const EnsembleSettings>(std::move(ensemble));
      file_.fingerprint += "ensemble=" + YAML::Dump(value) + "\n";
      return OkStatus();
    }
    // Triton's spelling: {enable: true}.
    const bool is_switch = key == "response_cache" && value.IsMap() &&
                           value.size() == 1 && value["enable"];
    ASSIGN_OR_RETURN(const std::string text,
                     Text(key, is_switch ? value["enable"] : value));
    if (key != "instance_count") file_.fingerprint += key + "=" + text + "\n";
    if (key == "default_model_filename") {
      file_.default_model_filename = text;
      return OkStatus();
    }
    if (key == "task") {
      ASSIGN_OR_RETURN(task_.kind, TaskFromName(text));
      return OkStatus();
    }
    if (key == "served_model_name") {
      return ParseValue({.name = key}, text, {},
                        &file_.settings.served_model_name);
    }
    const Visit visit = [&](const SettingVisitor& v) {
      VisitModelSettings(file_.settings, v);
    };
    const Target target = Find(visit, key);
    if (target.found) return Set(target, text);
    std::vector<std::string_view> names = Names(visit);
    names.insert(names.end(), std::begin(kOwnKeys), std::end(kOwnKeys));
    return Unknown("setting", key, names,
                   "millrace serve --help-all lists the settings");
  }

  static Status Unknown(const std::string& what, const std::string& key,
                        const std::vector<std::string_view>& names,
                        const std::string& remedy) {
    const std::string_view near = Nearest(key, names);
    std::string message =
        "unknown " + what + " '" + Shortened(key, 100) + "'; ";
    if (near.empty()) {
      message += remedy;
    } else {
      message.append("did you mean '").append(near).append("'?");
    }
    return InvalidArgument(message).At(key);
  }

  Status ReadTaskOptions(const YAML::Node& options) {
    if (task_.kind == TaskKind::kNone || !options.IsMap()) {
      return InvalidArgument(where_ +
                             ": task_options needs a task beside it and lines "
                             "like 'labels: index_to_name.json' below it")
          .At("task_options");
    }
    const Visit visit = [&](const SettingVisitor& v) {
      VisitTaskSettings(task_, v);
      VisitAnswerSettings(answer_, task_.kind, v);
    };
    std::set<std::string> seen;
    for (const auto& entry : options) {
      const std::string key = Canonical(entry.first.as<std::string>());
      RETURN_IF_ERROR(ReadTaskOption(visit, key, entry.second, &seen)
                          .Prefixed(At(entry.first)));
    }
    return OkStatus();
  }

  Status ReadTaskOption(const Visit& visit, const std::string& key,
                        const YAML::Node& value, std::set<std::string>* seen) {
    const Target target = Find(visit, key);
    if (!target.found) {
      std::string all;
      for (const std::string_view name : Names(visit)) {
        all.append(all.empty() ? "" : ", ").append(name);
      }
      const std::string task(TaskName(task_.kind));
      return Unknown("option of task " + task, key, Names(visit),
                     all.empty() ? "it has none" : "it has " + all);
    }
    if (!seen->insert(std::string(target.info.name)).second) {
      return InvalidArgument(key + " is given twice; keep one of them").At(key);
    }
    ASSIGN_OR_RETURN(const std::string text, Text(key, value));
    file_.fingerprint += "task_options." + key + "=" + text + "\n";
    return Set(target, text);
  }

  // A scalar, or a list of scalars with commas between them.
  static StatusOr<std::string> Text(const std::string& key,
                                    const YAML::Node& value) {
    if (value.IsScalar()) return value.Scalar();
    std::string list;
    bool is_list = value.IsSequence();
    for (size_t i = 0; is_list && i < value.size(); ++i) {
      is_list = value[i].IsScalar();
      if (is_list) list.append(i == 0 ? "" : ",").append(value[i].Scalar());
    }
    if (is_list) return list;
    return InvalidArgument(key + " has no single value").At(key);
  }

  static StatusOr<int64_t> Number(const std::string& key,
                                  const YAML::Node& value) {
    int64_t number = 0;
    if (value.IsScalar()) {
      RETURN_IF_ERROR(ParseValue({.name = key, .min = 1, .max = kMaxVersion},
                                 value.Scalar(), {}, &number));
      return number;
    }
    return InvalidArgument(key + " needs a version's number").At(key);
  }

  Status ReadPolicy(const YAML::Node& value) {
    VersionPolicy& policy = file_.version_policy;
    if (value.IsScalar() && value.Scalar() == "latest") return OkStatus();
    if (value.IsScalar() && value.Scalar() == "all") {
      policy.all = true;
      return OkStatus();
    }
    if (value.IsMap() && value.size() == 1 && value["latest"]) {
      ASSIGN_OR_RETURN(policy.latest, Number("latest", value["latest"]));
      return OkStatus();
    }
    if (value.IsSequence() && value.size() > 0) {
      for (const auto& each : value) {
        ASSIGN_OR_RETURN(const int64_t version, Number("version_policy", each));
        policy.specific.push_back(version);
      }
      return OkStatus();
    }
    return InvalidArgument(
               "version_policy is none of: latest, all, {latest: 2}, and a "
               "list of versions such as [1, 3]")
        .At("version_policy");
  }

  Status ReadLabels(const YAML::Node& value) {
    if (!value.IsMap() || value.size() > kMaxLabels) {
      return InvalidArgument("version_labels takes at most " +
                             std::to_string(kMaxLabels) +
                             " names with a version each, such as {stable: 3}")
          .At("version_labels");
    }
    for (const auto& entry : value) {
      const std::string label = entry.first.as<std::string>();
      const bool is_word =
          !label.empty() && label.size() <= 64 &&
          std::all_of(label.begin(), label.end(),
                      [](char c) {
                        return (c >= 'a' && c <= 'z') ||
                               (c >= 'A' && c <= 'Z') ||
                               (c >= '0' && c <= '9') || c == '-' || c == '_' ||
                               c == '.';
                      }) &&
          !std::all_of(label.begin(), label.end(),
                       [](char c) { return c >= '0' && c <= '9'; });
      if (!is_word) {
        return InvalidArgument(
                   "version_labels has '" + Shortened(label, 100) +
                   "' but a label is 1 to 64 letters, digits, '-', '_' or "
                   "'.', and no number")
            .At("version_labels");
      }
      ASSIGN_OR_RETURN(const int64_t version,
                       Number("version_labels", entry.second));
      file_.version_labels[label] = std::to_string(version);
    }
    return OkStatus();
  }

  const std::string where_;
  ModelFile file_;
  TaskSettings task_;
  AnswerSettings answer_;
  std::optional<YAML::Node> task_options_;
  std::set<std::string> seen_;
};

}  // namespace

StatusOr<ModelFile> ReadModelFile(const std::string& text,
                                  const std::string& where,
                                  const ModelSettings& defaults) {
  // yaml-cpp throws for bad syntax and for values of another kind.
  try {
    return Reader(where, defaults).Read(LoadYaml(text));
  } catch (const YAML::Exception& error) {
    return InvalidArgument(where + " line " +
                           std::to_string(error.mark.line + 1) +
                           " is no YAML: " + error.msg)
        .At("config");
  }
}

}  // namespace millrace::config
