#include "server/cli/model_kind.h"

#include <filesystem>
#include <fstream>
#include <system_error>

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
  return "is no model that millrace knows";
}

}  // namespace

StatusOr<ModelKind> ModelKindOf(const std::string& path) {
  std::error_code ignored;
  const auto status = std::filesystem::status(path, ignored);
  if (!std::filesystem::exists(status)) {
    return NotFound("there is no file or folder '" + path + "'");
  }
  if (std::filesystem::is_directory(status)) {
    const auto config = std::filesystem::path(path) / "config.json";
    if (std::filesystem::exists(config, ignored)) {
      return ModelKind::kLanguageModel;
    }
    return InvalidArgument("the folder '" + path + "' has no config.json; " +
                           AllKinds());
  }
  ASSIGN_OR_RETURN(const bool is_graph, models::graph::IsGraphFile(path));
  if (is_graph) return ModelKind::kGraph;
  char magic[4] = {};
  std::ifstream(path, std::ios::binary).read(magic, sizeof magic);
  if (std::string_view(magic, sizeof magic) == "GGUF") {
    return ModelKind::kLanguageModel;
  }
  if (path.ends_with(".safetensors")) {
    return InvalidArgument("'" + path +
                           "' holds weights only; give the folder it is in");
  }
  return InvalidArgument("'" + path + "' " + WhatItIs(path) + "; " +
                         AllKinds());
}

Status ExpectKind(const std::string& path, ModelKind kind,
                  std::string_view verb) {
  ASSIGN_OR_RETURN(const ModelKind found, ModelKindOf(path));
  if (found == kind) return OkStatus();
  const bool is_graph = found == ModelKind::kGraph;
  return InvalidArgument(
      "'" + path + "' is " + (is_graph ? "a graph" : "a language model") +
      ", but millrace " + std::string(verb) + " takes " +
      std::string(is_graph ? kLanguageModels : kGraphs) +
      (is_graph ? "; for graphs there are `millrace run` and `millrace profile`"
                : "; for language models there are `millrace bench` and "
                  "`millrace logits`"));
}

}  // namespace millrace::server
