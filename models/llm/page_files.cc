// The thread takes reads before writes: requests wait for them. Index and
// queues are under one lock, held for a few lines; files are touched without
// it.
#include "models/llm/page_files.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <utility>

#include "config/base/log.h"
#include "config/base/size_text.h"
#include "models/llm/sha256.h"

namespace millrace::models {
namespace {

using Clock = std::chrono::steady_clock;

// Memory for pages that wait to be written, and for those of one fetch.
constexpr int64_t kBufferBytes = int64_t{64} << 20;
constexpr int64_t kWarnEverySeconds = 60;

}  // namespace

PageFiles::PageFiles(const PageFilesOptions& options)
    : options_(options),
      folder_(options.dir, options.fingerprint, options.page_bytes),
      max_buffers_(static_cast<int32_t>(
          std::clamp<int64_t>(kBufferBytes / options.page_bytes, 1, 64))) {}

StatusOr<std::unique_ptr<PageFiles>> PageFiles::Open(
    const PageFilesOptions& options, MetricRegistry* registry) {
  std::unique_ptr<PageFiles> files(new PageFiles(options));
  if (files->folder_.file_bytes() > options.max_bytes) {
    return InvalidArgument("kv_cache_dir_max_size is " +
                           SizeText(options.max_bytes) +
                           ", but one page of the KV cache takes " +
                           SizeText(files->folder_.file_bytes()) + "; raise it")
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
  ASSIGN_OR_RETURN(const std::vector<PageKey> found, folder_.Find());
  MutexLock lock(mu_);
  for (const PageKey& key : found) {
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
  const int cause = folder_.Write(write.key, write.bytes);
  if (cause == 0) {
    metrics_.stored.Add();
    return;
  }
  Drop(write.key);
  metrics_.failed.Add();
  const int64_t now = std::chrono::duration_cast<std::chrono::seconds>(
                          Clock::now().time_since_epoch())
                          .count();
  if (now - last_warning_s_ < kWarnEverySeconds) return;
  last_warning_s_ = now;
  LogWarning("a KV page cannot be written",
             {{"model", options_.model},
              {"file", folder_.PathOf(write.key)},
              {"why", std::strerror(cause)},
              {"setting", "kv_cache_dir"}});
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
        static_cast<int64_t>(entries_.size()) * folder_.file_bytes()));
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
  PageFolder::Found found = folder_.Read(key);
  if (found.bytes) return found.bytes;
  if (found.is_damaged) {
    LogWarning("a KV page is damaged and will be computed again",
               {{"model", options_.model}, {"file", folder_.PathOf(key)}});
    metrics_.damaged.Add();
  }
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
      std::max<int64_t>(options_.max_bytes / folder_.file_bytes(), 1));
  while (true) {
    PageKey oldest;
    {
      MutexLock lock(mu_);
      metrics_.bytes.Set(static_cast<double>(
          static_cast<int64_t>(entries_.size()) * folder_.file_bytes()));
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
    folder_.Remove(oldest);
    metrics_.evicted.Add();
  }
}

}  // namespace millrace::models
