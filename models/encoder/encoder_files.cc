#include "models/encoder/encoder_files.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "config/base/json.h"
#include "models/encoder/build.h"
#include "models/encoder/encoder_tensors.h"
#include "models/graph/passes/passes.h"

namespace millrace::models::encoder {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMaxConfigBytes = 16 << 20;

StatusOr<std::string> ReadConfig(const std::string& folder) {
  const fs::path path = fs::path(folder) / "config.json";
  std::error_code error;
  const auto bytes = fs::file_size(path, error);
  if (error || bytes > kMaxConfigBytes) {
    return InvalidArgument("'" + path.string() + "' cannot be read");
  }
  std::ifstream in(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(in),
                     std::istreambuf_iterator<char>());
}

bool IsEncoderFolder(const std::string& path) {
  const StatusOr<std::string> text = ReadConfig(path);
  if (!text.ok()) return false;
  const StatusOr<nlohmann::ordered_json> json = ParseJson(*text);
  if (!json.ok() || !json->is_object()) return false;
  const auto names = json->find("architectures");
  return names != json->end() && names->is_array() && !names->empty() &&
         names->front().is_string() &&
         IsEncoderArchitecture(names->front().get<std::string>());
}

bool IsEncoderGguf(const std::string& path) {
  char magic[4] = {};
  std::ifstream(path, std::ios::binary).read(magic, sizeof magic);
  if (std::string_view(magic, sizeof magic) != "GGUF") return false;
  const StatusOr<GgufFile> file = GgufFile::Open(path);
  if (!file.ok()) return false;
  const auto architecture = file->String("general.architecture", "");
  return architecture.ok() && IsEncoderGgufName(*architecture);
}

// Where the file, not the config, knows how many there are.
void CompleteFromTensors(const EncoderTensors& tensors, EncoderConfig& config) {
  if (config.family == Family::kNomic) {
    // The table is padded to a multiple.
    const int64_t rows = tensors.Rows("embeddings.word_embeddings.weight");
    config.vocabulary = std::max(config.vocabulary, rows);
  }
  if (config.head != Head::kClassify || config.classes > 0) return;
  config.classes = tensors.Rows(config.family == Family::kRoberta
                                    ? "classifier.out_proj.weight"
                                    : "classifier.weight");
}

StatusOr<Encoder> Build(EncoderConfig config, const EncoderTensors& tensors,
                        const std::string& path) {
  CompleteFromTensors(tensors, config);
  StatusOr<graph::Graph> graph = BuildEncoder(config, tensors);
  if (!graph.ok()) return graph.status().Prefixed("'" + path + "'");
  graph->name = config.architecture;
  graph::WidenHalves(*graph);
  return Encoder{*std::move(graph), std::move(config), nullptr};
}

}  // namespace

bool IsEncoder(const std::string& path) {
  std::error_code error;
  return fs::is_directory(path, error) ? IsEncoderFolder(path)
                                       : IsEncoderGguf(path);
}

StatusOr<Encoder> LoadEncoder(const std::string& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) {
    ASSIGN_OR_RETURN(const std::string text, ReadConfig(path));
    StatusOr<EncoderConfig> config = ReadEncoderConfig(text);
    if (!config.ok()) {
      return config.status().Prefixed("'" + path + "/config.json'");
    }
    ASSIGN_OR_RETURN(const auto tensors, OpenFolderTensors(path));
    return Build(*std::move(config), *tensors, path);
  }
  ASSIGN_OR_RETURN(GgufFile opened, GgufFile::Open(path));
  const auto file = std::make_shared<const GgufFile>(std::move(opened));
  StatusOr<EncoderConfig> config = ReadEncoderKeys(*file);
  if (!config.ok()) return config.status().Prefixed("'" + path + "'");
  const auto tensors = MakeGgufTensors(file, config->family);
  ASSIGN_OR_RETURN(Encoder encoder, Build(*std::move(config), *tensors, path));
  encoder.file = file;
  return encoder;
}

}  // namespace millrace::models::encoder
