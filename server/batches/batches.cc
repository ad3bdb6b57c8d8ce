// What clients ask for: the table and its folder. The thread that runs batches
// is in run_batches.cc.
#include "server/batches/batches.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <set>
#include <utility>

#include "config/base/log.h"
#include "config/base/utf8.h"
#include "server/batches/durable_file.h"

namespace millrace::server {
namespace {

constexpr mode_t kOwnerOnly = 0700;

Status BadFolder(const std::string& dir, const std::string& why) {
  return FailedPrecondition("batch_dir is '" + dir + "', " + why)
      .At("batch_dir");
}

Status MakeFolder(const std::string& dir, const std::string& root) {
  if (mkdir(dir.c_str(), kOwnerOnly) == 0 || errno == EEXIST) return OkStatus();
  return BadFolder(root, "where '" + dir + "' cannot be made (" +
                             std::strerror(errno) +
                             "); check its parent folder and permissions");
}

Status NoSuchBatch(std::string_view id) {
  return NotFound("there is no batch '" + Shortened(id, 100) +
                  "'; GET /v1/batches lists those of this key's tenant")
      .Because("batch_not_found");
}

}  // namespace

Batches::Batches(Options options) : options_(std::move(options)) {}

Batches::~Batches() {
  Stop();
  if (lock_fd_ >= 0) close(lock_fd_);
}

StatusOr<std::unique_ptr<Batches>> Batches::Open(Options options) {
  std::unique_ptr<Batches> batches(new Batches(std::move(options)));
  const std::string& dir = batches->options_.dir;
  for (const std::string& each : {dir, dir + "/files", dir + "/batches"}) {
    RETURN_IF_ERROR(MakeFolder(each, dir));
  }
  RETURN_IF_ERROR(batches->Lock());
  RETURN_IF_ERROR(batches->Load());
  return batches;
}

// Freed by the kernel, however this process ends.
Status Batches::Lock() {
  const std::string path = options_.dir + "/lock";
  lock_fd_ = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (lock_fd_ < 0) {
    return BadFolder(options_.dir, std::string("which cannot be written (") +
                                       std::strerror(errno) +
                                       "); check its permissions");
  }
  if (flock(lock_fd_, LOCK_EX | LOCK_NB) == 0) return OkStatus();
  return BadFolder(options_.dir,
                   "which another server uses; give each its own folder");
}

Status Batches::Load() {
  namespace fs = std::filesystem;
  MutexLock lock(mu_);
  std::set<std::string> expected;
  std::error_code ec;
  for (const auto& entry :
       fs::directory_iterator(options_.dir + "/batches", ec)) {
    if (entry.path().extension() != ".json") continue;
    const StatusOr<std::string> text = ReadBytes(entry.path().string());
    const StatusOr<Batch> batch =
        text.ok() ? ReadBatchState(*text) : StatusOr<Batch>(text.status());
    if (!batch.ok() || batch->id != entry.path().stem().string()) {
      LogWarning(
          "a batch of batch_dir is left out",
          {{"path", entry.path().string()}, {"why", batch.status().message()}});
      continue;
    }
    last_number_ = std::max(last_number_, batch->number);
    if (!batch->ended()) {
      expected.insert(batch->output_id);
      expected.insert(batch->error_id);
    }
    table_[batch->id] = *batch;
  }
  ASSIGN_OR_RETURN(files_, FileStore::Open(options_.dir + "/files",
                                           options_.max_bytes, expected));
  if (!expected.empty()) {
    LogInfo("batches go on",
            {{"unfinished", static_cast<int64_t>(expected.size() / 2)}});
  }
  return OkStatus();
}

std::string Batches::StatePath(std::string_view id) const {
  return options_.dir + "/batches/" + std::string(id) + ".json";
}

std::string Batches::ResultsPath(std::string_view id) const {
  return options_.dir + "/batches/" + std::string(id);
}

int64_t Batches::Now() const {
  if (options_.unix_now) return options_.unix_now();
  return std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
}

Status Batches::Put(const Batch& batch) {
  RETURN_IF_ERROR(WriteDurably(StatePath(batch.id), BatchStateText(batch)));
  table_[batch.id] = batch;
  return OkStatus();
}

StatusOr<StoredFile> Batches::AddFile(StoredFile about,
                                      std::string_view bytes) {
  about.created_at = Now();
  if (about.expires_at) *about.expires_at += about.created_at;
  return files_->Add(std::move(about), bytes);
}

Status Batches::RemoveFile(std::string_view id, std::string_view tenant) {
  RETURN_IF_ERROR(files_->Find(id, tenant).status());
  // Under the lock, so that no batch of it begins meanwhile.
  MutexLock lock(mu_);
  for (const auto& [batch_id, batch] : table_) {
    if (batch.input_file_id == id && !batch.ended()) {
      return FailedPrecondition("the file '" + std::string(id) +
                                "' is the input of '" + batch_id +
                                "', which is " + batch.status +
                                "; cancel that batch or wait for its end")
          .Because("file_in_use");
    }
  }
  return files_->Remove(id, tenant).status();
}

StatusOr<Batch> Batches::Create(Batch wanted) {
  MutexLock lock(mu_);
  ASSIGN_OR_RETURN(const StoredFile file,
                   files_->Find(wanted.input_file_id, wanted.tenant));
  if (file.purpose != "batch") {
    return InvalidArgument("the purpose of the file '" + file.id + "' is '" +
                           file.purpose + "'; upload one with purpose batch")
        .At("input_file_id");
  }
  const auto unfinished =
      std::count_if(table_.begin(), table_.end(), [&wanted](const auto& each) {
        return !each.second.ended() && each.second.tenant == wanted.tenant;
      });
  if (unfinished >= kMostUnfinished) {
    return ResourceExhausted("this tenant has " + std::to_string(unfinished) +
                             " batches that have not ended, which is the "
                             "limit; wait for one to end")
        .Because("too_many_batches")
        .RetryAfterMs(60'000);
  }
  DropOldest();
  wanted.id = NewId("batch_");
  wanted.output_id = NewId("file-");
  wanted.error_id = NewId("file-");
  wanted.status = "validating";
  wanted.created_at = Now();
  wanted.expires_at = wanted.created_at + kWindowSeconds;
  wanted.number = ++last_number_;
  RETURN_IF_ERROR(Put(wanted));
  woken_ = true;
  changed_.NotifyAll();
  return wanted;
}

// Its files stay: they are the client's to delete.
void Batches::DropOldest() {
  if (table_.size() < kMostBatches) return;
  auto oldest = table_.end();
  for (auto at = table_.begin(); at != table_.end(); ++at) {
    if (!at->second.ended()) continue;
    if (oldest == table_.end() || at->second.number < oldest->second.number) {
      oldest = at;
    }
  }
  if (oldest == table_.end()) return;
  unlink(StatePath(oldest->first).c_str());
  table_.erase(oldest);
}

StatusOr<Batch> Batches::Find(std::string_view id,
                              std::string_view tenant) const {
  MutexLock lock(mu_);
  const auto found = table_.find(id);
  if (found == table_.end() || found->second.tenant != tenant) {
    return NoSuchBatch(id);
  }
  return found->second;
}

StatusOr<Batch> Batches::Cancel(std::string_view id, std::string_view tenant) {
  MutexLock lock(mu_);
  const auto found = table_.find(id);
  if (found == table_.end() || found->second.tenant != tenant) {
    return NoSuchBatch(id);
  }
  Batch batch = found->second;
  if (batch.status == "cancelling" || batch.status == "cancelled") return batch;
  if (batch.status != "validating" && batch.status != "in_progress") {
    return FailedPrecondition("Cannot cancel a batch with status '" +
                              batch.status + "'.")
        .Because("batch_not_cancellable");
  }
  batch.Become("cancelling", Now());
  batch.ending = "cancelled";
  RETURN_IF_ERROR(Put(batch));
  woken_ = true;
  changed_.NotifyAll();
  return batch;
}

std::vector<Batch> Batches::List(std::string_view tenant) const {
  std::vector<Batch> listed;
  {
    MutexLock lock(mu_);
    for (const auto& [id, batch] : table_) {
      if (batch.tenant == tenant) listed.push_back(batch);
    }
  }
  std::sort(listed.begin(), listed.end(),
            [](const Batch& a, const Batch& b) { return a.number > b.number; });
  return listed;
}

}  // namespace millrace::server
