// Files and batches of clients on a local folder (batch_dir), and the thread
// that runs them with what the online load leaves.
//
//   ASSIGN_OR_RETURN(auto batches, Batches::Open({.dir = dir}));
//   batches->Start(std::move(executor));
//   ... batches->AddFile(…), batches->Create(…), batches->Find(…) ...
//   batches->Stop();
//
// The state of a batch is in the folder before a client sees it, and
// an answer is in the results before it counts. So a server that was killed
// goes on where it was: a request that was under way is asked again, one that
// was answered is not. A tenant's batches run one after the other; tenants take
// turns.
//
// Thread-safe.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "config/base/clock.h"
#include "config/base/mutex.h"
#include "config/base/status.h"
#include "server/batches/batch.h"
#include "server/batches/batch_line.h"
#include "server/batches/batch_run.h"
#include "server/batches/file_store.h"

namespace millrace::server {

// One request of a batch.
struct LineRequest {
  std::string endpoint;
  std::string tenant;
  std::string model;  // empty: the body names none
  std::string body;
};

// Who answers the requests. Thread-safe.
class LineExecutor {
 public:
  using Done = std::function<void(LineAnswer)>;
  virtual ~LineExecutor() = default;
  // Calls `done` once, from any thread, at once or later. `stop`: none needs
  // the answer any more.
  virtual void Start(LineRequest request, std::stop_token stop, Done done) = 0;
  // UNAVAILABLE: ask again later, for models are loaded.
  virtual Status CheckModel(const std::string& model,
                            const std::string& tenant) = 0;
  // Whether another request may start beside `running` ones of that model.
  virtual bool HasRoom(const std::string& model, int running) = 0;
};

class Batches {
 public:
  struct Options {
    std::string dir;
    int64_t max_bytes = int64_t{10} << 30;        // of all files together
    std::function<int64_t()> unix_now = nullptr;  // null: the system's clock
  };
  static constexpr size_t kMostBatches = 10'000;  // the oldest ended one goes
  static constexpr int kMostUnfinished = 100;     // of one tenant
  static constexpr int64_t kWindowSeconds = 24 * 3600;

  // FAILED_PRECONDITION at batch_dir when the folder cannot be used, or another
  // server uses it.
  static StatusOr<std::unique_ptr<Batches>> Open(Options options);
  ~Batches();

  // Once. Batches go on from here.
  void Start(std::unique_ptr<LineExecutor> executor);
  // Ends the requests under way; their batches go on with the next start.
  void Stop();

  // `about` has name, purpose and tenant; it may have expires_at as seconds
  // from now.
  StatusOr<StoredFile> AddFile(StoredFile about, std::string_view bytes);
  // FAILED_PRECONDITION while an unfinished batch needs it.
  Status RemoveFile(std::string_view id, std::string_view tenant);
  const FileStore& files() const { return *files_; }

  // `wanted` has tenant, endpoint, input file, metadata.
  StatusOr<Batch> Create(Batch wanted);
  StatusOr<Batch> Find(std::string_view id, std::string_view tenant) const;
  StatusOr<Batch> Cancel(std::string_view id, std::string_view tenant);
  // The newest first.
  std::vector<Batch> List(std::string_view tenant) const;

 private:
  struct Result {
    std::string batch_id;
    int64_t ticket;
    LineAnswer answer;
  };
  using Table = std::map<std::string, Batch, std::less<>>;

  explicit Batches(Options options);
  Status Lock();
  Status Load();
  std::string StatePath(std::string_view id) const;
  std::string ResultsPath(std::string_view id) const;
  int64_t Now() const;
  // The folder has it before the table.
  Status Put(const Batch& batch) REQUIRES(mu_);
  void DropOldest() REQUIRES(mu_);

  // Of the runner's thread.
  void Run();
  void TakeResults();
  void ShowCounts(const std::string& id, const BatchRun& run);
  // Changes a batch: the runner's word on it.
  void Change(const std::string& id, const std::function<void(Batch&)>& edit);
  std::vector<Batch> Unfinished() const;
  void Validate(const Batch& batch);
  void Drive(const Batch& batch);
  BatchRun* Opened(const Batch& batch);
  void FailWith(const std::string& id, const Status& why);
  bool StartOne(const Batch& batch);
  bool Record(const Batch& batch);
  void Publish(const Batch& batch);
  // Looks at the batch again after a moment, and not before.
  void Defer(const std::string& id);
  bool MustWait(const std::string& id);
  void RemoveExpired();

  const Options options_;
  int lock_fd_ = -1;
  std::unique_ptr<FileStore> files_;
  std::unique_ptr<LineExecutor> executor_;

  // The runner's own.
  std::map<std::string, std::unique_ptr<BatchRun>, std::less<>> runs_;
  std::map<std::string, int> running_of_;  // by model
  // Batches whose results count among the bytes of the folder.
  std::set<std::string> counted_;
  Clock::Time next_look_ = Clock::Time::min();
  // Batches that wait for a model, or for room for their files.
  std::map<std::string, Clock::Time> not_before_;

  mutable Mutex mu_;
  CondVar changed_;
  // Held while a state file of some kB is written, so that the folder and the
  // table never differ.
  Table table_ GUARDED_BY(mu_);
  int64_t last_number_ GUARDED_BY(mu_) = 0;
  std::deque<Result> results_ GUARDED_BY(mu_);
  bool woken_ GUARDED_BY(mu_) = false;
  bool stopping_ GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace millrace::server
