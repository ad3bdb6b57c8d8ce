// What the disk says, without opening a model: whether a file can be served is
// found out when it is loaded.
#include "server/lifecycle/model_directory.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <system_error>
#include <utility>
#include <vector>

#include "config/base/log.h"
#include "config/base/utf8.h"
#include "config/drift_settings.h"
#include "config/ensemble_settings.h"
#include "config/model_file.h"
#include "config/shadow_settings.h"
#include "config/task_settings.h"
#include "config/traffic_settings.h"
#include "config/warmup_settings.h"
#include "server/lifecycle/member_order.h"
#include "server/lifecycle/model_config.h"

namespace millrace::server {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kExtensions[] = {".onnx", ".pt2", ".gguf"};
constexpr const char* kConfigFile = "config.pbtxt";
constexpr const char* kYamlFile = "config.yaml";
constexpr uintmax_t kMaxConfigBytes = 1 << 20;

bool IsModelFile(const fs::path& path) {
  std::error_code error;
  return std::find(std::begin(kExtensions), std::end(kExtensions),
                   path.extension().string()) != std::end(kExtensions) &&
         fs::is_regular_file(path, error);
}

// A version's number, without leading zeros.
bool IsVersion(const std::string& text) {
  return !text.empty() && text.size() <= 18 && text[0] != '0' &&
         std::all_of(text.begin(), text.end(),
                     [](char c) { return c >= '0' && c <= '9'; });
}

// The entries of a folder, sorted; as far as it can be read.
std::vector<fs::path> Entries(const fs::path& folder,
                              std::error_code* failed = nullptr) {
  std::vector<fs::path> entries;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end;
       at.increment(error)) {
    entries.push_back(at->path());
  }
  if (failed != nullptr) *failed = error;
  std::sort(entries.begin(), entries.end());
  return entries;
}

// What a folder of one version serves; empty: nothing.
fs::path ModelOf(const fs::path& folder, const std::string& file_name) {
  std::error_code error;
  if (!file_name.empty()) {
    const fs::path path = folder / file_name;
    return fs::exists(path, error) ? path : fs::path();
  }
  for (const std::string_view extension : kExtensions) {
    const fs::path path = folder / ("model" + std::string(extension));
    if (IsModelFile(path)) return path;
  }
  // A Hugging Face folder.
  return fs::exists(folder / "config.json", error) ? folder : fs::path();
}

// The file of a model that has no folder; empty: there is none.
fs::path PlainFileOf(const fs::path& folder) {
  for (const std::string_view extension : kExtensions) {
    const fs::path path = folder.string() + std::string(extension);
    if (IsModelFile(path)) return path;
  }
  return {};
}

// What is told of the files of other runtimes in a model's folders.
std::string Unreadable(const fs::path& folder) {
  for (const fs::path& version : Entries(folder)) {
    for (const char* extension :
         {"pt", "pth", "plan", "py", "savedmodel", "graphdef", "xml", "pb"}) {
      const fs::path path = version / (std::string("model.") + extension);
      std::error_code error;
      if (!fs::exists(path, error)) continue;
      return "; '" + path.string() +
             "' is not read here: export the model as ONNX or by torch.export";
    }
  }
  return {};
}

// Changes with every file of the model.
void AddStamp(const fs::path& path, std::string* stamp) {
  std::error_code error;
  if (fs::is_directory(path, error)) {
    for (const fs::path& entry : Entries(path)) AddStamp(entry, stamp);
    return;
  }
  const auto time = fs::last_write_time(path, error).time_since_epoch();
  *stamp += path.filename().string() + " " +
            std::to_string(fs::file_size(path, error)) + " " +
            std::to_string(time.count()) + "\n";
}

StatusOr<std::string> ReadConfigFile(const fs::path& path) {
  std::error_code error;
  if (fs::file_size(path, error) > kMaxConfigBytes) {
    return InvalidArgument(path.string() + " is larger than " +
                           std::to_string(kMaxConfigBytes) + " bytes")
        .At("config");
  }
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file) {
    return InvalidArgument(path.string() + " cannot be read").At("config");
  }
  return std::move(text).str();
}

// What a load request or the model's folder says.
struct Configuration {
  ModelConfig model;
  config::ModelSettings settings;
  config::PipelineSettings pipeline;
  std::string file_name;
  std::map<std::string, std::string> labels;  // label → version
  std::string stamp;
};

// Those that a task reads from beside the versions.
void AddNamedFiles(const fs::path& folder, const Configuration& config,
                   std::string* stamp) {
  std::vector<std::string> names;
  if (config.pipeline.drift != nullptr) {
    names.push_back(config.pipeline.drift->baseline);
  }
  if (config.settings.task != nullptr) {
    names.push_back(config.settings.task->labels);
  }
  for (const std::string& name : names) {
    std::error_code error;
    if (!name.empty() && fs::is_regular_file(folder / name, error)) {
      AddStamp(folder / name, stamp);
    }
  }
}

StatusOr<Configuration> FromYaml(const fs::path& path,
                                 const config::ModelSettings& defaults) {
  ASSIGN_OR_RETURN(const std::string text, ReadConfigFile(path));
  ASSIGN_OR_RETURN(config::ModelFile file,
                   config::ReadModelFile(text, path.string(), defaults));
  Configuration found;
  found.model = ModelConfig::FromSettings(file.settings, file.version_policy);
  found.settings = std::move(file.settings);
  found.pipeline = std::move(file.pipeline);
  if (!file.model_warmup.empty()) {
    ASSIGN_OR_RETURN(found.pipeline.warmup,
                     found.model.AddWarmup(file.model_warmup));
  }
  if (!file.sequence_batching.empty()) {
    ASSIGN_OR_RETURN(
        found.pipeline.sequences,
        found.model.AddSequences(file.sequence_batching, found.settings));
  }
  found.file_name = std::move(file.default_model_filename);
  found.labels = std::move(file.version_labels);
  found.stamp = std::move(file.fingerprint);
  return found;
}

// Files of samples stand beside the folders of versions.
void SetWarmupFolder(const fs::path& folder,
                     config::PipelineSettings* pipeline) {
  if (pipeline->warmup == nullptr) return;
  config::WarmupSettings settings = *pipeline->warmup;
  settings.folder = (folder / "warmup").string();
  pipeline->warmup =
      std::make_shared<const config::WarmupSettings>(std::move(settings));
}

StatusOr<Configuration> ReadConfiguration(
    const std::string& name, const std::string& json, const fs::path& folder,
    const config::ModelSettings& defaults) {
  std::error_code error;
  const bool has_text = fs::is_regular_file(folder / kConfigFile, error);
  const bool has_yaml = fs::is_regular_file(folder / kYamlFile, error);
  if (json.empty() && has_text && has_yaml) {
    return InvalidArgument((folder / kConfigFile).string() + " and " +
                           kYamlFile + " both configure the model; keep one")
        .At("config");
  }
  Configuration found;
  if (json.empty() && has_yaml) {
    ASSIGN_OR_RETURN(found, FromYaml(folder / kYamlFile, defaults));
    found.settings.name = name;
    SetWarmupFolder(folder, &found.pipeline);
    return found;
  }
  found.settings = defaults;
  found.settings.name = name;
  if (!json.empty()) {
    ASSIGN_OR_RETURN(found.model, ModelConfig::FromJson(json));
  } else if (has_text) {
    ASSIGN_OR_RETURN(const std::string text,
                     ReadConfigFile(folder / kConfigFile));
    ASSIGN_OR_RETURN(found.model, ModelConfig::FromText(
                                      text, (folder / kConfigFile).string()));
  } else {
    return found;
  }
  const std::string& own_name = found.model.name();
  if (!own_name.empty() && own_name != name) {
    return InvalidArgument("name is '" + own_name +
                           "' in the configuration of the model '" + name +
                           "'; make it the folder's or leave it out")
        .At("name");
  }
  found.file_name = found.model.default_model_filename();
  found.stamp = found.model.StampText();
  RETURN_IF_ERROR(found.model.ApplyTo(&found.settings)
                      .Prefixed("the configuration of '" + name + "'"));
  ASSIGN_OR_RETURN(found.pipeline, found.model.Pipeline());
  SetWarmupFolder(folder, &found.pipeline);
  return found;
}

// Labels become the versions that they name.
Status ResolveTraffic(const std::map<std::string, std::string>& labels,
                      const std::vector<std::string>& versions,
                      config::PipelineSettings* pipeline) {
  if (pipeline->traffic == nullptr) return OkStatus();
  if (pipeline->sequences != nullptr) {
    return InvalidArgument(
               "traffic is set together with sequence_batching, but all "
               "requests of "
               "a sequence want the version that has its state; leave one of "
               "them out")
        .At("traffic");
  }
  ASSIGN_OR_RETURN(
      config::TrafficSettings traffic,
      config::ResolveVersions(*pipeline->traffic, labels, versions));
  pipeline->traffic =
      std::make_shared<const config::TrafficSettings>(std::move(traffic));
  return OkStatus();
}

// The same of versions of the model itself; other models may come and go.
Status ResolveShadow(const std::string& name,
                     const std::map<std::string, std::string>& labels,
                     const std::vector<std::string>& versions,
                     config::PipelineSettings* pipeline) {
  if (pipeline->shadow == nullptr) return OkStatus();
  config::ShadowSettings shadow = *pipeline->shadow;
  for (config::ShadowTarget& target : shadow.targets) {
    const bool is_own = target.model.empty() || target.model == name;
    if (!is_own || target.version.empty()) continue;
    if (const auto at = labels.find(target.version); at != labels.end()) {
      target.version = at->second;
    }
    if (std::find(versions.begin(), versions.end(), target.version) !=
        versions.end()) {
      continue;
    }
    return InvalidArgument("shadow names '" + Shortened(target.version, 100) +
                           "', which is neither a version that is served nor a "
                           "label of one; version_policy: all serves every "
                           "version there is")
        .At("shadow");
  }
  pipeline->shadow =
      std::make_shared<const config::ShadowSettings>(std::move(shadow));
  return OkStatus();
}

// The models of an ensemble; none for another model, or one whose configuration
// is wrong, which its load says.
std::vector<std::string> StepsOf(const fs::path& folder,
                                 const std::string& name) {
  std::vector<std::string> steps;
  std::error_code error;
  for (const char* file : {kConfigFile, kYamlFile}) {
    if (!fs::is_regular_file(folder / file, error)) continue;
    const auto text = ReadConfigFile(folder / file);
    // Most are none, and need not be read as a whole.
    if (!text.ok() || text->find("ensemble") == std::string::npos) continue;
    const auto read = ReadConfiguration(name, {}, folder, {});
    if (!read.ok() || read->pipeline.ensemble == nullptr) continue;
    for (const config::EnsembleStep& step : read->pipeline.ensemble->steps) {
      steps.push_back(step.model);
    }
  }
  return steps;
}

}  // namespace

ModelDirectory::ModelDirectory(std::string root, config::ModelSettings defaults)
    : root_(std::move(root)), defaults_(std::move(defaults)) {}

Status ModelDirectory::CheckRoot() const {
  std::error_code error;
  if (fs::is_directory(root_, error)) return OkStatus();
  return NotFound("model_repository is '" + root_ +
                  "', which is no folder; check the path")
      .At("model_repository");
}

StatusOr<std::vector<std::string>> ModelDirectory::Names() {
  std::vector<std::string> names;
  std::error_code failed;
  const std::vector<fs::path> entries = Entries(root_, &failed);
  if (failed) {
    return Unavailable("the model repository " + root_ +
                       " cannot be listed: " + failed.message());
  }
  for (const fs::path& entry : entries) {
    const std::string name = entry.filename().string();
    if (name[0] == '.') continue;
    std::error_code error;
    if (fs::is_directory(entry, error)) {
      names.push_back(name);
    } else if (IsModelFile(entry)) {
      names.push_back(entry.stem().string());
    }
  }
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return MembersFirst(std::move(names), [this](const std::string& name) {
    return StepsOf(fs::path(root_) / name, name);
  });
}

// Once: a repository that is polled is read again and again.
void ModelDirectory::TellWithoutEffect(const std::string& name,
                                       std::string what) {
  {
    MutexLock lock(mu_);
    std::string& told = without_effect_[name];
    if (told == what) return;
    told = what;
  }
  if (what.empty()) return;
  LogWarning("fields of the configuration have no effect",
             {{"model", name}, {"fields", what}});
}

config::PipelineSettings ModelDirectory::PipelineOf(
    const std::string& name) const {
  MutexLock lock(mu_);
  const auto at = pipelines_.find(name);
  return at == pipelines_.end() ? config::PipelineSettings() : at->second;
}

StatusOr<std::vector<VersionPlan>> ModelDirectory::Find(
    const std::string& name, const std::string& config_json) {
  ASSIGN_OR_RETURN(const std::vector<std::string> names, Names());
  // Also what keeps names like ".." out.
  if (std::find(names.begin(), names.end(), name) == names.end()) {
    return NotFound("the model '" + name + "' is not in the repository " +
                    root_)
        .At("model")
        .Because("model_not_found");
  }
  const fs::path folder = fs::path(root_) / name;
  std::error_code error;
  const bool is_folder = fs::is_directory(folder, error);

  ASSIGN_OR_RETURN(Configuration config,
                   ReadConfiguration(name, config_json, folder, defaults_));
  const std::string& file_name = config.file_name;
  if (file_name.find('/') != std::string::npos || file_name == "..") {
    return InvalidArgument("default_model_filename is '" + file_name +
                           "' but must be the name of a file in the "
                           "version's folder")
        .At("default_model_filename");
  }

  const config::EnsembleSettings* ensemble = config.pipeline.ensemble.get();
  // A folder is all that it needs.
  const bool is_folder_model = !config.pipeline.needs_cores();
  std::vector<std::pair<std::string, fs::path>> found;  // version → model
  if (is_folder) {
    for (const fs::path& entry : Entries(folder)) {
      const std::string version = entry.filename().string();
      if (!IsVersion(version) || !fs::is_directory(entry, error)) continue;
      const fs::path model =
          is_folder_model ? entry : ModelOf(entry, file_name);
      if (!model.empty()) found.emplace_back(version, model);
    }
    if (is_folder_model && found.empty()) {
      found.emplace_back(kOnlyVersion, folder);
    }
    std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) {
      return std::stoll(a.first) < std::stoll(b.first);
    });
  } else {
    const fs::path model = PlainFileOf(folder);
    if (!model.empty()) found.emplace_back(kOnlyVersion, model);
  }
  if (found.empty()) {
    if (IsVersion(name) && !ModelOf(folder, file_name).empty()) {
      return InvalidArgument("'" + root_ +
                             "' is the folder of one model, of "
                             "which '" +
                             name +
                             "' is a version; name the "
                             "folder above it as the model repository")
          .At("model_repository");
    }
    const std::string wanted = file_name.empty() ? "model.onnx" : file_name;
    return InvalidArgument("the model '" + name +
                           "' has no version that could be served; put one "
                           "into " +
                           (folder / "1" / wanted).string() +
                           (file_name.empty() ? " (or .pt2, .gguf)" : "") +
                           Unreadable(folder))
        .At("model");
  }
  std::vector<std::string> versions;
  for (const auto& [version, model] : found) versions.push_back(version);
  ASSIGN_OR_RETURN(versions, config.model.ChooseVersions(versions));
  for (const auto& [label, version] : config.labels) {
    if (std::find(versions.begin(), versions.end(), version) ==
        versions.end()) {
      return InvalidArgument("version_labels calls version " + version + " '" +
                             label +
                             "', but version_policy does not choose it, or it "
                             "has no folder with a model")
          .At("version_labels");
    }
  }

  RETURN_IF_ERROR(ResolveTraffic(config.labels, versions, &config.pipeline));
  RETURN_IF_ERROR(
      ResolveShadow(name, config.labels, versions, &config.pipeline));
  TellWithoutEffect(name, config.model.WithoutEffect());
  {
    MutexLock lock(mu_);
    pipelines_[name] = config.pipeline;
  }
  std::vector<VersionPlan> plans;
  for (const auto& [version, model] : found) {
    if (std::find(versions.begin(), versions.end(), version) ==
        versions.end()) {
      continue;
    }
    VersionPlan plan;
    plan.version = version;
    plan.settings = config.settings;
    plan.settings.path = model.string();
    plan.config = config.model.ToJson();
    plan.stamp = config.stamp;
    plan.traffic = config.pipeline.traffic;
    if (ensemble == nullptr) {
      AddStamp(is_folder && !is_folder_model ? folder / version : model,
               &plan.stamp);
    } else {
      // Its types are checked anew with each change of a model in it.
      for (const config::EnsembleStep& step : ensemble->steps) {
        if (std::find(names.begin(), names.end(), step.model) != names.end()) {
          const fs::path member = fs::path(root_) / step.model;
          AddStamp(
              fs::is_directory(member, error) ? member : PlainFileOf(member),
              &plan.stamp);
        }
      }
    }
    AddNamedFiles(folder, config, &plan.stamp);
    for (const auto& [label, of_version] : config.labels) {
      if (of_version == version) plan.labels.push_back(label);
    }
    plans.push_back(std::move(plan));
  }
  return plans;
}

}  // namespace millrace::server
