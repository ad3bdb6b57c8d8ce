// What the disk says, without opening a model: whether a file can be served is
// found out when it is loaded.
#include "server/lifecycle/model_directory.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>
#include <utility>

#include "server/lifecycle/model_config.h"

namespace millrace::server {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kExtensions[] = {".onnx", ".pt2", ".gguf"};
constexpr const char* kConfigFile = "config.pbtxt";
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

// The entries of a folder, sorted; none when it cannot be read.
std::vector<fs::path> Entries(const fs::path& folder) {
  std::vector<fs::path> entries;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end;
       at.increment(error)) {
    entries.push_back(at->path());
  }
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

std::vector<std::string> ModelDirectory::Names() {
  std::vector<std::string> names;
  for (const fs::path& entry : Entries(root_)) {
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
  return names;
}

StatusOr<std::vector<VersionPlan>> ModelDirectory::Find(
    const std::string& name, const std::string& config_json) {
  const std::vector<std::string> names = Names();
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

  ModelConfig config;
  bool has_config = true;
  if (!config_json.empty()) {
    ASSIGN_OR_RETURN(config, ModelConfig::FromJson(config_json));
  } else if (is_folder && fs::exists(folder / kConfigFile, error)) {
    ASSIGN_OR_RETURN(const std::string text,
                     ReadConfigFile(folder / kConfigFile));
    ASSIGN_OR_RETURN(
        config, ModelConfig::FromText(text, (folder / kConfigFile).string()));
  } else {
    has_config = false;
  }
  if (!config.name().empty() && config.name() != name) {
    return InvalidArgument("name is '" + config.name() +
                           "' in the configuration of the model '" + name +
                           "'; make it the folder's or leave it out")
        .At("name");
  }
  const std::string& file_name = config.default_model_filename();
  if (file_name.find('/') != std::string::npos || file_name == "..") {
    return InvalidArgument("default_model_filename is '" + file_name +
                           "' but must be the name of a file in the "
                           "version's folder")
        .At("default_model_filename");
  }

  std::vector<std::pair<std::string, fs::path>> found;  // version → model
  if (is_folder) {
    for (const fs::path& entry : Entries(folder)) {
      const std::string version = entry.filename().string();
      if (!IsVersion(version) || !fs::is_directory(entry, error)) continue;
      const fs::path model = ModelOf(entry, file_name);
      if (!model.empty()) found.emplace_back(version, model);
    }
    std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) {
      return std::stoll(a.first) < std::stoll(b.first);
    });
  } else {
    for (const std::string_view extension : kExtensions) {
      const fs::path model = folder.string() + std::string(extension);
      if (found.empty() && IsModelFile(model)) {
        found.emplace_back(kOnlyVersion, model);
      }
    }
  }
  if (found.empty()) {
    const std::string wanted = file_name.empty() ? "model.onnx" : file_name;
    return InvalidArgument("the model '" + name +
                           "' has no version that could be served; put one "
                           "into " +
                           (folder / "1" / wanted).string() +
                           (file_name.empty() ? " (or .pt2, .gguf)" : ""))
        .At("model");
  }
  std::vector<std::string> versions;
  for (const auto& [version, model] : found) versions.push_back(version);
  ASSIGN_OR_RETURN(versions, config.ChooseVersions(versions));

  config::ModelSettings settings = defaults_;
  settings.name = name;
  if (has_config) {
    RETURN_IF_ERROR(config.ApplyTo(&settings).Prefixed(
        "the configuration of '" + name + "'"));
  }
  std::vector<VersionPlan> plans;
  for (const auto& [version, model] : found) {
    if (std::find(versions.begin(), versions.end(), version) ==
        versions.end()) {
      continue;
    }
    VersionPlan plan;
    plan.version = version;
    plan.settings = settings;
    plan.settings.path = model.string();
    plan.config = config.ToJson();
    plan.stamp = plan.config;
    AddStamp(is_folder ? model.parent_path() : model, &plan.stamp);
    plans.push_back(std::move(plan));
  }
  return plans;
}

}  // namespace millrace::server
