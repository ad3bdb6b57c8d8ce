#include "models/files/safetensors_index.h"

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string_view>

#include "config/base/json.h"
#include "config/base/utf8.h"
#include "models/memory/mapped_file.h"

namespace millrace::models {
namespace {

constexpr size_t kMaxIndexBytes = size_t{64} << 20;

StatusOr<std::set<std::string>> FilesIn(std::string_view text) {
  ASSIGN_OR_RETURN(const nlohmann::ordered_json index, ParseJson(text));
  if (!index.is_object()) return InvalidArgument("it is no JSON object");
  const auto map = index.find("weight_map");
  if (map == index.end() || !map->is_object() || map->empty()) {
    return InvalidArgument("it has no object 'weight_map'");
  }
  std::set<std::string> files;
  for (const auto& [tensor, file] : map->items()) {
    const std::string name = file.is_string() ? file.get<std::string>() : "";
    if (name.find('/') != std::string::npos ||
        !name.ends_with(".safetensors")) {
      return InvalidArgument("it places tensor '" + tensor + "' in " +
                             Shortened(DumpJson(file), 100) +
                             ", which is no name of a file in the folder");
    }
    files.insert(name);
  }
  return files;
}

}  // namespace

StatusOr<std::set<std::string>> FilesOfIndex(const std::string& path) {
  ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
  const auto bytes = file.bytes();
  if (bytes.size() > kMaxIndexBytes) {
    return InvalidArgument(
        "'" + path + "' has " + std::to_string(bytes.size()) +
        " bytes, the limit is " + std::to_string(kMaxIndexBytes));
  }
  auto files =
      FilesIn({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  if (!files.ok()) return files.status().Prefixed("'" + path + "'");
  return files;
}

}  // namespace millrace::models
