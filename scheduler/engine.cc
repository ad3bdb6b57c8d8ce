// The engine's interface: checks tasks and owns the engine thread. The work of
// the steps is in engine_loop.cc.
#include "scheduler/engine.h"

#include <algorithm>
#include <thread>
#include <utility>
#include <vector>

#include "config/base/log.h"
#include "models/llm/lora.h"
#include "models/llm/page_groups.h"
#include "models/llm/runner_on_device.h"
#include "scheduler/adapter_gauge.h"
#include "scheduler/admission.h"
#include "scheduler/engine_loop.h"
#include "scheduler/engine_metrics.h"
#include "scheduler/job.h"
#include "scheduler/request_queue.h"

namespace millrace::scheduler {
namespace {

using models::kPageTokens;
using models::RunnerInfo;

// What the engine promises: the runner's limits, narrowed to the options and
// to what one sequence can hold when it has the whole pool. Every running
// sequence decodes in every step, so no more run than a step has rows and
// samples for; max_tokens becomes the budget that prompts keep to.
RunnerInfo Narrow(RunnerInfo info, const EngineOptions& options) {
  info.limits.max_seqs =
      std::min({info.limits.max_seqs, options.max_num_seqs,
                info.limits.max_tokens, info.limits.max_samples});
  info.limits.max_tokens =
      std::min(info.limits.max_tokens, options.max_num_batched_tokens);
  const int64_t tables = int64_t{info.limits.max_pages_per_seq} * kPageTokens;
  info.max_context = static_cast<int32_t>(models::LongestSequence(
      info.windows, info.limits.max_tokens, info.num_pages,
      std::min<int64_t>(info.max_context, tables)));
  CHECK(info.limits.max_tokens > 0 && info.limits.max_seqs > 0 &&
            info.limits.max_samples > 0 && info.max_context > 1,
        "an engine has room for one sequence at least");
  return info;
}

MetricLabels LabelsOf(const EngineOptions& options) {
  return ModelLabels(options.model, options.version);
}

class EngineImpl final : public Engine {
 public:
  EngineImpl(std::unique_ptr<models::Runner> runner,
             const EngineOptions& options, MetricRegistry* registry,
             std::unique_ptr<models::Runner> draft,
             std::unique_ptr<models::PageStore> store)
      : options_(options),
        info_(Narrow(runner->info(), options)),
        runner_(std::move(runner)),
        draft_(std::move(draft)),
        metrics_(registry ? EngineMetrics(*registry, LabelsOf(options),
                                          info_.num_pages,
                                          models::DeviceOf(*runner_),
                                          options.speculative.num_tokens)
                          : EngineMetrics()),
        board_(std::make_shared<StatsBoard>()),
        admission_(Admission::Create({
            .model = options.model,
            .max_num_seqs = info_.limits.max_seqs,
            .max_queue_size = options.max_queue_size,
            .clock = options.clock,
            .queue_full = metrics_.refused_queue_full,
            .deadline = metrics_.refused_deadline,
            .draining = metrics_.refused_draining,
        })),
        queue_(std::make_shared<RequestQueue>(admission_->places())),
        store_(std::move(store)) {
    CHECK(draft_ == nullptr ||
              draft_->info().limits.max_seqs >= info_.limits.max_seqs,
          "each sequence has its slot with the draft model, too");
    CHECK(store_ == nullptr || (options.enable_prefix_caching &&
                                info_.windows == std::vector<int32_t>{0}),
          "pages are kept where the prefix cache finds them again");
    if (registry) {
      const auto seconds = std::chrono::duration<double>(options.target_itl);
      limits_ = ExportLimits(
          *registry, LabelsOf(options),
          {{"max_num_seqs", info_.limits.max_seqs},
           {"max_num_batched_tokens", info_.limits.max_tokens},
           {"target_itl", seconds.count()},
           {"kv_cache_tokens",
            static_cast<double>(info_.num_pages / info_.limits.page_groups) *
                models::kPageTokens}});
      const auto adapters = std::make_shared<AdapterGauge>(
          registry, LabelsOf(options), info_.limits.max_seqs);
      scrape_ = registry->OnScrape(
          [metrics = metrics_, adapters, board = board_, queue = queue_] {
            const EngineStats stats = Stats(*board, *queue);
            metrics.SetGauges(stats);
            adapters->Show(stats);
          });
    }
    thread_ = std::thread([this] {
      // The runner pins its worker 0, which is this thread; here only a name.
      if (Status named = config::PinThisThread({}, "engine"); !named.ok()) {
        LogWarning("engine thread has no name", {{"status", named.ToString()}});
      }
      EngineLoop loop(*runner_, draft_.get(), store_.get(),
                      {.max_tokens = info_.limits.max_tokens,
                       .max_seqs = info_.limits.max_seqs,
                       .max_samples = info_.limits.max_samples},
                      options_, *queue_, *admission_, *board_, metrics_);
      loop.Run();
    });
  }

  ~EngineImpl() override {
    admission_->Drain();
    queue_->Quit();
    thread_.join();
    scrape_.reset();
    metrics_.SetGauges(EngineStats());
  }

  StatusOr<Reservation> Reserve(Clock::Time deadline, int32_t places,
                                const TenantShare& tenant) override {
    return admission_->Reserve(deadline, places, tenant);
  }

  StatusOr<std::shared_ptr<TokenStream>> Submit(Reservation place,
                                                GenerateTask task) override {
    if (!place) {
      return FailedPrecondition("a task is submitted with a place of Reserve");
    }
    RETURN_IF_ERROR(CheckTask(task, info_, options_.model));

    auto job = std::make_unique<Job>();
    job->submitted = options_.clock->Now();
    job->accepted = job->submitted;
    if (task.trace) {
      task.trace->Stamp(Stage::kSubmitted, job->submitted);
      const int64_t accepted =
          task.trace->stamps[static_cast<size_t>(Stage::kAccepted)].load(
              std::memory_order_relaxed);
      if (accepted != 0) {
        job->accepted = Clock::Time(Clock::Duration(accepted));
      }
    }
    Sequence& sequence = job->sequence;
    sequence.num_prompt = static_cast<int32_t>(task.prompt.size());
    sequence.tokens = std::move(task.prompt);
    sequence.max_output = task.max_tokens;
    sequence.score_prompt = task.prompt_logprobs;
    sequence.priority = task.priority;
    sequence.tenant = task.tenant.id;
    sequence.tenant_alone = task.tenant.alone;
    job->tenant = task.tenant;
    sequence.fork_group = task.fork_group.get();
    job->num_completions = task.num_completions;
    if (task.prompt_progress) {
      job->progress =
          PromptProgress{.total = sequence.num_prompt, .processed = -1};
    }
    job->fork_group = std::move(task.fork_group);
    job->sampling = std::move(task.sampling);
    job->drafts.prediction = Prediction(std::move(task.prediction));
    if (task.adapter != nullptr) sequence.adapter = task.adapter->number();
    job->adapter = std::move(task.adapter);
    sequence.embeddings = task.embeddings.get();
    job->embeddings = std::move(task.embeddings);
    job->deadline = task.deadline;
    job->stop = std::move(task.stop);
    job->trace = std::move(task.trace);
    job->stream = std::make_shared<TokenStream>();
    job->place = std::move(place);

    std::shared_ptr<TokenStream> stream = job->stream;
    RETURN_IF_ERROR(queue_->Post(std::move(job)));
    return stream;
  }

  bool Drain(std::chrono::steady_clock::time_point deadline) override {
    admission_->Drain();
    const bool by_itself = admission_->WaitEmpty(deadline);
    queue_->Close();
    queue_->AwaitEnded();
    return by_itself;
  }

  EngineStats stats() const override { return Stats(*board_, *queue_); }
  const RunnerInfo& info() const override { return info_; }

 private:
  static EngineStats Stats(const StatsBoard& board, const RequestQueue& queue) {
    EngineStats stats = board.Read();
    stats.waiting += queue.size();
    return stats;
  }

  // Constant after construction.
  const EngineOptions options_;
  const RunnerInfo info_;

  // The engine thread's, while it runs.
  const std::unique_ptr<models::Runner> runner_;
  const std::unique_ptr<models::Runner> draft_;  // or null

  // Thread-safe, each. The board and the queue are shared with the scrape.
  const EngineMetrics metrics_;
  const std::shared_ptr<StatsBoard> board_;
  const std::shared_ptr<Admission> admission_;
  const std::shared_ptr<RequestQueue> queue_;
  // After the queue, which its thread wakes: it ends first.
  const std::unique_ptr<models::PageStore> store_;  // or null
  std::vector<Gauge> limits_;
  std::shared_ptr<void> scrape_;

  std::thread thread_;
};

}  // namespace

std::unique_ptr<Engine> Engine::Create(
    std::unique_ptr<models::Runner> runner, const EngineOptions& options,
    MetricRegistry* registry, std::unique_ptr<models::Runner> draft,
    std::unique_ptr<models::PageStore> store) {
  return std::make_unique<EngineImpl>(std::move(runner), options, registry,
                                      std::move(draft), std::move(store));
}

}  // namespace millrace::scheduler
