#include "models/encoder/encoder_folder.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "config/base/json.h"
#include "models/encoder/build.h"
#include "models/files/safetensors.h"
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

}  // namespace

bool IsEncoderFolder(const std::string& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return false;
  const StatusOr<std::string> text = ReadConfig(path);
  if (!text.ok()) return false;
  const StatusOr<nlohmann::ordered_json> json = ParseJson(*text);
  if (!json.ok() || !json->is_object()) return false;
  const auto names = json->find("architectures");
  return names != json->end() && names->is_array() && !names->empty() &&
         names->front().is_string() &&
         IsKnownArchitecture(names->front().get<std::string>());
}

StatusOr<Encoder> LoadEncoderFolder(const std::string& folder) {
  ASSIGN_OR_RETURN(const std::string text, ReadConfig(folder));
  StatusOr<EncoderConfig> config = ReadEncoderConfig(text);
  if (!config.ok()) {
    return config.status().Prefixed("'" + folder + "/config.json'");
  }
  const std::string path = folder + "/model.safetensors";
  ASSIGN_OR_RETURN(SafetensorsFile opened, SafetensorsFile::Open(path));
  const auto file = std::make_shared<const SafetensorsFile>(std::move(opened));
  StatusOr<graph::Graph> graph = BuildEncoder(*config, file);
  if (!graph.ok()) return graph.status().Prefixed("'" + path + "'");
  graph->name = config->architecture;
  graph::WidenHalves(*graph);
  const std::string scores = config->family == Family::kBert
                                 ? "classifier.bias"
                                 : "classifier.out_proj.bias";
  const SafetensorsTensor* bias = file->FindTensor(scores);
  return Encoder{*std::move(graph), *std::move(config),
                 bias == nullptr ? 0 : bias->num_elements};
}

}  // namespace millrace::models::encoder
