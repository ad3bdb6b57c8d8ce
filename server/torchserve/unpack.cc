#include "server/torchserve/unpack.h"

#include <cstddef>
#include <cstdlib>
#include <fstream>
#include <span>
#include <system_error>
#include <utility>

#include "config/base/log.h"
#include "config/base/utf8.h"
#include "models/files/zip.h"
#include "models/memory/mapped_file.h"

namespace millrace::server::torchserve {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMaxTextBytes = 1 << 20;
constexpr int64_t kAlwaysUnpacked = 64 << 20;  // whatever its ratio is
constexpr size_t kMaxNameBytes = 200;

// In pieces: models are larger than what should be held.
Status WriteFile(const fs::path& path, const models::ZipEntry& entry) {
  std::error_code error;
  fs::create_directories(path.parent_path(), error);
  std::ofstream file(path, std::ios::binary);
  const auto check = [&] {
    return file ? OkStatus()
                : ResourceExhausted("'" + path.string() +
                                    "' cannot be written; is the disk full?");
  };
  RETURN_IF_ERROR(check());
  RETURN_IF_ERROR(models::UnpackEntry(
      entry, entry.size, [&](std::span<const std::byte> piece) {
        file.write(reinterpret_cast<const char*>(piece.data()),
                   static_cast<std::streamsize>(piece.size()));
        return check();
      }));
  file.flush();
  return check();
}

}  // namespace

StatusOr<std::string> MakeArchiveFolder() {
  std::error_code error;
  std::string path = (fs::temp_directory_path(error) / "millrace-mar-XXXXXX");
  if (error || mkdtemp(path.data()) == nullptr) {
    return FailedPrecondition(
        "no folder can be made for the archive's files; set TMPDIR to one "
        "that can be written");
  }
  return path;
}

StatusOr<std::string> ReadTextFile(const fs::path& path) {
  std::error_code error;
  const auto size = fs::file_size(path, error);
  if (error || size > static_cast<uintmax_t>(kMaxTextBytes)) {
    return InvalidArgument("'" + path.filename().string() +
                           "' cannot be read or has more than " +
                           std::to_string(kMaxTextBytes) + " bytes");
  }
  std::ifstream file(path, std::ios::binary);
  std::string text(size, '\0');
  file.read(text.data(), static_cast<std::streamsize>(size));
  if (!file) return InvalidArgument("'" + path.string() + "' cannot be read");
  return text;
}

UnpackedFolder::~UnpackedFolder() { RemoveFiles(); }

void UnpackedFolder::RemoveFiles() const {
  if (path_.empty()) return;
  std::error_code error;
  fs::remove_all(path_, error);
  if (error) LogWarning("folder not removed", {{"path", path_}});
}

StatusOr<std::unique_ptr<const UnpackedFolder>> UnpackedFolder::Of(
    const std::string& path, std::string_view manifest,
    std::string_view archiver, const UnpackLimits& limits,
    const std::function<bool(std::string_view name)>& stays_packed) {
  ASSIGN_OR_RETURN(const models::MappedFile file,
                   models::MappedFile::Open(path));
  if (!models::ZipFile::LooksLikeZip(file.bytes())) {
    return InvalidArgument("'" + fs::path(path).filename().string() +
                           "' is no ZIP archive, as those of " +
                           std::string(archiver) + " are");
  }
  ASSIGN_OR_RETURN(const models::ZipFile zip,
                   models::ZipFile::Parse(file.bytes(),
                                          {.max_entries = limits.max_entries}));
  std::unique_ptr<UnpackedFolder> folder(new UnpackedFolder());
  int64_t left = limits.max_bytes;
  for (const models::ZipEntry& entry : zip.entries()) {
    if (entry.name.ends_with('/')) continue;
    folder->files_.push_back(entry.name);
    if (stays_packed(entry.name)) continue;
    const auto packed = static_cast<int64_t>(entry.bytes.size());
    if (entry.size > left || (entry.size > kAlwaysUnpacked &&
                              entry.size / limits.max_ratio > packed)) {
      return ResourceExhausted(
          "'" + Shortened(entry.name, kMaxNameBytes) + "' would unpack from " +
          std::to_string(packed) + " to " + std::to_string(entry.size) +
          " bytes, more than an archive may; unpack it yourself and name the "
          "folder");
    }
    left -= entry.size;
  }
  if (zip.Find(manifest) == nullptr) {
    return InvalidArgument("the archive has no " + std::string(manifest) +
                           "; make it with " + std::string(archiver));
  }
  ASSIGN_OR_RETURN(folder->path_, MakeArchiveFolder());
  for (const models::ZipEntry& entry : zip.entries()) {
    if (entry.name.ends_with('/') || stays_packed(entry.name)) continue;
    RETURN_IF_ERROR(WriteFile(fs::path(folder->path_) / entry.name, entry));
  }
  return std::unique_ptr<const UnpackedFolder>(std::move(folder));
}

}  // namespace millrace::server::torchserve
