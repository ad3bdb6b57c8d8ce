// A text takes all its pages when its turn comes, computes its rows in chunks
// and gives the pages back; nothing of it is kept. A text whose pages are not
// free waits, and those behind it with it, so that none starves.
#include "scheduler/embedding_engine.h"

#include <algorithm>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include "config/base/log.h"
#include "config/base/mutex.h"
#include "config/topology.h"
#include "scheduler/admission.h"
#include "scheduler/batcher_metrics.h"

namespace millrace::scheduler {
namespace {

using models::kNoPage;
using models::kPageTokens;
using models::PageId;
using models::StepBatch;

struct Job {
  EmbeddingTask task;
  Reservation place;
  Clock::Time submitted;
  Clock::Time began;
  bool has_begun = false;
  size_t next_text = 0;  // to be started
  size_t num_ended = 0;
  EmbeddingTask::Vectors vectors;
  Status failure;
};

// A text whose rows are being computed.
struct Running {
  std::shared_ptr<Job> job;
  size_t text = 0;
  int32_t slot = 0;
  std::vector<PageId> pages = {};
  int32_t done = 0;              // rows
  std::vector<double> sum = {};  // of the rows that are pooled

  const std::vector<int32_t>& ids() const { return job->task.texts[text]; }
  int32_t size() const { return static_cast<int32_t>(ids().size()); }
};

double Seconds(Clock::Duration duration) {
  return std::chrono::duration<double>(duration).count();
}

class Impl final : public EmbeddingEngine {
 public:
  Impl(std::unique_ptr<models::Runner> runner, const EmbeddingOptions& options,
       MetricRegistry* registry)
      : options_(options),
        info_(runner->info()),
        runner_(std::move(runner)),
        view_(dynamic_cast<models::LogitsView*>(runner_.get())),
        metrics_(registry
                     ? BatcherMetrics(*registry, ModelLabels(options.model,
                                                             options.version))
                     : BatcherMetrics()),
        admission_(Admission::Create({
            .model = options.model,
            .max_num_seqs = info_.limits.max_seqs,
            .max_queue_size = options.max_queue_size,
            .clock = options.clock,
            .queue_full = metrics_.refused_queue_full,
            .deadline = metrics_.refused_deadline,
            .draining = metrics_.refused_draining,
        })),
        batch_(info_.limits) {
    CHECK(view_ != nullptr && options_.hidden > 0,
          "an embedding engine's runner gives hidden rows");
    CHECK(info_.limits.max_samples >= info_.limits.max_tokens,
          "each token of a step may give its row");
    for (int32_t i = info_.num_pages; i-- > 0;)
      free_pages_.push_back(PageId{i});
    for (int32_t i = info_.limits.max_seqs; i-- > 0;) free_slots_.push_back(i);
    thread_ = std::thread([this] { Loop(); });
  }

  ~Impl() override {
    admission_->Drain();
    CloseAndJoin();
  }

  StatusOr<Reservation> Reserve(Clock::Time deadline) override {
    StatusOr<Reservation> place = admission_->Reserve(deadline);
    if (!place.ok()) metrics_.rejected.Add();
    return place;
  }

  Status Submit(Reservation place, EmbeddingTask task) override {
    CHECK(place, "a task is submitted with a place of Reserve");
    if (task.texts.empty()) return InvalidArgument("there are no texts");
    for (const std::vector<int32_t>& ids : task.texts) {
      RETURN_IF_ERROR(CheckText(ids));
    }
    auto job = std::make_shared<Job>();
    job->vectors.resize(task.texts.size());
    job->submitted = options_.clock->Now();
    if (task.trace) task.trace->Stamp(Stage::kSubmitted, job->submitted);
    job->task = std::move(task);
    job->place = std::move(place);
    MutexLock lock(mu_);
    if (closed_) return Drained();
    arrived_.push_back(std::move(job));
    wake_.NotifyOne();
    return OkStatus();
  }

  bool Drain(std::chrono::steady_clock::time_point deadline) override {
    admission_->Drain();
    const bool by_itself = admission_->WaitEmpty(deadline);
    CloseAndJoin();
    return by_itself;
  }

  int32_t max_tokens() const override {
    const int64_t room = int64_t{info_.num_pages} * kPageTokens;
    return static_cast<int32_t>(std::min<int64_t>(info_.max_context, room));
  }
  int32_t size() const override { return options_.hidden; }
  int32_t vocab_size() const override { return info_.vocab_size; }

 private:
  Status CheckText(const std::vector<int32_t>& ids) const {
    const auto tokens = static_cast<int64_t>(ids.size());
    if (tokens < 1 || tokens > max_tokens()) {
      return InvalidArgument("a text has " + std::to_string(tokens) +
                             " tokens; 1 to " + std::to_string(max_tokens()) +
                             " are allowed with model '" + options_.model +
                             "'");
    }
    for (const int32_t id : ids) {
      if (id >= 0 && id < info_.vocab_size) continue;
      return InvalidArgument("the token id " + std::to_string(id) +
                             " is not one of 0 to " +
                             std::to_string(info_.vocab_size - 1));
    }
    return OkStatus();
  }

  Status Drained() const {
    return Unavailable("model '" + options_.model +
                       "' was drained before the request ended");
  }

  void CloseAndJoin() {
    {
      MutexLock lock(mu_);
      closed_ = true;
      wake_.NotifyOne();
    }
    std::call_once(joined_, [this] { thread_.join(); });
  }

  // ---- the thread ----

  void Loop() {
    // The runner pins its worker 0, which is this thread; here only a name.
    if (Status named = config::PinThisThread({}, "embedder"); !named.ok()) {
      LogWarning("embedding thread has no name",
                 {{"status", named.ToString()}});
    }
    while (TakeArrived()) {
      EndUnwanted();
      StartTexts();
      metrics_.running.Set(static_cast<double>(running_.size()));
      metrics_.waiting.Set(static_cast<double>(jobs_.size()));
      if (!running_.empty()) Step();
    }
    for (const std::shared_ptr<Job>& job : jobs_) End(*job, Drained());
  }

  // Waits while there is nothing to do. False: closed.
  bool TakeArrived() {
    MutexLock lock(mu_);
    while (!closed_ && arrived_.empty() && jobs_.empty()) wake_.Wait(mu_);
    for (auto& job : arrived_) jobs_.push_back(std::move(job));
    arrived_.clear();
    return !closed_;
  }

  void EndUnwanted() {
    const Clock::Time now = options_.clock->Now();
    for (const std::shared_ptr<Job>& job : jobs_) {
      if (job->task.stop.stop_requested()) {
        job->failure = Cancelled("the client left before its request ended");
      } else if (job->task.deadline <= now) {
        job->failure = DeadlineExceeded(
            "the deadline passed before model '" + options_.model +
            "' had computed the texts; give them more time or send fewer");
      }
    }
    EndFailed();
  }

  void EndFailed() {
    std::erase_if(running_, [this](const Running& text) {
      if (text.job->failure.ok()) return false;
      GiveBack(text);
      return true;
    });
    std::erase_if(jobs_, [this](const std::shared_ptr<Job>& job) {
      if (job->failure.ok()) return false;
      End(*job, job->failure);
      return true;
    });
  }

  void GiveBack(const Running& text) {
    free_pages_.insert(free_pages_.end(), text.pages.begin(), text.pages.end());
    free_slots_.push_back(text.slot);
  }

  void End(Job& job, StatusOr<EmbeddingTask::Vectors> result) {
    const Clock::Time now = options_.clock->Now();
    admission_->CountCompletion(job.has_begun ? now - job.began
                                              : Clock::Duration::zero());
    if (result.ok()) {
      metrics_.request_seconds.Add(Seconds(now - job.submitted));
      metrics_.queue_seconds.Add(Seconds(job.began - job.submitted));
      metrics_.compute_infer_seconds.Add(Seconds(now - job.began));
    }
    metrics_.Outcome(result.status().code()).Add();
    job.task.done(std::move(result));
    job.place.Release();
  }

  void StartTexts() {
    const Clock::Time now = options_.clock->Now();
    for (const std::shared_ptr<Job>& job : jobs_) {
      while (job->next_text < job->task.texts.size()) {
        const auto tokens =
            static_cast<int64_t>(job->task.texts[job->next_text].size());
        const auto pages =
            static_cast<size_t>((tokens + kPageTokens - 1) / kPageTokens);
        if (free_slots_.empty() || free_pages_.size() < pages) return;
        if (!job->has_begun) Begin(*job, now);
        Running text{.job = job, .text = job->next_text++};
        text.slot = free_slots_.back();
        free_slots_.pop_back();
        text.pages.assign(free_pages_.end() - static_cast<ptrdiff_t>(pages),
                          free_pages_.end());
        free_pages_.resize(free_pages_.size() - pages);
        text.sum.resize(static_cast<size_t>(options_.hidden));
        const models::SamplingParams sampling;
        runner_->InitSlot({.slot = text.slot,
                           .sampling = &sampling,
                           .prompt = {},
                           .output = {}});
        running_.push_back(std::move(text));
      }
    }
  }

  void Begin(Job& job, Clock::Time now) {
    job.has_begun = true;
    job.began = now;
    if (job.task.trace) job.task.trace->Stamp(Stage::kScheduled, now);
    metrics_.Began(now - job.submitted);
  }

  // Rows of the texts in order, up to the budget.
  void FillBatch(std::vector<int32_t>& counts) {
    batch_.Clear();
    batch_.q_start()[0] = 0;
    int32_t left = info_.limits.max_tokens;
    for (const Running& text : running_) {
      const int32_t count = std::min(text.size() - text.done, left);
      if (count == 0) break;
      counts.push_back(count);
      left -= count;
      const int32_t seq = batch_.num_seqs++;
      const int32_t first = batch_.num_tokens;
      batch_.num_tokens += count;
      batch_.q_start()[seq + 1] = batch_.num_tokens;
      batch_.kv_len()[seq] = text.done + count;
      batch_.slot()[seq] = text.slot;
      batch_.prompt_rows()[seq] = count;
      const std::span<PageId> pages = batch_.pages(seq);
      std::fill(pages.begin(), pages.end(), kNoPage);
      std::copy(text.pages.begin(), text.pages.end(), pages.begin());
      for (int32_t i = 0; i < count; ++i) {
        const int32_t position = text.done + i;
        batch_.tokens()[first + i] = text.ids()[static_cast<size_t>(position)];
        batch_.positions()[first + i] = position;
        if (!IsPooled(position, text.size())) continue;
        const int32_t sample = batch_.num_samples++;
        batch_.sample_rows()[sample] = first + i;
        batch_.sample_seqs()[sample] = seq;
        batch_.score_ids()[sample] = 0;
      }
    }
  }

  bool IsPooled(int32_t position, int32_t size) const {
    switch (options_.pooling) {
      case RowPooling::kMean:
        return true;
      case RowPooling::kFirst:
        return position == 0;
      case RowPooling::kLast:
        return position + 1 == size;
    }
    return false;
  }

  void Step() {
    std::vector<int32_t> counts;
    FillBatch(counts);
    const Clock::Time began = options_.clock->Now();
    runner_->Launch(batch_);
    const Status status = runner_->Wait().status();
    metrics_.Computed(static_cast<int32_t>(counts.size()), BatchClosed::kIdle,
                      options_.clock->Now() - began);
    if (!status.ok()) {
      for (size_t i = 0; i < counts.size(); ++i) {
        running_[i].job->failure = status;
      }
      return EndFailed();
    }
    for (int32_t i = 0; i < batch_.num_samples; ++i) {
      Running& text = running_[static_cast<size_t>(batch_.sample_seqs()[i])];
      const std::span<const float> row = view_->Logits(i);
      for (size_t k = 0; k < text.sum.size(); ++k) text.sum[k] += row[k];
    }
    for (size_t i = 0; i < counts.size(); ++i) running_[i].done += counts[i];
    metrics_.rows.Add(static_cast<double>(std::count_if(
        running_.begin(), running_.end(),
        [](const Running& text) { return text.done == text.size(); })));
    EndFinished();
  }

  void EndFinished() {
    std::erase_if(running_, [this](const Running& text) {
      if (text.done < text.size()) return false;
      const double rows =
          options_.pooling == RowPooling::kMean ? text.size() : 1.0;
      std::vector<float>& vector = text.job->vectors[text.text];
      for (const double x : text.sum) {
        vector.push_back(static_cast<float>(x / rows));
      }
      ++text.job->num_ended;
      GiveBack(text);
      return true;
    });
    std::erase_if(jobs_, [this](const std::shared_ptr<Job>& job) {
      if (job->num_ended < job->task.texts.size()) return false;
      End(*job, std::move(job->vectors));
      return true;
    });
  }

  // Constant after construction.
  const EmbeddingOptions options_;
  const models::RunnerInfo info_;
  // Owned by the thread.
  const std::unique_ptr<models::Runner> runner_;
  models::LogitsView* const view_;
  const BatcherMetrics metrics_;
  const std::shared_ptr<Admission> admission_;
  StepBatch batch_;
  std::vector<PageId> free_pages_;
  std::vector<int32_t> free_slots_;
  std::deque<std::shared_ptr<Job>> jobs_;  // in order of arrival
  std::vector<Running> running_;           // in order of their starts

  Mutex mu_;
  CondVar wake_;
  std::vector<std::shared_ptr<Job>> arrived_ GUARDED_BY(mu_);
  bool closed_ GUARDED_BY(mu_) = false;
  std::once_flag joined_;
  std::thread thread_;
};

}  // namespace

std::unique_ptr<EmbeddingEngine> EmbeddingEngine::Create(
    std::unique_ptr<models::Runner> runner, const EmbeddingOptions& options,
    MetricRegistry* registry) {
  return std::make_unique<Impl>(std::move(runner), options, registry);
}

}  // namespace millrace::scheduler
