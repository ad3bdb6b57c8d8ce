// Names, checksums and times of the files.
#include "models/llm/page_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "config/base/log.h"
#include "models/llm/sha256.h"

namespace millrace::models {
namespace {

namespace fs = std::filesystem;

constexpr auto kForgottenAfter = std::chrono::hours(24 * 30);
constexpr auto kTouchedEvery = std::chrono::seconds(3600);
constexpr auto kTemporaryFor = std::chrono::minutes(10);
constexpr char kPageEnding[] = ".page";
constexpr char kTemporaryEnding[] = ".tmp";

struct Header {
  std::array<char, 8> magic;
  PageKey key;
  std::array<uint8_t, 32> sha256;  // of the key and the bytes
};
constexpr std::array<char, 8> kMagic = {'M', 'R', 'K', 'V', 'P', 'G', '0', '1'};

std::array<uint8_t, 32> DigestOf(const PageKey& key,
                                 const PageStore::Bytes& bytes) {
  Sha256 sha;
  sha.Add(&key, sizeof(key));
  sha.Add(bytes.data(), bytes.size());
  return sha.Finish();
}

std::string NameOf(const PageKey& key) {
  std::string name;
  for (const uint64_t word : key.words) {
    char digits[17];
    std::snprintf(digits, sizeof(digits), "%016llx",
                  static_cast<unsigned long long>(word));
    name += digits;
  }
  return name;
}

// Of a file's name without its ending; nothing if it is not one of ours.
std::optional<PageKey> KeyOfName(const std::string& name) {
  if (name.size() != 32 ||
      name.find_first_not_of("0123456789abcdef") != name.npos) {
    return std::nullopt;
  }
  PageKey key;
  key.words[0] = std::stoull(name.substr(0, 16), nullptr, 16);
  key.words[1] = std::stoull(name.substr(16), nullptr, 16);
  return key;
}

// A file that is closed when this ends.
class File {
 public:
  File(const std::string& path, int flags)
      : fd_(open(path.c_str(), flags | O_CLOEXEC, 0600)) {}
  ~File() {
    if (fd_ >= 0) close(fd_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  int fd() const { return fd_; }
  bool WriteAll(const void* data, size_t size) const {
    const auto* at = static_cast<const char*>(data);
    while (size > 0) {
      const ssize_t n = write(fd_, at, size);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return false;
      at += n;
      size -= static_cast<size_t>(n);
    }
    return true;
  }
  bool ReadAll(void* data, size_t size) const {
    auto* at = static_cast<char*>(data);
    while (size > 0) {
      const ssize_t n = read(fd_, at, size);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return false;
      at += n;
      size -= static_cast<size_t>(n);
    }
    return true;
  }

 private:
  const int fd_;
};

Status CannotUse(const std::string& dir, const std::string& why) {
  return InvalidArgument("kv_cache_dir is '" + dir + "', which " + why)
      .At("kv_cache_dir");
}

// Calls `visit` with what is in a folder and when it was used last. What goes
// meanwhile, as another server removes it, is left out.
template <typename Visit>
std::error_code ForEachEntry(const fs::path& dir, const Visit& visit) {
  std::error_code error;
  fs::directory_iterator at(dir, error);
  for (; !error && at != fs::directory_iterator(); at.increment(error)) {
    std::error_code gone;
    const fs::file_time_type used = at->last_write_time(gone);
    if (!gone) visit(at->path(), used);
  }
  return error;
}

// Removes folders of other fingerprints that were not used for long.
void RemoveForgotten(const fs::path& dir) {
  const auto now = fs::file_time_type::clock::now();
  ForEachEntry(dir, [&](const fs::path& path, fs::file_time_type used) {
    if (!path.filename().string().starts_with("kv-")) return;
    if (now - used < kForgottenAfter) return;
    LogInfo("KV pages of another model or build are removed",
            {{"folder", path.string()}, {"unused_days", 30}});
    std::error_code ignored;
    fs::remove_all(path, ignored);
  });
}

}  // namespace

Status MakePageFolder(const std::string& dir) {
  std::error_code error;
  if (fs::create_directories(dir, error)) {
    fs::permissions(dir, fs::perms::owner_all, error);
  }
  if (error) return CannotUse(dir, "cannot be made: " + error.message());
  if (!fs::is_directory(dir, error)) return CannotUse(dir, "is no folder");
  if (access(dir.c_str(), R_OK | W_OK | X_OK) != 0) {
    return CannotUse(dir, "cannot be written to");
  }
  return OkStatus();
}

PageFolder::PageFolder(std::string dir, const std::string& fingerprint,
                       int64_t page_bytes)
    : dir_(std::move(dir)),
      folder_(dir_ + "/kv-" + fingerprint.substr(0, 32)),
      page_bytes_(page_bytes) {}

int64_t PageFolder::file_bytes() const {
  return page_bytes_ + static_cast<int64_t>(sizeof(Header));
}

std::string PageFolder::PathOf(const PageKey& key) const {
  return folder_ + "/" + NameOf(key) + kPageEnding;
}

StatusOr<std::vector<PageKey>> PageFolder::Find() const {
  std::error_code error;
  fs::create_directory(folder_, error);
  if (error) return CannotUse(dir_, "cannot be used: " + error.message());
  fs::permissions(folder_, fs::perms::owner_all, error);
  fs::last_write_time(folder_, fs::file_time_type::clock::now(), error);
  RemoveForgotten(dir_);
  std::vector<std::pair<fs::file_time_type, PageKey>> found;
  const auto now = fs::file_time_type::clock::now();
  error =
      ForEachEntry(folder_, [&](const fs::path& path, fs::file_time_type used) {
        if (path.extension() == kTemporaryEnding) {
          std::error_code ignored;
          if (now - used > kTemporaryFor) fs::remove(path, ignored);
          return;
        }
        const auto key = KeyOfName(path.stem().string());
        if (!key || path.extension() != kPageEnding) return;
        found.emplace_back(used, *key);
      });
  if (error) return CannotUse(dir_, "cannot be read: " + error.message());
  std::ranges::sort(found, {}, [](const auto& page) { return page.first; });
  std::vector<PageKey> keys;
  for (const auto& [used, key] : found) keys.push_back(key);
  return keys;
}

int PageFolder::Write(const PageKey& key, const Bytes& bytes) const {
  const int cause = WriteOnce(key, bytes);
  if (cause != ENOENT) return cause;
  if (mkdir(folder_.c_str(), 0700) != 0 && errno != EEXIST) return cause;
  return WriteOnce(key, bytes);
}

int PageFolder::WriteOnce(const PageKey& key, const Bytes& bytes) const {
  const std::string path = PathOf(key);
  const std::string beside =
      path + "." + std::to_string(gettid()) + kTemporaryEnding;
  const Header header = {kMagic, key, DigestOf(key, bytes)};
  int cause = 0;
  {
    const File file(beside, O_WRONLY | O_CREAT | O_TRUNC);
    if (file.fd() < 0 || !file.WriteAll(&header, sizeof(header)) ||
        !file.WriteAll(bytes.data(), bytes.size())) {
      cause = errno != 0 ? errno : EIO;
    }
  }
  if (cause == 0 && rename(beside.c_str(), path.c_str()) == 0) return 0;
  if (cause == 0) cause = errno;
  unlink(beside.c_str());
  return cause;
}

PageFolder::Found PageFolder::Read(const PageKey& key) const {
  const std::string path = PathOf(key);
  const File file(path, O_RDONLY);
  if (file.fd() < 0) return {};
  Header header{};
  Bytes bytes(static_cast<size_t>(page_bytes_));
  struct stat about {};
  if (fstat(file.fd(), &about) == 0 && about.st_size == file_bytes() &&
      file.ReadAll(&header, sizeof(header)) &&
      file.ReadAll(bytes.data(), bytes.size()) && header.magic == kMagic &&
      header.key == key && header.sha256 == DigestOf(key, bytes)) {
    futimens(file.fd(), nullptr);  // used now
    Touch();
    return {.bytes = std::move(bytes)};
  }
  unlink(path.c_str());
  return {.bytes = std::nullopt, .is_damaged = true};
}

// Reading pages does not change the folder's own time, by which another server
// says that no server uses it.
void PageFolder::Touch() const {
  const int64_t now = std::chrono::duration_cast<std::chrono::seconds>(
                          std::chrono::steady_clock::now().time_since_epoch())
                          .count();
  int64_t before = touched_s_.load(std::memory_order_relaxed);
  if (before >= 0 && now - before < kTouchedEvery.count()) return;
  // Of several threads one does it.
  if (touched_s_.compare_exchange_strong(before, now,
                                         std::memory_order_relaxed)) {
    utimensat(AT_FDCWD, folder_.c_str(), nullptr, 0);
  }
}

void PageFolder::Remove(const PageKey& key) const {
  unlink(PathOf(key).c_str());
}

}  // namespace millrace::models
