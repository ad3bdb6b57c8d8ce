// millrace migrate: a TorchServe archive as a folder of our model repository,
// and a list of what it had that a person must still look at.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "config/base/utf8.h"
#include "server/cli/args.h"
#include "server/cli/verbs.h"
#include "server/torchserve/archive.h"

namespace millrace::server {
namespace {

namespace fs = std::filesystem;
using torchserve::Archive;
using torchserve::ArchiveConfig;
using torchserve::Manifest;

constexpr FlagSpec kFlags[] = {
    {"output", "DIR", "model repository to write to (default: migrated)", "o"},
    {"handler", "NAME", "as if the archive had been made with this handler"},
};
constexpr VerbSpec kVerb = {
    "migrate",
    "MODEL.mar",
    "Writes a TorchServe archive (.mar or folder) as a folder of a model "
    "repository:\nthe model, labels and config.yaml; says what remains to be "
    "done. Nothing of\nthe archive is run.",
    kFlags,
    1,
    1};

constexpr std::string_view kLabels = "index_to_name.json";

// "1.0" → 1; versions of a repository are whole numbers above 0.
std::string VersionOf(const std::string& text) {
  std::string digits;
  for (const char c : text) {
    if (c < '0' || c > '9') break;
    if (!digits.empty() || c != '0') digits += c;
  }
  return digits.empty() || digits.size() > 18 ? "1" : digits;
}

std::string_view TaskOf(const std::string& handler) {
  if (handler == "image_classifier") return "classify";
  if (handler == "object_detector") return "detect";
  if (handler == "image_segmenter") return "segment";
  if (handler == "text_classifier") return "classify_text";
  return {};
}

std::string ConfigText(const Manifest& manifest, const ArchiveConfig& config,
                       bool has_labels) {
  std::string text = "# Of the TorchServe archive '" + manifest.model_name +
                     "', version " + manifest.model_version + ".\n";
  const auto number = [&](std::string_view key, std::optional<int64_t> value,
                          std::string_view unit = "") {
    if (!value.has_value()) return;
    text.append(key).append(": ").append(std::to_string(*value));
    text.append(unit).append("\n");
  };
  if (config.batch_size.value_or(1) > 1) {
    number("max_batch_size", config.batch_size);
    number("max_queue_delay", config.max_batch_delay_ms.value_or(100), "ms");
  }
  if (config.min_workers.value_or(0) > 0) {
    number("instance_count", config.min_workers);
  }
  number("max_queue_size", config.job_queue_size);
  if (!config.sequence_batching.empty()) {  // JSON is YAML
    text += "sequence_batching: " + config.sequence_batching + "\n";
  }
  const std::string_view task = TaskOf(manifest.handler);
  if (!task.empty()) {
    text.append("task: ").append(task).append("\n");
    if (has_labels || task == "classify") text += "task_options:\n";
    if (has_labels) text.append("  labels: ").append(kLabels).append("\n");
    if (task == "classify") {  // what the handler does to pictures
      text +=
          "  resize: 256\n  center_crop: 224\n"
          "  mean: [0.485, 0.456, 0.406]\n  std: [0.229, 0.224, 0.225]\n";
    }
  }
  return text;
}

Status Copy(const fs::path& from, const fs::path& to) {
  std::error_code error;
  fs::create_directories(to.parent_path(), error);
  fs::copy_file(from, to, fs::copy_options::overwrite_existing, error);
  if (!error) return OkStatus();
  return FailedPrecondition("'" + to.string() + "' cannot be written (" +
                            error.message() + ")");
}

// What a person must look at.
std::vector<std::string> Remains(const Archive& archive, bool is_servable) {
  const Manifest& manifest = archive.manifest();
  std::vector<std::string> remains;
  const Status servable = torchserve::CheckServable(manifest);
  if (!servable.ok()) remains.emplace_back(servable.message());
  if (servable.ok() && !is_servable) {
    remains.push_back("the archive lacks '" + manifest.serialized_file +
                      "', which its manifest names as the model");
  }
  if (!manifest.model_file.empty()) {
    remains.push_back("'" + manifest.model_file +
                      "' defines the model in Python; it is needed for the "
                      "export alone");
  }
  if (!manifest.requirements_file.empty()) {
    remains.push_back("'" + manifest.requirements_file +
                      "' names Python packages, which nothing needs here");
  }
  for (const std::string& key : archive.config().without_effect) {
    remains.push_back("'" + key + "' of " + manifest.config_file +
                      " has no counterpart");
  }
  const ArchiveConfig& config = archive.config();
  if (config.sequence_max_idle_ms || config.max_num_sequence) {
    remains.emplace_back(
        "sequenceMaxIdleMSec and maxNumSequence are words of sequence_batching "
        "here: max_sequence_idle_microseconds, and max_candidate_sequences of "
        "oldest");
  }
  for (const std::string& file : archive.files()) {
    if (file == manifest.serialized_file || file == manifest.model_file ||
        file == manifest.config_file || file == kLabels ||
        file.starts_with("MAR-INF/") || file == manifest.requirements_file ||
        file == manifest.handler) {
      continue;
    }
    remains.push_back("the extra file '" + Shortened(file, 200) +
                      "' is not used; what read it was Python");
  }
  return remains;
}

Status Migrate(const ParsedArgs& args) {
  const std::string& path = args.positional()[0];
  ASSIGN_OR_RETURN(const auto archive,
                   Archive::Read(path, args.Text("handler", ""), {}));
  const Manifest& manifest = archive->manifest();
  const fs::path folder =
      fs::path(args.Text("output", "migrated")) / manifest.model_name;
  std::error_code error;
  if (fs::exists(folder, error)) {
    return FailedPrecondition("'" + folder.string() +
                              "' exists; remove it or choose another --output");
  }
  const bool is_servable = torchserve::CheckServable(manifest).ok() &&
                           fs::is_regular_file(archive->model_path(), error);
  const fs::path labels = fs::path(archive->folder()) / kLabels;
  const bool has_labels = fs::is_regular_file(labels, error);
  fs::create_directories(folder, error);
  std::ofstream config(folder / "config.yaml");
  config << ConfigText(manifest, archive->config(), has_labels);
  config.close();
  if (!config) {
    return FailedPrecondition("'" + (folder / "config.yaml").string() +
                              "' cannot be written");
  }
  if (has_labels) RETURN_IF_ERROR(Copy(labels, folder / kLabels));
  const std::string version = VersionOf(manifest.model_version);
  if (is_servable) {
    RETURN_IF_ERROR(
        Copy(archive->model_path(),
             folder / version /
                 ("model" +
                  fs::path(manifest.serialized_file).extension().string())));
  }
  std::printf("%s: '%s', version %s\n", folder.c_str(),
              manifest.model_name.c_str(), version.c_str());
  const std::vector<std::string> remains = Remains(*archive, is_servable);
  if (!remains.empty()) std::printf("what remains:\n");
  for (const std::string& each : remains) std::printf("- %s\n", each.c_str());
  if (is_servable) {
    std::printf("next: millrace serve --model-repository %s\n",
                folder.parent_path().c_str());
  }
  return OkStatus();
}

}  // namespace

const VerbSpec& MigrateVerb() { return kVerb; }
int RunMigrate(Args args) { return RunVerb(kVerb, args, Migrate); }

}  // namespace millrace::server
