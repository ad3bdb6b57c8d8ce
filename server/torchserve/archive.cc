// What is Python or a pickle stays packed where no Python may run.
#include "server/torchserve/archive.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "config/base/json.h"
#include "config/base/utf8.h"
#include "config/model_file.h"
#include "config/yaml.h"
#include "server/torchserve/python_handler.h"

#include <yaml-cpp/yaml.h>

namespace millrace::server::torchserve {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr std::string_view kManifest = "MAR-INF/MANIFEST.json";
constexpr size_t kMaxNameBytes = 200;
constexpr int64_t kMaxNumber = 1'000'000'000;
constexpr std::string_view kSequences = "sequence_batching";
constexpr std::string_view kBuiltIn[] = {
    "base_handler",    "image_classifier", "object_detector",
    "image_segmenter", "text_classifier",
};
constexpr std::string_view kNeverRead[] = {".py",  ".pt",   ".pth", ".pkl",
                                           ".bin", ".ckpt", ".pyc", ".so"};

std::string Extension(std::string_view name) {
  const size_t dot = name.rfind('.');
  std::string text(dot == std::string_view::npos ? "" : name.substr(dot));
  for (char& c : text) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return text;
}

bool IsNeverRead(std::string_view name) {
  return std::find(std::begin(kNeverRead), std::end(kNeverRead),
                   Extension(name)) != std::end(kNeverRead);
}

// A file in the archive's top folder.
bool IsPlainName(std::string_view name) {
  return !name.empty() && name.size() <= kMaxNameBytes && name != "." &&
         name != ".." && name.find('/') == std::string_view::npos &&
         name.find('\\') == std::string_view::npos &&
         std::none_of(name.begin(), name.end(), [](char c) {
           return static_cast<unsigned char>(c) < 0x20;
         });
}

StatusOr<std::string> TextOf(const Json& model, const char* key) {
  const auto at = model.find(key);
  if (at == model.end() || at->is_null()) return std::string();
  if (!at->is_string()) {
    return InvalidArgument("the manifest's model." + std::string(key) +
                           " must be a text");
  }
  return at->get<std::string>();
}

StatusOr<std::string> FileOf(const Json& model, const char* key) {
  ASSIGN_OR_RETURN(std::string name, TextOf(model, key));
  if (!name.empty() && !IsPlainName(name)) {
    return InvalidArgument("the manifest's model." + std::string(key) +
                           " is '" + Shortened(name, kMaxNameBytes) +
                           "' but must be the name of a file of the archive, "
                           "without a folder");
  }
  return name;
}

// As a repository's config.yaml is read.
StatusOr<std::string> ReadSequences(const YAML::Node& node) {
  YAML::Node alone;
  alone[std::string(kSequences)] = node;
  ASSIGN_OR_RETURN(
      config::ModelFile file,
      config::ReadModelFile(YAML::Dump(alone), "the model's YAML file", {}));
  return std::move(file.sequence_batching);
}

}  // namespace

StatusOr<Manifest> ParseManifest(std::string_view json) {
  ASSIGN_OR_RETURN(const Json document, ParseJson(json, {.max_depth = 16}));
  const auto at =
      document.is_object() ? document.find("model") : document.end();
  if (!document.is_object() || at == document.end() || !at->is_object()) {
    return InvalidArgument("the manifest has no object 'model'");
  }
  Manifest manifest;
  ASSIGN_OR_RETURN(manifest.model_name, TextOf(*at, "modelName"));
  ASSIGN_OR_RETURN(manifest.model_version, TextOf(*at, "modelVersion"));
  ASSIGN_OR_RETURN(manifest.handler, TextOf(*at, "handler"));
  ASSIGN_OR_RETURN(manifest.serialized_file, FileOf(*at, "serializedFile"));
  ASSIGN_OR_RETURN(manifest.model_file, FileOf(*at, "modelFile"));
  ASSIGN_OR_RETURN(manifest.config_file, FileOf(*at, "configFile"));
  ASSIGN_OR_RETURN(manifest.requirements_file, FileOf(*at, "requirementsFile"));
  for (const auto& [text, key] :
       {std::pair{&manifest.model_name, "modelName"},
        std::pair{&manifest.model_version, "modelVersion"}}) {
    if (!IsPlainName(*text)) {
      return InvalidArgument(
          "the manifest's model." + std::string(key) + " is '" +
          Shortened(*text, kMaxNameBytes) + "' but must be a name of 1 to " +
          std::to_string(kMaxNameBytes) + " characters without slashes");
    }
  }
  return manifest;
}

StatusOr<ArchiveConfig> ParseArchiveConfig(const std::string& yaml) {
  ArchiveConfig config;
  const std::pair<std::string_view, std::optional<int64_t>*> numbers[] = {
      {"batchSize", &config.batch_size},
      {"maxBatchDelay", &config.max_batch_delay_ms},
      {"minWorkers", &config.min_workers},
      {"maxWorkers", &config.max_workers},
      {"responseTimeout", &config.response_timeout_s},
      {"startupTimeout", &config.startup_timeout_s},
      {"jobQueueSize", &config.job_queue_size},
      {"sequenceMaxIdleMSec", &config.sequence_max_idle_ms},
      {"maxNumSequence", &config.max_num_sequence},
  };
  try {
    const YAML::Node document = config::LoadYaml(yaml);
    if (document.IsNull()) return config;
    if (!document.IsMap()) {
      return InvalidArgument("the model's YAML file holds no settings");
    }
    for (const auto& entry : document) {
      const std::string key = entry.first.as<std::string>();
      if (key == kSequences) {
        ASSIGN_OR_RETURN(config.sequence_batching, ReadSequences(entry.second));
        continue;
      }
      const auto number =
          std::find_if(std::begin(numbers), std::end(numbers),
                       [&](const auto& each) { return each.first == key; });
      if (number == std::end(numbers)) {
        config.without_effect.push_back(Shortened(key, kMaxNameBytes));
        continue;
      }
      const std::string text =
          entry.second.IsScalar() ? entry.second.Scalar() : "";
      int64_t value = 0;
      const auto [end, ec] =
          std::from_chars(text.data(), text.data() + text.size(), value);
      if (ec != std::errc() || end != text.data() + text.size() || value < 0 ||
          value > kMaxNumber) {
        return InvalidArgument("the model's YAML file says " + key + ": '" +
                               Shortened(text, kMaxNameBytes) +
                               "'; expected a whole number from 0 to " +
                               std::to_string(kMaxNumber));
      }
      *number->second = value;
    }
    // As there: no time at all is no timeout.
    for (auto* timeout :
         {&config.response_timeout_s, &config.startup_timeout_s}) {
      if (timeout->value_or(1) == 0) timeout->reset();
    }
  } catch (const YAML::Exception& error) {
    return InvalidArgument(std::string("the model's YAML file is broken: ") +
                           error.what());
  }
  return config;
}

bool IsBuiltIn(std::string_view handler) {
  return std::find(std::begin(kBuiltIn), std::end(kBuiltIn), handler) !=
         std::end(kBuiltIn);
}

Status CheckServable(const Manifest& manifest) {
  const std::string& file = manifest.serialized_file;
  const std::string extension = Extension(file);
  if (file.empty() || (extension != ".onnx" && extension != ".pt2")) {
    return FailedPrecondition(
        (file.empty() ? "the archive has no serialized model"
                      : "'" + file +
                            "' is TorchScript or another pickle, which is "
                            "never read here") +
        std::string(
            "; export the model by torch.export.save(torch.export.export("
            "model, example_inputs), 'model.pt2') and archive model.pt2 with "
            "--serialized-file"));
  }
  if (!IsBuiltIn(manifest.handler)) {
    return FailedPrecondition(
        "the handler '" + Shortened(manifest.handler, kMaxNameBytes) +
        "' is Python, which is run only where config.properties names an "
        "interpreter (python=/path/of/python3); or register the model with "
        "handler=base_handler for its tensors, or with image_classifier, "
        "object_detector, image_segmenter or text_classifier");
  }
  return OkStatus();
}

StatusOr<std::shared_ptr<const Archive>> Archive::Open(
    const std::string& path, const std::string& handler, bool python) {
  ASSIGN_OR_RETURN(auto archive, ReadFiles(path, handler, Limits{}, python));
  std::error_code error;
  if (python && !IsBuiltIn(archive->manifest().handler)) {
    archive->FindHandler();
    return std::shared_ptr<const Archive>(std::move(archive));
  }
  RETURN_IF_ERROR(CheckServable(archive->manifest()));
  if (!fs::is_regular_file(archive->model_path(), error)) {
    return InvalidArgument("the archive has no file '" +
                           archive->manifest().serialized_file +
                           "', which its manifest names as the model");
  }
  return std::shared_ptr<const Archive>(std::move(archive));
}

void Archive::FindHandler() {
  const StatusOr<PythonHandler> parsed = ParsePythonHandler(manifest_.handler);
  std::error_code error;
  if (!parsed.ok()) {
    handler_status_ = parsed.status();
  } else if (!fs::is_regular_file(folder_ + "/" + parsed->file, error)) {
    handler_status_ = InvalidArgument("the archive has no file '" +
                                      parsed->file + "', which is its handler");
  }
}

StatusOr<std::shared_ptr<const Archive>> Archive::Read(
    const std::string& path, const std::string& handler, const Limits& limits,
    bool python) {
  ASSIGN_OR_RETURN(auto archive, ReadFiles(path, handler, limits, python));
  return std::shared_ptr<const Archive>(std::move(archive));
}

StatusOr<std::shared_ptr<Archive>> Archive::ReadFiles(
    const std::string& path, const std::string& handler, const Limits& limits,
    bool python) {
  std::shared_ptr<Archive> archive(new Archive());
  std::error_code error;
  if (fs::is_directory(path, error)) {
    archive->folder_ = path;
  } else {
    ASSIGN_OR_RETURN(
        archive->unpacked_,
        UnpackedFolder::Of(path, kManifest, "torch-model-archiver", limits,
                           [python](std::string_view name) {
                             return !python && IsNeverRead(name);
                           }));
    archive->folder_ = archive->unpacked_->path();
    archive->files_ = archive->unpacked_->files();
  }
  RETURN_IF_ERROR(archive->ReadFolder());
  if (!handler.empty()) archive->manifest_.handler = handler;
  return archive;
}

Status Archive::ReadFolder() {
  std::error_code error;
  const fs::path manifest = fs::path(folder_) / kManifest;
  if (!fs::is_regular_file(manifest, error)) {
    return InvalidArgument("the folder has no " + std::string(kManifest) +
                           "; make it with torch-model-archiver "
                           "--archive-format no-archive");
  }
  ASSIGN_OR_RETURN(const std::string text, ReadTextFile(manifest));
  ASSIGN_OR_RETURN(manifest_, ParseManifest(text));
  if (!manifest_.config_file.empty()) {
    ASSIGN_OR_RETURN(const std::string yaml,
                     ReadTextFile(fs::path(folder_) / manifest_.config_file));
    ASSIGN_OR_RETURN(config_, ParseArchiveConfig(yaml));
  }
  if (unpacked_ != nullptr) return OkStatus();
  for (fs::directory_iterator at(folder_, error), end; !error && at != end;
       at.increment(error)) {
    std::error_code unreadable;
    if (at->is_regular_file(unreadable)) {
      files_.push_back(at->path().filename().string());
    }
  }
  std::sort(files_.begin(), files_.end());
  return OkStatus();
}

}  // namespace millrace::server::torchserve
