// A job that ends inside a step gives back pages and slot at once. Its stream
// is told only after the numbers are posted and its place is free, so that a
// client that reacts to the end finds room for its next request.
#include "scheduler/engine_loop.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "config/base/log.h"
#include "models/llm/lora.h"
#include "scheduler/forced_drafter.h"
#include "scheduler/model_drafter.h"
#include "scheduler/ngram_drafter.h"
#include "scheduler/step_budget.h"
#include "scheduler/step_builder.h"

namespace millrace::scheduler {
namespace {

using models::StepResult;

// Of the target for the time between tokens: for a draft model to read prompts.
constexpr double kCatchUpShare = 0.25;
// The prices of steps become metrics every so many steps.
constexpr int64_t kStepsAPrice = 16;

// Pages that an idle engine copies for the store before it looks for work.
constexpr int32_t kIdlePages = 4;

double Seconds(Clock::Duration duration) {
  return std::chrono::duration<double>(duration).count();
}

std::string ByCommas(const std::set<std::string_view>& names) {
  std::string text;
  for (const std::string_view name : names) {
    text += (text.empty() ? "" : ",") + std::string(name);
  }
  return text;
}

}  // namespace

EngineLoop::EngineLoop(models::Runner& runner, models::Runner* draft,
                       models::PageStore* store, const PolicyLimits& limits,
                       const EngineOptions& options, RequestQueue& queue,
                       Admission& admission, StatsBoard& board,
                       const EngineMetrics& metrics)
    : runner_(runner),
      ahead_(dynamic_cast<const models::RunnerAhead*>(&runner)),
      draft_(draft),
      limits_(limits),
      model_(options.model),
      queue_(queue),
      admission_(admission),
      board_(board),
      metrics_(metrics),
      clock_(*options.clock),
      prefix_caching_(options.enable_prefix_caching),
      timeline_(options.timeline, options.model),
      ledger_({.num_pages = runner.info().num_pages,
               .prefix_caching = options.enable_prefix_caching,
               .separate_roles = runner.info().kv_depends_on_role &&
                                 !options.prefix_cache_share_generated,
               .windows = runner.info().windows,
               .max_rows = limits.max_tokens,
               .store = store}),
      target_itl_seconds_(Seconds(options.target_itl)),
      has_adapters_(options.has_adapters) {
  const SpeculativeOptions& speculative = options.speculative;
  if (speculative.num_tokens > 0) {
    speculation_ = std::make_unique<Speculation>(
        MakeDrafter(options), speculative.num_tokens, speculative.always);
  }
  for (int i = 0; i < (ahead_ == nullptr ? 1 : 2); ++i) {
    spare_.push_back(std::make_unique<StepInFlight>(runner.info().limits));
  }
  for (int32_t slot = limits.max_seqs - 1; slot >= 0; --slot) {
    free_slots_.push_back(slot);
  }
  if (store != nullptr) {
    auto* access = dynamic_cast<models::PageAccess*>(&runner);
    CHECK(access != nullptr, "a store is for runners whose pages are read");
    offload_ = std::make_unique<KvOffload>(*store, *access, ledger_, cost_,
                                           metrics.offload_hit_tokens);
    store->OnNews([&queue] { queue.Wake(); });
  }
  PostStats();
}

std::unique_ptr<Drafter> EngineLoop::MakeDrafter(
    const EngineOptions& options) const {
  if (draft_ == nullptr) {
    return std::make_unique<ForcedDrafter>(
        runner_,
        std::make_unique<NgramDrafter>(options.speculative.prompt_lookup_min,
                                       options.speculative.prompt_lookup_max));
  }
  return std::make_unique<ModelDrafter>(
      *draft_,
      ModelDrafterOptions{
          .vocab_size = runner_.info().vocab_size,
          .prefix_caching = options.enable_prefix_caching,
          .catch_up_seconds = Seconds(options.target_itl) * kCatchUpShare,
          .clock = options.clock});
}

void EngineLoop::Run() {
  if (draft_ != nullptr) draft_->MeasureRoofline();  // it adapts to them
  const models::RunnerRoofline roofline = runner_.MeasureRoofline();
  utilization_ = Utilization(roofline);
  metrics_.SetPeaks(roofline);
  bool fetches_only = false;
  while (true) {
    const bool idle = jobs_.empty() && in_flight_.empty();
    // A tenant's flood leaves no idle time, and others do not wait for memory.
    const bool prepares = (idle || asking_.Several(clock_.Now())) &&
                          runner_.PrepareAhead(ledger_.pages().first_unused());
    const bool saves = idle && offload_ && offload_->Save(kIdlePages) > 0;
    RequestQueue::Taken taken = queue_.Take(
        /*park=*/(idle && !prepares && !saves) || fetches_only);
    Receive(std::move(taken.jobs));
    EndUnwanted(taken.closed);
    DeliverEndings();
    while (jobs_.empty() && !in_flight_.empty()) EndStep();
    if (taken.closed && jobs_.empty()) queue_.Ended();
    if (taken.quit) {
      if (offload_) offload_->Save(ledger_.pages().total());
      return;
    }
    fetches_only = false;
    if (jobs_.empty()) continue;
    fetches_only = !RunStep();
    DeliverEndings();
  }
}

void EngineLoop::Receive(std::vector<std::unique_ptr<Job>> jobs) {
  for (std::unique_ptr<Job>& job : jobs) {
    asking_.Asked(job->tenant.id, job->submitted);
    job->sequence.arrival = arrivals_++;
    // Siblings share a prompt; the first of them counts it.
    const bool shared =
        job->fork_group != nullptr &&
        std::ranges::any_of(jobs_, [&](const auto& other) {
          return other->sequence.fork_group == job->sequence.fork_group;
        });
    if (!shared) {
      job->fair_prompt = job->sequence.num_prompt;
      metrics_.prompt_tokens.Add(job->sequence.num_prompt);
    }
    job->sequence.start_tag = fair_order_.Tag(job->tenant, job->fair_prompt);
    const auto place = std::upper_bound(
        jobs_.begin(), jobs_.end(), job, [](const auto& a, const auto& b) {
          return a->sequence.Before(b->sequence);
        });
    jobs_.insert(place, std::move(job));
  }
}

void EngineLoop::EndUnwanted(bool closed) {
  const Clock::Time now = clock_.Now();
  for (std::unique_ptr<Job>& job : jobs_) {
    if (closed) {
      End(job,
          Unavailable("model '" + model_ +
                      "' is shutting down and ended this request early"),
          FinishReason::kError);
    } else if (job->stop.stop_requested()) {
      End(job, Cancelled("the request was cancelled by its client"),
          FinishReason::kError);
    } else if (now >= job->deadline) {
      End(job,
          DeadlineExceeded(
              "the deadline passed after " +
              std::to_string(job->sequence.num_output()) + " of at most " +
              std::to_string(job->sequence.max_output) +
              " tokens; give the request more time or lower max_tokens"),
          FinishReason::kError);
    }
  }
}

bool EngineLoop::RunStep() {
  if (in_flight_.empty()) {
    const Plan plan = PlanStep();
    if (plan.rows.empty() && offload_ && offload_->fetching()) return false;
    CHECK(!plan.rows.empty(), "a step with work to do has rows");
    Launch(plan);
  }
  LaunchAhead();
  EndStep();
  return true;
}

void EngineLoop::Launch(const Plan& plan) {
  const bool is_ahead = !in_flight_.empty();
  in_flight_.push_back(std::move(spare_.back()));
  spare_.pop_back();
  StepInFlight& step = *in_flight_.back();
  CarryOut(plan, step);
  PostStats();
  if (!is_ahead) timeline_.Prepare(runner_);
  step.timeline = !is_ahead && timeline_.on() ? StepOf(plan, step.batch)
                                              : StepTimeline::Step{};
  step.is_ahead = is_ahead;
  step.launched = clock_.Now();
  runner_.Launch(step.batch);
  // A device works by itself from here on: room for what needs no result.
  metrics_.batch_size.Observe(static_cast<double>(plan.rows.size()));
  metrics_.step_tokens.Observe(step.batch.num_tokens);
  if (is_ahead) metrics_.steps_ahead.Add();
}

void EngineLoop::LaunchAhead() {
  // A store reads pages and a draft model computes between two steps, and a
  // capture is told of one step at a time.
  if (ahead_ == nullptr || offload_ || draft_ != nullptr || timeline_.on() ||
      in_flight_.back()->has_drafts || !ahead_->MayLaunchAhead() ||
      (speculation_ && !draft_lull_.Rests())) {
    return;
  }
  const FairSteps before = fair_steps_;
  const Plan plan = PlanStep();
  if (plan.rows.empty() || !plan.preempted.empty()) {
    fair_steps_ = before;
    return;
  }
  draft_lull_.Rested();
  Launch(plan);
}

void EngineLoop::EndStep() {
  std::unique_ptr<StepInFlight> step = std::move(in_flight_.front());
  in_flight_.erase(in_flight_.begin());
  const StatusOr<const StepResult*> result = runner_.Wait();
  ++steps_;
  free_slots_.insert(free_slots_.end(), held_slots_.begin(), held_slots_.end());
  held_slots_.clear();
  if (result.ok()) {
    const Clock::Time ended = clock_.Now();
    // One that was launched ahead began when the step before it ended.
    const Clock::Time begun = std::max(step->launched, last_end_);
    last_end_ = ended;
    const models::StepAccount account = runner_.account();
    double seconds = Seconds(ended - begun);
    if (step->is_ahead) {
      // Where this thread came late for the step before, the device was further
      // on than it looked: its own time is the least.
      seconds = std::max(seconds, std::accumulate(account.seconds.begin(),
                                                  account.seconds.end(), 0.0));
    }
    if (step->timeline.rows > 0) {
      step->timeline.begin = begun;
      step->timeline.end = ended;
      timeline_.Add(step->timeline);
    }
    cost_.Observe(step->shape, seconds);
    if (steps_ % kStepsAPrice == 0 && cost_.known()) {
      metrics_.SetPrices(cost_.prices());
    }
    if (utilization_.Add(account, seconds)) {
      metrics_.SetPeaks(utilization_.roofline());
    }
    metrics_.AddPhases(account);
    Apply(*step, **result);
    if (offload_) {
      offload_->Save(step->batch.num_tokens / models::kPageTokens + 1);
    }
  } else {
    Fail(result.status());
  }
  spare_.push_back(std::move(step));
}

void EngineLoop::Fail(const Status& status) {
  LogError("a step failed, its requests end",
           {{"model", model_}, {"status", status.ToString()}});
  // What the step wrote is worthless, and so is what stands on it. The rows of
  // a step behind it fail as well: none is discarded because another one ended.
  for (std::unique_ptr<StepInFlight>& step : in_flight_) {
    (void)runner_.Wait();
    ++steps_;
    spare_.push_back(std::move(step));
  }
  in_flight_.clear();
  for (std::unique_ptr<Job>& job : jobs_) {
    if (!job || !job->sequence.running()) continue;
    End(job, status, FinishReason::kError);
  }
  free_slots_.insert(free_slots_.end(), held_slots_.begin(), held_slots_.end());
  held_slots_.clear();
  ledger_.Forget();
}

StepTimeline::Step EngineLoop::StepOf(const Plan& plan,
                                      const models::StepBatch& batch) const {
  StepTimeline::Step step;
  step.rows = batch.num_tokens;
  step.sequences = batch.num_seqs;
  for (const PlannedRows& rows : plan.rows) {
    const Sequence& sequence = jobs_[rows.sequence]->sequence;
    step.prompt_rows += std::clamp(sequence.num_prompt - sequence.num_computed,
                                   0, rows.num_rows);
  }
  return step;
}

Plan EngineLoop::PlanStep() {
  sequences_.clear();
  for (const auto& job : jobs_) {
    sequences_.push_back(&job->sequence);
    job->sequence.draft.clear();
  }
  if (speculation_ && in_flight_.empty()) ProposeDrafts();
  if (offload_) offload_->Land(sequences_);
  PolicyLimits limits = limits_;
  limits.max_seqs -= static_cast<int32_t>(held_slots_.size());
  auto views = ledger_.Views(sequences_, limits, offload_.get());
  const Clock::Time now = clock_.Now();
  return fair_steps_.Make(views, [&](std::span<const SequenceView> seen) {
    return PlanOf(seen, now);
  });
}

Plan EngineLoop::PlanOf(std::span<const SequenceView> views,
                        Clock::Time now) const {
  PolicyLimits limits = limits_;
  limits.max_seqs -= static_cast<int32_t>(held_slots_.size());
  limits.several_tenants = KnowSeveralTenants(views) &&
                           (OfSeveralTenants(views) || asking_.Several(now));
  if (target_itl_seconds_ > 0 && cost_.known()) {
    const double part = limits.several_tenants ? StepPart(views) : 1;
    limits.max_prompt_rows =
        MostPromptRows(views, cost_, target_itl_seconds_ * part);
  }
  return MakePlan(views, ledger_.pages().available(), limits);
}

void EngineLoop::ProposeDrafts() {
  std::vector<Speculation::Target> targets;
  StepShape decodes;
  for (const auto& job : jobs_) {
    Sequence& sequence = job->sequence;
    job->drafts.draft = {};
    if (!sequence.running() ||
        sequence.num_tokens() - sequence.num_computed != 1) {
      continue;
    }
    decodes += ShapeOfRows(sequence.num_computed, 1, 1);
    // Which tokens mirostat allows is known one token ahead only.
    if (job->sampling.mirostat.on) continue;
    targets.push_back({&sequence, &job->drafts});
  }
  metrics_.draft_seconds.Add(speculation_->Propose(targets, decodes, cost_));
  if (targets.empty()) return;  // prompts alone
  draft_lull_.Asked(std::ranges::any_of(targets, [](const auto& target) {
    return !target.sequence->draft.empty();
  }));
}

void EngineLoop::CarryOut(const Plan& plan, StepInFlight& step) {
  const Clock::Time now = clock_.Now();
  for (const int32_t i : plan.preempted) Preempt(*jobs_[i]);
  StepBuilder builder(step.batch);
  step.shape = {};
  step.rows.clear();
  step.has_drafts = false;
  ledger_.Admit(plan, sequences_, builder);
  for (const int32_t i : plan.admitted) Start(*jobs_[i]);
  for (const PlannedRows& rows : plan.rows) {
    Job& job = *jobs_[rows.sequence];
    Sequence& sequence = job.sequence;
    ledger_.Grow(sequence, rows.num_rows);
    step.shape += ShapeOfRows(sequence.num_launched(), rows.num_rows, 0);
    builder.Add(sequence, rows.num_rows);
    step.shape.samples = step.batch.num_samples;
    step.rows.push_back({&job, rows});
    step.has_drafts = step.has_drafts || rows.num_draft > 0;
    const bool draws =
        sequence.num_launched() + rows.num_rows >= sequence.num_to_run();
    sequence.rows_in_flight += rows.num_rows;
    if (draws) sequence.drawn_by = step.batch.num_samples - 1;
    if (job.scheduled) continue;
    job.scheduled = true;
    job.began = now;
    metrics_.AddScheduled(sequence, prefix_caching_);
    if (job.trace) job.trace->Stamp(Stage::kScheduled, now);
    metrics_.queue_time.Observe(Seconds(now - job.submitted));
    job.TellProgress(sequence.num_found, now);
  }
}

void EngineLoop::Preempt(Job& job) {
  KvOffload::Forget(job.sequence);
  GiveBack(job.sequence);
  ++preemptions_;
  metrics_.preemptions.Add();
}

void EngineLoop::Start(Job& job) {
  CHECK(!free_slots_.empty(), "no more sequences run than there are slots");
  fair_order_.Started(job.sequence.start_tag);
  job.sequence.slot = free_slots_.back();
  free_slots_.pop_back();
  runner_.InitSlot({.slot = job.sequence.slot,
                    .sampling = &job.sampling,
                    .prompt = job.sequence.prompt(),
                    .output = job.sequence.output(),
                    .mirostat_mu = job.sequence.mirostat_mu,
                    .adapter = job.adapter,
                    .embeddings = job.embeddings});
}

void EngineLoop::End(std::unique_ptr<Job>& job, Status status,
                     FinishReason reason) {
  fair_order_.Ended(job->tenant, job->fair_prompt, job->num_output());
  for (const std::unique_ptr<StepInFlight>& step : in_flight_) {
    for (StepInFlight::Rows& rows : step->rows) {
      if (rows.job != job.get()) continue;
      rows.job = nullptr;
      metrics_.discarded_rows.Add(rows.planned.num_rows);
    }
  }
  GiveBack(job->sequence);
  StreamEnd end = {.status = std::move(status), .reason = reason};
  end.prompt_tokens = job->sequence.num_prompt;
  end.cached_tokens = std::max(job->sequence.num_found, 0);
  end.output_tokens = job->sequence.num_output();
  end.prediction = job->drafts.prediction.counts();
  endings_.push_back({std::move(job), std::move(end)});
}

void EngineLoop::GiveBack(Sequence& sequence) {
  ledger_.GiveBack(sequence);
  if (!sequence.running()) return;
  if (speculation_) speculation_->Release(sequence);
  const bool is_named = sequence.rows_in_flight > 0;
  (is_named ? held_slots_ : free_slots_).push_back(sequence.slot);
  sequence.slot = -1;
  sequence.rows_in_flight = 0;
  sequence.drawn_by = -1;
}

void EngineLoop::DeliverEndings() {
  std::erase(jobs_, nullptr);
  PostStats();
  const Clock::Time now = clock_.Now();
  for (Ending& ending : endings_) {
    admission_.CountCompletion(ending.job->scheduled ? now - ending.job->began
                                                     : Clock::Duration::zero());
    metrics_.AddEnding(*ending.job, ending.end, now);
    board_.AddEnding(*ending.job, ending.end, now);
    ending.job->fork_group.reset();  // what it counts, before the end is told
    ending.job->place.Release();
  }
  for (Ending& ending : endings_) {
    ending.job->stream->Finish(std::move(ending.end));
  }
  endings_.clear();
}

void EngineLoop::PostStats() {
  EngineStats stats;
  std::set<std::string_view> adapters[2];  // that run, that wait
  for (const auto& job : jobs_) {
    const bool running = job->sequence.running();
    ++(running ? stats.running : stats.waiting);
    if (job->adapter) adapters[running ? 0 : 1].insert(job->adapter->name());
  }
  has_adapters_ |= !adapters[0].empty() || !adapters[1].empty();
  stats.adapters = {.known = has_adapters_,
                    .running = ByCommas(adapters[0]),
                    .waiting = ByCommas(adapters[1])};
  const PageManager& pages = ledger_.pages();
  stats.pages_total = pages.total();
  stats.pages_free = pages.free();
  stats.pages_used = pages.used();
  stats.pages_cached = pages.cached();
  if (speculation_ && speculation_->drafter().pages() != nullptr) {
    stats.draft_pages_used = speculation_->drafter().pages()->used();
  }
  stats.steps = steps_;
  stats.preemptions = preemptions_;
  stats.bandwidth_utilization = utilization_.bandwidth();
  stats.compute_utilization = utilization_.compute();
  board_.Post(stats);
}

}  // namespace millrace::scheduler
