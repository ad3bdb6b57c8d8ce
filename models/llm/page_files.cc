// The thread takes reads before writes: requests wait for them. Index and
// queues are under one lock, held for a few lines; files are touched without
// it.
#include "models/llm/page_files.h"

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
#include "config/base/size_text.h"
#include "models/llm/sha256.h"

namespace millrace::models {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

// Memory for pages that wait to be written, and for those of one fetch.
constexpr int64_t kBufferBytes = int64_t{64} << 20;
constexpr auto kForgottenAfter = std::chrono::hours(24 * 30);
constexpr auto kTemporaryFor = std::chrono::minutes(10);
constexpr int64_t kWarnEverySeconds = 60;
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

// Removes folders of other fingerprints that were not used for long.
void RemoveForgotten(const fs::path& dir) {
  std::error_code error;
  const auto now = fs::file_time_type::clock::now();
  for (const fs::directory_entry& entry : fs::directory_iterator(dir, error)) {
    if (!entry.path().filename().string().starts_with("kv-")) continue;
    const auto used = entry.last_write_time(error);
    if (error || now - used < kForgottenAfter) continue;
    LogInfo("KV pages of another model or build are removed",
            {{"folder", entry.path().string()}, {"unused_days", 30}});
    fs::remove_all(entry.path(), error);
  }
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

PageFiles::PageFiles(const PageFilesOptions& options)
    : options_(options),
      folder_(options.dir + "/kv-" + options.fingerprint.substr(0, 32)),
      max_buffers_(static_cast<int32_t>(
          std::clamp<int64_t>(kBufferBytes / options.page_bytes, 1, 64))) {}

int64_t PageFiles::file_bytes() const {
  return options_.page_bytes + static_cast<int64_t>(sizeof(Header));
}

StatusOr<std::unique_ptr<PageFiles>> PageFiles::Open(
    const PageFilesOptions& options, MetricRegistry* registry) {
  std::unique_ptr<PageFiles> files(new PageFiles(options));
  if (files->file_bytes() > options.max_bytes) {
    return InvalidArgument("kv_cache_dir_max_size is " +
                           SizeText(options.max_bytes) +
                           ", but one page of the KV cache takes " +
                           SizeText(files->file_bytes()) + "; raise it")
        .At("kv_cache_dir_max_size");
  }
  RETURN_IF_ERROR(files->FindPages());
  if (registry != nullptr) files->AddMetrics(*registry);
  files->MakeRoom();
  files->thread_ = std::thread([self = files.get()] { self->Run(); });
  return files;
}

void PageFiles::AddMetrics(MetricRegistry& registry) {
  const MetricLabels labels = {{"model", options_.model}};
  const auto count = [&](const char* name, const char* help) {
    return registry.AddCounter(name, help, labels);
  };
  metrics_.stored = count("millrace_kv_offload_stored_pages_total",
                          "KV pages written to kv_cache_dir.");
  metrics_.restored = count("millrace_kv_offload_restored_pages_total",
                            "KV pages read back from kv_cache_dir.");
  metrics_.damaged = count(
      "millrace_kv_offload_damaged_pages_total",
      "Files of kv_cache_dir whose checksum was wrong; they were removed and "
      "computed again. If it grows, look at the disk.");
  metrics_.evicted =
      count("millrace_kv_offload_evicted_pages_total",
            "KV pages that made room for others; many of them ask for a larger "
            "kv_cache_dir_max_size.");
  metrics_.failed = count("millrace_kv_offload_failed_writes_total",
                          "KV pages that could not be written; is the disk of "
                          "kv_cache_dir full?");
  metrics_.bytes =
      registry.AddGauge("millrace_kv_offload_bytes",
                        "Size of the files in kv_cache_dir.", labels);
}

Status PageFiles::FindPages() {
  std::error_code error;
  RemoveForgotten(options_.dir);
  fs::create_directory(folder_, error);
  if (error)
    return CannotUse(options_.dir, "cannot be used: " + error.message());
  fs::permissions(folder_, fs::perms::owner_all, error);
  fs::last_write_time(folder_, fs::file_time_type::clock::now(), error);
  std::vector<std::pair<fs::file_time_type, PageKey>> found;
  const auto now = fs::file_time_type::clock::now();
  for (const fs::directory_entry& entry :
       fs::directory_iterator(folder_, error)) {
    const fs::path& path = entry.path();
    const auto used = entry.last_write_time(error);
    if (error) continue;
    if (path.extension() == kTemporaryEnding) {
      if (now - used > kTemporaryFor) fs::remove(path, error);
      continue;
    }
    const auto key = KeyOfName(path.stem().string());
    if (!key || path.extension() != kPageEnding) continue;
    found.emplace_back(used, *key);
  }
  if (error)
    return CannotUse(options_.dir, "cannot be read: " + error.message());
  std::ranges::sort(found, {}, [](const auto& page) { return page.first; });
  MutexLock lock(mu_);
  for (const auto& [used, key] : found) {
    entries_[key] = {by_use_.insert(by_use_.end(), key)};
  }
  return OkStatus();
}

PageFiles::~PageFiles() {
  {
    MutexLock lock(mu_);
    ends_ = true;
    changed_.NotifyAll();
  }
  if (thread_.joinable()) thread_.join();
}

PageKey PageFiles::KeyOf(const PageKey* before,
                         std::span<const int32_t> ids) const {
  Sha256 sha;
  // The fingerprint begins each chain.
  if (before == nullptr) {
    sha.Add(options_.fingerprint.data(), options_.fingerprint.size());
  } else {
    sha.Add(before, sizeof(*before));
  }
  sha.Add(ids.data(), ids.size_bytes());
  const std::array<uint8_t, 32> digest = sha.Finish();
  PageKey key;
  std::memcpy(&key, digest.data(), sizeof(key));
  return key;
}

bool PageFiles::Holds(const PageKey& key) const {
  MutexLock lock(mu_);
  return entries_.contains(key);
}

// From the last on, so that the head of a chain outlives its tail.
void PageFiles::Used(std::span<const PageKey> keys) {
  MutexLock lock(mu_);
  for (auto key = keys.rbegin(); key != keys.rend(); ++key) {
    const auto entry = entries_.find(*key);
    if (entry == entries_.end()) continue;
    by_use_.splice(by_use_.end(), by_use_, entry->second.place);
  }
}

std::optional<PageStore::Bytes> PageFiles::TakeBuffer() {
  MutexLock lock(mu_);
  if (buffers_out_ >= max_buffers_) {
    refused_ = true;
    return std::nullopt;
  }
  ++buffers_out_;
  if (!spare_.empty()) {
    Bytes bytes = std::move(spare_.back());
    spare_.pop_back();
    return bytes;
  }
  return Bytes(static_cast<size_t>(options_.page_bytes));
}

void PageFiles::Keep(const PageKey& key, Bytes bytes) {
  MutexLock lock(mu_);
  if (entries_.contains(key)) {
    --buffers_out_;
    spare_.push_back(std::move(bytes));
    return;
  }
  entries_[key] = {by_use_.insert(by_use_.end(), key)};
  writes_.push_back({key, std::move(bytes)});
  changed_.NotifyAll();
}

void PageFiles::Fetch(uint64_t ticket, std::vector<PageKey> keys) {
  CHECK(static_cast<int32_t>(keys.size()) <= max_buffers_,
        "no more pages are fetched than max_fetch");
  MutexLock lock(mu_);
  reads_.push_back({ticket, std::move(keys)});
  changed_.NotifyAll();
}

std::vector<PageStore::Fetched> PageFiles::TakeFetched() {
  MutexLock lock(mu_);
  return std::exchange(fetched_, {});
}

double PageFiles::fetch_seconds() const {
  MutexLock lock(mu_);
  return fetch_seconds_;
}

int64_t PageFiles::num_pages() const {
  MutexLock lock(mu_);
  return static_cast<int64_t>(entries_.size());
}

std::string PageFiles::PathOf(const PageKey& key) const {
  return folder_ + "/" + NameOf(key) + kPageEnding;
}

void PageFiles::Run() {
  pthread_setname_np(pthread_self(), "kv-files");
  while (true) {
    std::optional<Read> read;
    std::optional<Write> write;
    {
      MutexLock lock(mu_);
      while (reads_.empty() && writes_.empty() && !ends_) changed_.Wait(mu_);
      if (!reads_.empty() && !ends_) {
        read = std::move(reads_.front());
        reads_.pop_front();
      } else if (!writes_.empty()) {
        write = std::move(writes_.front());
        writes_.pop_front();
      } else {
        return;
      }
    }
    if (read) {
      DoRead(*std::move(read));
    } else {
      DoWrite(*std::move(write));
    }
  }
}

void PageFiles::WritePage(const Write& write) {
  const std::string path = PathOf(write.key);
  const std::string beside =
      path + "." + std::to_string(gettid()) + kTemporaryEnding;
  const Header header = {kMagic, write.key, DigestOf(write.key, write.bytes)};
  bool written = false;
  {
    const File file(beside, O_WRONLY | O_CREAT | O_TRUNC);
    written = file.fd() >= 0 && file.WriteAll(&header, sizeof(header)) &&
              file.WriteAll(write.bytes.data(), write.bytes.size());
  }
  written = written && rename(beside.c_str(), path.c_str()) == 0;
  if (written) {
    metrics_.stored.Add();
  } else {
    const int cause = errno;
    unlink(beside.c_str());
    Drop(write.key);
    metrics_.failed.Add();
    const int64_t now = std::chrono::duration_cast<std::chrono::seconds>(
                            Clock::now().time_since_epoch())
                            .count();
    if (now - last_warning_s_ >= kWarnEverySeconds) {
      last_warning_s_ = now;
      LogWarning("a KV page cannot be written", {{"model", options_.model},
                                                 {"file", path},
                                                 {"why", std::strerror(cause)},
                                                 {"setting", "kv_cache_dir"}});
    }
  }
}

void PageFiles::DoWrite(Write write) {
  MakeRoom();
  bool is_kept = false;
  {
    // It may be the page that made room while it waited.
    MutexLock lock(mu_);
    is_kept = entries_.contains(write.key);
  }
  if (is_kept) WritePage(write);
  bool tells = false;
  {
    MutexLock lock(mu_);
    --buffers_out_;
    spare_.push_back(std::move(write.bytes));
    tells = std::exchange(refused_, false);
    metrics_.bytes.Set(static_cast<double>(
        static_cast<int64_t>(entries_.size()) * file_bytes()));
  }
  if (tells) news_();
}

void PageFiles::DoRead(Read read) {
  const Clock::time_point begin = Clock::now();
  Fetched fetched = {.ticket = read.ticket, .pages = {}};
  for (const PageKey& key : read.keys) {
    std::optional<Bytes> bytes = ReadPage(key);
    if (!bytes) break;
    fetched.pages.push_back(*std::move(bytes));
  }
  const size_t num = fetched.pages.size();
  metrics_.restored.Add(static_cast<double>(num));
  {
    MutexLock lock(mu_);
    if (num > 0) {
      const double seconds =
          std::chrono::duration<double>(Clock::now() - begin).count() /
          static_cast<double>(num);
      fetch_seconds_ =
          fetch_seconds_ == 0 ? seconds : 0.8 * fetch_seconds_ + 0.2 * seconds;
    }
    fetched_.push_back(std::move(fetched));
  }
  news_();
}

std::optional<PageStore::Bytes> PageFiles::ReadPage(const PageKey& key) {
  {
    // Not written yet.
    MutexLock lock(mu_);
    const auto waits = std::ranges::find(writes_, key, &Write::key);
    if (waits != writes_.end()) return waits->bytes;
  }
  const std::string path = PathOf(key);
  const File file(path, O_RDONLY);
  if (file.fd() < 0) {
    Drop(key);
    return std::nullopt;
  }
  Header header{};
  Bytes bytes(static_cast<size_t>(options_.page_bytes));
  struct stat about {};
  if (fstat(file.fd(), &about) == 0 && about.st_size == file_bytes() &&
      file.ReadAll(&header, sizeof(header)) &&
      file.ReadAll(bytes.data(), bytes.size()) && header.magic == kMagic &&
      header.key == key && header.sha256 == DigestOf(key, bytes)) {
    futimens(file.fd(), nullptr);  // used now
    return bytes;
  }
  LogWarning("a KV page is damaged and will be computed again",
             {{"model", options_.model}, {"file", path}});
  metrics_.damaged.Add();
  unlink(path.c_str());
  Drop(key);
  return std::nullopt;
}

void PageFiles::Drop(const PageKey& key) {
  MutexLock lock(mu_);
  const auto entry = entries_.find(key);
  if (entry == entries_.end()) return;
  by_use_.erase(entry->second.place);
  entries_.erase(entry);
}

// Those that wait to be written count, too.
void PageFiles::MakeRoom() {
  const auto most = static_cast<size_t>(
      std::max<int64_t>(options_.max_bytes / file_bytes(), 1));
  while (true) {
    PageKey oldest;
    {
      MutexLock lock(mu_);
      metrics_.bytes.Set(static_cast<double>(
          static_cast<int64_t>(entries_.size()) * file_bytes()));
      if (entries_.size() <= most) return;
      oldest = by_use_.front();
      by_use_.pop_front();
      entries_.erase(oldest);
      if (std::erase_if(writes_, [&](const Write& write) {
            return write.key == oldest;
          }) > 0) {
        --buffers_out_;
        continue;
      }
    }
    unlink(PathOf(oldest).c_str());
    metrics_.evicted.Add();
  }
}

}  // namespace millrace::models
