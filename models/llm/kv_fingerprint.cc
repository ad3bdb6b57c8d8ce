#include "models/llm/kv_fingerprint.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <system_error>
#include <vector>

#include "models/llm/sha256.h"
#include "models/llm/step.h"

namespace millrace::models {
namespace {

namespace fs = std::filesystem;

// Changed with the layout of files and pages.
constexpr char kFormat[] = "kv-pages-1";

Status Unreadable(const fs::path& path) {
  return InvalidArgument("'" + path.string() +
                         "' cannot be read, so its KV pages cannot be kept")
      .At("kv_cache_dir");
}

// Those that weights and configuration are read from.
std::vector<fs::path> FilesOf(const fs::path& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return {path};
  static const std::set<std::string> kEndings = {".safetensors", ".json",
                                                 ".gguf", ".model"};
  std::vector<fs::path> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(path, error)) {
    if (kEndings.contains(entry.path().extension().string())) {
      files.push_back(entry.path());
    }
  }
  std::ranges::sort(files);
  return files;
}

StatusOr<std::string> DigestOfBytes(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return Unreadable(path);
  Sha256 sha;
  std::vector<char> block(size_t{1} << 20);
  while (file) {
    file.read(block.data(), static_cast<std::streamsize>(block.size()));
    sha.Add(block.data(), static_cast<size_t>(file.gcount()));
  }
  if (file.bad()) return Unreadable(path);
  return sha.FinishHex();
}

// Remembered in `dir` under what stat(2) says of the file.
StatusOr<std::string> DigestOfFile(const fs::path& path, const fs::path& dir) {
  struct stat about {};
  if (stat(path.c_str(), &about) != 0) return Unreadable(path);
  Sha256 identity;
  identity.AddText(fs::absolute(path).string());
  for (const int64_t part :
       {static_cast<int64_t>(about.st_dev), static_cast<int64_t>(about.st_ino),
        static_cast<int64_t>(about.st_size),
        static_cast<int64_t>(about.st_mtim.tv_sec),
        static_cast<int64_t>(about.st_mtim.tv_nsec),
        static_cast<int64_t>(about.st_ctim.tv_sec),
        static_cast<int64_t>(about.st_ctim.tv_nsec)}) {
    identity.Add(&part, sizeof(part));
  }
  const fs::path known = dir / ("digest-" + identity.FinishHex());
  std::string digest;
  if (std::ifstream(known) >> digest && digest.size() == 64) return digest;
  ASSIGN_OR_RETURN(digest, DigestOfBytes(path));
  // Written as a whole or, at the next start, computed again.
  std::ofstream(known) << digest << "\n";
  return digest;
}

}  // namespace

StatusOr<std::string> KvFingerprint(const std::string& path,
                                    const config::LlmSettings& settings,
                                    const KvFacts& facts) {
  const fs::path dir = settings.kv_cache_dir;
  Sha256 sha;
  sha.AddText(kFormat);
  std::vector<fs::path> files = FilesOf(path);
  files.emplace_back("/proc/self/exe");
  for (const fs::path& file : files) {
    std::error_code error;
    const fs::path real = fs::canonical(file, error);
    ASSIGN_OR_RETURN(const std::string digest,
                     DigestOfFile(error ? file : real, dir));
    sha.AddText(digest);
  }
  for (const std::string& text : {facts.isa, settings.kv_cache_dtype,
                                  settings.compute_dtype, settings.quantize}) {
    sha.AddText(text);
  }
  const std::string flags = settings.prefix_cache_share_generated ? "1" : "0";
  sha.AddText(flags);
  for (const int64_t number :
       {int64_t{facts.max_context}, facts.page_bytes, int64_t{kPageTokens}}) {
    sha.Add(&number, sizeof(number));
  }
  return sha.FinishHex();
}

}  // namespace millrace::models
