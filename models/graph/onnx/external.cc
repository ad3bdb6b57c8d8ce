// A location is a relative path without "..": a file cannot name what is
// outside of its own folder. Links inside the folder are followed, because the
// caches of model hubs are made of them.
#include "models/graph/onnx/external.h"

#include <onnx/onnx_pb.h>

#include <charconv>
#include <filesystem>

#include "models/graph/onnx/text.h"

namespace millrace::models::graph {
namespace {

constexpr size_t kMaxFiles = 4096;

Status Bad(std::string_view location, const std::string& why) {
  return InvalidArgument("external data in " + Quoted(location) + ": " + why);
}

bool StaysInside(const std::filesystem::path& path) {
  if (path.empty() || path.is_absolute()) return false;
  for (const auto& part : path) {
    if (part == "..") return false;
  }
  return true;
}

StatusOr<int64_t> Number(std::string_view location, std::string_view text) {
  int64_t value = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) {
    return Bad(location, Quoted(text) + " is no offset or length");
  }
  return value;
}

}  // namespace

StatusOr<std::shared_ptr<const MappedFile>> ExternalFiles::Map(
    std::string_view location) {
  const auto known = files_.find(location);
  if (known != files_.end()) return known->second;
  if (folder_.empty()) {
    return Bad(location, "this model came without a folder");
  }
  if (location.find('\0') != std::string_view::npos ||
      !StaysInside(std::filesystem::path(location))) {
    return Bad(location, "the place is outside of the model's folder");
  }
  if (files_.size() >= kMaxFiles) {
    return Bad(location, "more than 4096 files are named");
  }
  const auto path = std::filesystem::path(folder_) / location;
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) {
    return Bad(location, "there is no such file beside the model");
  }
  ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(path.string()));
  auto shared = std::make_shared<const MappedFile>(std::move(file));
  files_.emplace(location, shared);
  num_bytes_ += static_cast<int64_t>(shared->bytes().size());
  return std::shared_ptr<const MappedFile>(shared);
}

StatusOr<ExternalFiles::Piece> ExternalFiles::Find(
    const onnx::TensorProto& tensor, int64_t num_bytes) {
  std::string location;
  int64_t offset = 0;
  int64_t length = num_bytes;
  for (const auto& entry : tensor.external_data()) {
    if (entry.key() == "location") location = entry.value();
    if (entry.key() == "offset") {
      ASSIGN_OR_RETURN(offset, Number(location, entry.value()));
    }
    if (entry.key() == "length") {
      ASSIGN_OR_RETURN(length, Number(location, entry.value()));
    }
  }
  if (length != num_bytes) {
    return Bad(location, "it has " + std::to_string(length) + " bytes, but " +
                             std::to_string(num_bytes) + " are needed");
  }
  ASSIGN_OR_RETURN(const std::shared_ptr<const MappedFile> file, Map(location));
  const auto size = static_cast<int64_t>(file->bytes().size());
  if (offset > size || num_bytes > size - offset) {
    return Bad(location, std::to_string(num_bytes) + " bytes at offset " +
                             std::to_string(offset) +
                             " end beyond the file's " + std::to_string(size));
  }
  return Piece{file->bytes().subspan(static_cast<size_t>(offset),
                                     static_cast<size_t>(num_bytes)),
               file};
}

}  // namespace millrace::models::graph
