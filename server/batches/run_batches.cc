// The thread that runs batches: it validates, starts requests where there is
// room, appends their answers, and ends what is over. All of a batch's files
// but its state are this thread's alone.
#include <algorithm>
#include <chrono>
#include <set>
#include <utility>

#include "config/base/log.h"
#include "config/topology.h"
#include "server/batches/batches.h"
#include "server/batches/validate_batch.h"

namespace millrace::server {
namespace {

// What the online load leaves changes without a word to us.
constexpr std::chrono::milliseconds kLookForRoom(20);
constexpr std::chrono::milliseconds kLookAtClock(1000);

}  // namespace

void Batches::Start(std::unique_ptr<LineExecutor> executor) {
  executor_ = std::move(executor);
  thread_ = std::thread([this] {
    // Not pinned: it mostly sleeps.
    static_cast<void>(config::PinThisThread({}, "batches"));
    Run();
  });
}

void Batches::Stop() {
  {
    MutexLock lock(mu_);
    stopping_ = true;
  }
  changed_.NotifyAll();
  if (thread_.joinable()) thread_.join();
}

void Batches::Run() {
  bool stopping = false;
  while (true) {
    TakeResults();
    if (stopping) {
      int running = 0;
      for (auto& [id, run] : runs_) {
        run->stop().request_stop();
        running += run->num_running();
      }
      if (running == 0) break;
    } else {
      RemoveExpired();
      next_look_ = Clock::Real().Now() + kLookAtClock;
      for (const Batch& batch : Unfinished()) {
        if (batch.status == "validating") {
          Validate(batch);
        } else {
          Drive(batch);
        }
      }
      // One of each tenant in turn, until none has room.
      bool begun = true;
      while (begun) {
        begun = false;
        std::set<std::string> served;
        for (const Batch& batch : Unfinished()) {
          if (batch.status != "in_progress" || !batch.ending.empty()) continue;
          if (!served.insert(batch.tenant).second) continue;
          begun = StartOne(batch) || begun;
        }
      }
    }
    MutexLock lock(mu_);
    const bool was_stopping = stopping;
    while (results_.empty() && !woken_ && stopping_ == was_stopping) {
      if (stopping) {
        changed_.Wait(mu_);
      } else if (!changed_.WaitUntil(mu_, next_look_)) {
        break;
      }
    }
    woken_ = false;
    stopping = stopping_;
  }
  for (auto& [id, run] : runs_) static_cast<void>(run->Sync());
  runs_.clear();
}

void Batches::TakeResults() {
  std::deque<Result> results;
  {
    MutexLock lock(mu_);
    results.swap(results_);
  }
  for (const Result& result : results) {
    BatchRun& run = *runs_.at(result.batch_id);
    --running_of_[run.model()];
    const Status kept =
        run.Take(result.ticket, result.answer, Clock::Real().Now());
    ShowCounts(result.batch_id, run);
    if (!kept.ok()) FailWith(result.batch_id, kept);
  }
}

// The results are the truth of these; the state file gets them at the end.
void Batches::ShowCounts(const std::string& id, const BatchRun& run) {
  MutexLock lock(mu_);
  Batch& batch = table_.at(id);
  batch.completed = run.completed();
  batch.failed = run.failed();
  batch.usage = run.usage();
}

void Batches::Change(const std::string& id,
                     const std::function<void(Batch&)>& edit) {
  MutexLock lock(mu_);
  Batch batch = table_.at(id);
  edit(batch);
  const Status put = Put(batch);
  if (put.ok()) return;
  LogError("the state of a batch is not written",
           {{"batch", id}, {"error", put.message()}});
  table_[id] = batch;
}

// The oldest first.
std::vector<Batch> Batches::Unfinished() const {
  std::vector<Batch> found;
  {
    MutexLock lock(mu_);
    for (const auto& [id, batch] : table_) {
      if (!batch.ended()) found.push_back(batch);
    }
  }
  std::sort(found.begin(), found.end(),
            [](const Batch& a, const Batch& b) { return a.number < b.number; });
  return found;
}

void Batches::Validate(const Batch& batch) {
  if (MustWait(batch.id)) return;
  BatchCheck check;
  const StatusOr<StoredFile> file =
      files_->Find(batch.input_file_id, batch.tenant);
  const StatusOr<std::string> input =
      file.ok() ? files_->Read(file->id) : StatusOr<std::string>(file.status());
  if (!input.ok()) {
    check.errors.push_back({.code = "file_not_found",
                            .message = std::string(input.status().message()),
                            .param = "input_file_id"});
  } else {
    check = ValidateBatch(*input, batch.endpoint);
  }
  if (check.errors.empty() && !check.model.empty()) {
    const Status known = executor_->CheckModel(check.model, batch.tenant);
    if (known.code() == StatusCode::kUnavailable) {
      Defer(batch.id);
      return;
    }
    if (!known.ok()) {
      check.errors.push_back({.code = "model_not_found",
                              .message = std::string(known.message()),
                              .param = "body.model",
                              .line = 1});
    }
  }
  const int64_t now = Now();
  Change(batch.id, [&](Batch& changed) {
    if (changed.status != "validating") return;  // cancelled meanwhile
    changed.total = check.total;
    changed.model = check.model;
    changed.errors = check.errors;
    changed.Become(check.errors.empty() ? "in_progress" : "failed", now);
    if (!check.errors.empty()) changed.total = 0;
  });
}

// Null when it cannot be opened; it has failed then.
BatchRun* Batches::Opened(const Batch& batch) {
  const auto found = runs_.find(batch.id);
  if (found != runs_.end()) return found->second.get();
  auto run = BatchRun::Open(batch, files_.get(), ResultsPath(batch.id));
  if (!run.ok()) {
    FailWith(batch.id, run.status());
    return nullptr;
  }
  counted_.insert(batch.id);
  ShowCounts(batch.id, **run);
  return runs_.emplace(batch.id, *std::move(run)).first->second.get();
}

// What is answered so far becomes its files.
void Batches::FailWith(const std::string& id, const Status& why) {
  Change(id, [&](Batch& batch) {
    if (!batch.errors.empty()) return;  // told already
    LogError("a batch has failed", {{"batch", id}, {"error", why.message()}});
    batch.ending = "failed";
    batch.recorded = true;
    batch.errors.push_back({.code = why.reason().empty()
                                        ? "server_error"
                                        : std::string(why.reason()),
                            .message = std::string(why.message())});
  });
  next_look_ = Clock::Real().Now();
}

// The batch of each tenant whose turn it is. False when none could begin.
bool Batches::StartOne(const Batch& batch) {
  BatchRun* const run = Opened(batch);
  if (run == nullptr) return false;
  const Clock::Time now = Clock::Real().Now();
  if (!run->HasNext()) {
    if (run->num_running() > 0) return false;
    Change(batch.id, [at = Now()](Batch& changed) {
      if (changed.status != "in_progress") return;  // cancelled meanwhile
      changed.ending = "completed";
      changed.Become("finalizing", at);
    });
    next_look_ = now;
    return false;
  }
  if (now < run->resume_at()) {
    next_look_ = std::min(next_look_, run->resume_at());
    return false;
  }
  int& running = running_of_[batch.model];
  if (!executor_->HasRoom(batch.model, running)) {
    next_look_ = std::min(next_look_, now + kLookForRoom);
    return false;
  }
  BatchLine line = *run->Next();
  LineRequest request = {.endpoint = batch.endpoint,
                         .tenant = batch.tenant,
                         .model = batch.model,
                         .body = line.body};
  const int64_t ticket = run->Begin(std::move(line));
  ++running;
  executor_->Start(std::move(request), run->stop().get_token(),
                   [this, id = batch.id, ticket](LineAnswer answer) {
                     MutexLock lock(mu_);
                     results_.push_back({id, ticket, std::move(answer)});
                     changed_.NotifyAll();
                   });
  return true;
}

// Ends what is over: no client waits for its lines any more.
void Batches::Drive(const Batch& batch) {
  if (batch.ending.empty()) {
    if (Now() < batch.expires_at) return;
    Change(batch.id, [at = Now()](Batch& changed) {
      if (changed.status != "in_progress") return;  // cancelled meanwhile
      changed.ending = "expired";
      changed.Become("finalizing", at);
    });
    next_look_ = Clock::Real().Now();
    return;
  }
  const auto found = runs_.find(batch.id);
  if (found != runs_.end()) {
    found->second->stop().request_stop();
    if (found->second->num_running() > 0) return;
  }
  if (!batch.recorded && !Record(batch)) return;
  runs_.erase(batch.id);
  Publish(batch);
}

// Each step may be cut off by a kill and is done again then: first the lines
// that will never be answered, then the mark that nothing more comes.
bool Batches::Record(const Batch& batch) {
  const bool expired = batch.ending == "expired";
  // One that was cancelled before it was validated has no lines.
  if ((expired || batch.ending == "cancelled") && batch.total > 0) {
    BatchRun* const run = Opened(batch);
    if (run == nullptr) return false;
    const Status rest =
        expired ? run->RecordRest("batch_expired",
                                  "This request could not be executed before "
                                  "the completion window expired.")
                : run->RecordRest("batch_cancelled",
                                  "This request was not executed because the "
                                  "batch was cancelled.");
    ShowCounts(batch.id, *run);
    if (!rest.ok()) {
      FailWith(batch.id, rest);
      return false;
    }
  }
  if (const auto run = runs_.find(batch.id); run != runs_.end()) {
    if (const Status synced = run->second->Sync(); !synced.ok()) {
      FailWith(batch.id, synced);
      return false;
    }
  }
  Change(batch.id, [](Batch& changed) { changed.recorded = true; });
  return true;
}

bool Batches::MustWait(const std::string& id) {
  const auto wait = not_before_.find(id);
  if (wait == not_before_.end()) return false;
  if (Clock::Real().Now() < wait->second) {
    next_look_ = std::min(next_look_, wait->second);
    return true;
  }
  not_before_.erase(wait);
  return false;
}

void Batches::Defer(const std::string& id) {
  const Clock::Time then = Clock::Real().Now() + kLookAtClock;
  not_before_[id] = then;
  next_look_ = std::min(next_look_, then);
}

// The results become files of the client.
void Batches::Publish(const Batch& batch) {
  if (MustWait(batch.id)) return;
  bool published = true;
  const std::string results = ResultsPath(batch.id);
  StoredFile about = {
      .purpose = "batch_output", .tenant = batch.tenant, .created_at = Now()};
  if (batch.output_expires_after) {
    about.expires_at = about.created_at + *batch.output_expires_after;
  }
  const auto publish = [&](const std::string& path, const std::string& id,
                           const char* what) {
    about.id = id;
    about.filename = batch.id + "_" + what + ".jsonl";
    const Status adopted =
        files_->Adopt(about, path, counted_.count(batch.id) > 0);
    if (!adopted.ok()) {
      published = false;
      LogError("results of a batch cannot be published",
               {{"batch", batch.id}, {"error", adopted.message()}});
    }
  };
  publish(BatchRun::OutputPath(results), batch.output_id, "output");
  publish(BatchRun::ErrorPath(results), batch.error_id, "error");
  // Tried again: the results of an ended batch would count as torn files.
  if (!published) return Defer(batch.id);
  counted_.erase(batch.id);
  Change(batch.id, [&](Batch& changed) {
    changed.has_output = files_->Find(batch.output_id, batch.tenant).ok();
    changed.has_errors = files_->Find(batch.error_id, batch.tenant).ok();
    changed.Become(changed.ending, Now());
    LogInfo("batch ended", {{"batch", changed.id},
                            {"status", changed.status},
                            {"completed", changed.completed},
                            {"failed", changed.failed}});
  });
}

void Batches::RemoveExpired() {
  for (const StoredFile& file : files_->Expired(Now())) {
    // The input of an unfinished batch stays until its end.
    static_cast<void>(RemoveFile(file.id, file.tenant));
  }
}

}  // namespace millrace::server
