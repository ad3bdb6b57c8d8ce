#include "server/cli/model_kind.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <vector>

#include "models/encoder/encoder_files.h"
#include "models/graph/import.h"

namespace millrace::server {
namespace {

constexpr std::string_view kLanguageModels =
    "a GGUF file or a Hugging Face folder (config.json and .safetensors)";
constexpr std::string_view kGraphs =
    "an ONNX file or a PyTorch export (.pt2 of torch.export.save)";

std::string AllKinds() {
  return "a model is " + std::string(kLanguageModels) + ", " +
         std::string(kGraphs);
}

// Unfinished downloads are empty files as a rule.
std::string WhatItIs(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::file_size(path, ignored) == 0) return "is empty";
  if (path.ends_with(".pt") || path.ends_with(".pth") ||
      path.ends_with(".bin")) {
    return "is no model that millrace knows (TorchScript and pickles are not "
           "read; torch.export.save writes a .pt2)";
  }
  return "is no model that millrace knows";
}

// Of a folder that is no model itself; some by name.
std::string ModelsIn(const std::filesystem::path& folder) {
  constexpr size_t kMostShown = 3;
  std::vector<std::string> found;
  std::error_code error;
  for (std::filesystem::directory_iterator it(folder, error), end;
       !error && it != end; it.increment(error)) {
    const std::string suffix = it->path().extension();
    if (suffix == ".gguf" || suffix == ".onnx" || suffix == ".pt2") {
      found.push_back("'" + it->path().string() + "'");
    }
  }
  std::sort(found.begin(), found.end());
  std::string text;
  for (size_t i = 0; i < std::min(found.size(), kMostShown); ++i) {
    text += (i == 0 ? "" : ", ") + found[i];
  }
  if (found.size() > kMostShown) text += ", …";
  return text;
}

// Whether it has folders of models, with numbers of versions in them.
bool IsRepository(const std::filesystem::path& folder) {
  std::error_code error;
  for (std::filesystem::directory_iterator it(folder, error), end;
       !error && it != end; it.increment(error)) {
    for (const char* inside : {"config.pbtxt", "1"}) {
      std::error_code ignored;
      if (std::filesystem::exists(it->path() / inside, ignored)) return true;
    }
  }
  return false;
}

// The folder of a model that this file is a part of; empty: there is none.
std::string FolderOf(const std::string& path) {
  const auto folder = std::filesystem::absolute(path).parent_path();
  const std::string suffix = std::filesystem::path(path).extension();
  std::error_code ignored;
  const bool is_part = (suffix == ".json" || suffix == ".safetensors") &&
                       std::filesystem::exists(folder / "config.json", ignored);
  return is_part ? folder.string() : "";
}

// What there is for this kind beside serving.
std::string_view InsteadFor(FileKind kind) {
  switch (kind) {
    case FileKind::kLanguageModel:
      return "; for language models there are `millrace bench` and `millrace "
             "logits`";
    case FileKind::kEncoder:
      return "; for encoders there are `millrace inspect` and `millrace serve`";
    case FileKind::kGraph:
      return "; for graphs there are `millrace run` and `millrace profile`";
  }
  return {};
}

}  // namespace

std::string_view KindName(FileKind kind) {
  switch (kind) {
    case FileKind::kLanguageModel:
      return "a language model";
    case FileKind::kEncoder:
      return "an encoder of texts";
    case FileKind::kGraph:
      return "a graph";
  }
  return {};
}

StatusOr<FileKind> FileKindOf(const std::string& path) {
  std::error_code ignored;
  const auto status = std::filesystem::status(path, ignored);
  if (!std::filesystem::exists(status)) {
    return NotFound("there is no file or folder '" + path + "'");
  }
  if (std::filesystem::is_directory(status)) {
    const auto config = std::filesystem::path(path) / "config.json";
    if (std::filesystem::exists(config, ignored)) {
      return models::encoder::IsEncoder(path) ? FileKind::kEncoder
                                              : FileKind::kLanguageModel;
    }
    const std::string models = ModelsIn(path);
    if (models.empty() && IsRepository(path)) {
      return InvalidArgument("the folder '" + path +
                             "' is a model repository; serve it with "
                             "--model-repository " +
                             path);
    }
    return InvalidArgument(
        "the folder '" + path + "' has no config.json; " +
        (models.empty() ? AllKinds() : "name one of its models: " + models));
  }
  if (path.ends_with(".npz") || path.ends_with(".npy")) {
    return InvalidArgument("'" + path +
                           "' holds arrays, no model; run and profile take "
                           "such a file with --input");
  }
  ASSIGN_OR_RETURN(const bool is_graph, models::graph::IsGraphFile(path));
  if (is_graph) return FileKind::kGraph;
  char magic[4] = {};
  std::ifstream(path, std::ios::binary).read(magic, sizeof magic);
  if (std::string_view(magic, sizeof magic) == "GGUF") {
    return models::encoder::IsEncoder(path) ? FileKind::kEncoder
                                            : FileKind::kLanguageModel;
  }
  if (const std::string folder = FolderOf(path); !folder.empty()) {
    return InvalidArgument("'" + path +
                           "' is a part of a model; give the folder '" +
                           folder + "'");
  }
  if (path.ends_with(".safetensors")) {
    return InvalidArgument("'" + path +
                           "' holds weights only; give the folder it is in");
  }
  return InvalidArgument("'" + path + "' " + WhatItIs(path) + "; " +
                         AllKinds());
}

Status ExpectKind(const std::string& path, FileKind kind,
                  std::string_view verb) {
  ASSIGN_OR_RETURN(const FileKind found, FileKindOf(path));
  if (found == kind) return OkStatus();
  const bool takes_graphs = kind == FileKind::kGraph;
  return InvalidArgument("'" + path + "' is " + std::string(KindName(found)) +
                         ", but millrace " + std::string(verb) + " takes " +
                         std::string(takes_graphs ? kGraphs : kLanguageModels) +
                         std::string(InsteadFor(found)));
}

}  // namespace millrace::server
