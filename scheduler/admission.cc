// Counts requests in flight; refuses new ones when all places are taken. Only
// time with a place in use counts for the service rate, so an idle night does
// not make the first busy minute look slow.
#include "scheduler/admission.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "scheduler/policy.h"

namespace millrace::scheduler {
namespace {

constexpr double kRateSeconds = 30;
constexpr int64_t kMinRetryMs = 1'000;
constexpr int64_t kMaxRetryMs = 60'000;
// Endings decay while they are counted: a round of all seats is not reached to
// the last.
constexpr double kOneRound = 0.9;
constexpr double kLeastEndings = 1;
// Rates vary: a queue as long as deadlines allow has answers that are late
// where it becomes a little slower.
constexpr double kSpread = 1.1;
// A deadline is refused on evidence only: so many endings, decayed.
constexpr double kEnoughCompletions = 4;

double Seconds(Clock::Duration duration) {
  return std::chrono::duration<double>(duration).count();
}

// When another try has a chance; a wait below zero is unknown.
int64_t RetryMs(double wait_seconds) {
  if (wait_seconds < 0) return kMinRetryMs;
  return std::clamp(static_cast<int64_t>(std::min(wait_seconds, 1e6) * 1e3),
                    kMinRetryMs, kMaxRetryMs);
}

}  // namespace

std::shared_ptr<Admission> Admission::Create(AdmissionOptions options) {
  return std::shared_ptr<Admission>(new Admission(std::move(options)));
}

Admission::Admission(AdmissionOptions options)
    : options_(std::move(options)),
      max_num_seqs_(options_.max_num_seqs),
      last_(options_.clock->Now()) {}

StatusOr<Reservation> Admission::Reserve(Clock::Time deadline, int32_t places,
                                         const TenantShare& tenant) {
  const Clock::Time now = options_.clock->Now();
  double wait_seconds = 0;
  double needed_seconds = 0;
  int32_t max_num_seqs = 0;
  int32_t share = 0;  // that the tenant has used up; 0: the queue is full
  {
    MutexLock lock(mu_);
    max_num_seqs = max_num_seqs_;
    if (draining_) {
      options_.draining.Add();
      return Unavailable("model '" + options_.model +
                         "' is draining and takes no new requests");
    }
    if (now >= deadline) {
      options_.deadline.Add();
      return DeadlineExceeded("the deadline passed before model '" +
                              options_.model +
                              "' could begin; give the request more time");
    }
    AdvanceTo(now);
    const int32_t ahead = in_use_ + places - max_num_seqs;
    wait_seconds = ahead > 0 ? SecondsFor(ahead) : 0;
    needed_seconds = ahead > 0 ? SecondsNeeded(ahead) : 0;
    const bool hopeless = deadline != kNever &&
                          completions_ >= kEnoughCompletions &&
                          needed_seconds > Seconds(deadline - now);
    const int32_t all = max_num_seqs + options_.max_queue_size;
    const auto held = in_use_of_.find(tenant.id);
    const int32_t own = held == in_use_of_.end() ? 0 : held->second;
    const int32_t most = tenant.alone ? all : MostOfTenant(all);
    if (places > most) {
      return InvalidArgument(
                 "n is " + std::to_string(places) + " but model '" +
                 options_.model + "' has " + std::to_string(most) +
                 " places that one tenant may have beside others; ask for "
                 "fewer completions or raise max_queue_size")
          .At("n");
    }
    const bool room = in_use_ + places <= all && own + places <= most;
    if (in_use_ + places <= all) share = most;
    if (room && !hopeless) {
      in_use_ += places;
      in_use_of_[tenant.id] += places;
      // Held as long as the place: a place may outlive the engine.
      return Reservation(
          [self = shared_from_this(), id = tenant.id] { self->Release(id); },
          places);
    }
    if (room) {
      options_.deadline.Add();
      return DeadlineExceeded(
                 "the deadline is " +
                 std::to_string(std::llround(Seconds(deadline - now) * 1e3)) +
                 " ms away but a request that joins the queue of model '" +
                 options_.model + "' now " +
                 (options_.alike ? "takes" : "waits") + " about " +
                 std::to_string(std::llround(needed_seconds * 1e3)) +
                 " ms; give it more time or send it later")
          .RetryAfterMs(RetryMs(wait_seconds));
    }
  }
  options_.queue_full.Add();
  const int64_t retry_ms = RetryMs(wait_seconds);
  if (share > 0) {
    return ResourceExhausted(
               "model '" + options_.model +
               "': requests of this tenant run or wait at all " +
               std::to_string(share) +
               " places that it may have beside other tenants; try again in "
               "about " +
               std::to_string((retry_ms + 999) / 1000) + " s")
        .Because("queue_full")
        .RetryAfterMs(retry_ms);
  }
  return ResourceExhausted(
             "model '" + options_.model + "': the queue is full (" +
             std::to_string(max_num_seqs + options_.max_queue_size) +
             " requests run or wait, which is " + options_.max_num_seqs_name +
             " " + std::to_string(max_num_seqs) + " + max_queue_size " +
             std::to_string(options_.max_queue_size) +
             (places > 1
                  ? "; this one asks for " + std::to_string(places) + " places"
                  : "") +
             "); try again in about " +
             std::to_string((retry_ms + 999) / 1000) +
             " s or raise max_queue_size")
      .Because("queue_full")
      .RetryAfterMs(retry_ms);
}

void Admission::CountCompletion(Clock::Duration computed) {
  const Clock::Time now = options_.clock->Now();
  MutexLock lock(mu_);
  AdvanceTo(now);
  completions_ += 1;
  if (in_use_ >= max_num_seqs_) full_completions_ += 1;
  if (computed.count() <= 0) return;
  computed_ += 1;
  computed_seconds_ += Seconds(computed);
}

void Admission::Drain() {
  MutexLock lock(mu_);
  draining_ = true;
}

bool Admission::WaitEmpty(std::chrono::steady_clock::time_point deadline) {
  MutexLock lock(mu_);
  while (in_use_ > 0) {
    if (!emptied_.WaitUntil(mu_, deadline)) return in_use_ == 0;
  }
  return true;
}

void Admission::SetMaxNumSeqs(int32_t max_num_seqs) {
  const Clock::Time now = options_.clock->Now();
  MutexLock lock(mu_);
  AdvanceTo(now);
  max_num_seqs_ = max_num_seqs;
}

int32_t Admission::places() const {
  MutexLock lock(mu_);
  return max_num_seqs_ + options_.max_queue_size;
}

int32_t Admission::in_use() const {
  MutexLock lock(mu_);
  return in_use_;
}

bool Admission::draining() const {
  MutexLock lock(mu_);
  return draining_;
}

void Admission::Release(uint32_t tenant) {
  // No clock here: it may be gone when the place outlives the engine. The busy
  // time since the last event is counted by the next event, or lost when this
  // was the last place; completions are counted apart and do not lose theirs.
  MutexLock lock(mu_);
  --in_use_;
  if (--in_use_of_[tenant] == 0) in_use_of_.erase(tenant);
  if (in_use_ == 0) emptied_.NotifyAll();
}

void Admission::AdvanceTo(Clock::Time now) {
  if (now <= last_) return;
  if (in_use_ > 0) {
    const double seconds = Seconds(now - last_);
    const double keep = std::exp(-seconds / kRateSeconds);
    for (double* sum : {&completions_, &full_completions_, &full_seconds_,
                        &computed_, &computed_seconds_, &busy_seconds_}) {
      *sum *= keep;
    }
    busy_seconds_ += seconds;
    if (in_use_ >= max_num_seqs_) full_seconds_ += seconds;
  }
  last_ = now;
}

double Admission::SecondsFor(int32_t ahead) const {
  // One ending for each seat: fewer may be those that began first.
  if (full_completions_ >=
      std::max<double>(max_num_seqs_ * kOneRound, kLeastEndings)) {
    return ahead * full_seconds_ / full_completions_;
  }
  if (computed_ > 0) {
    return ahead * computed_seconds_ / computed_ / max_num_seqs_;
  }
  // Nothing ended yet: at least as long as it has taken so far.
  return busy_seconds_ > 0 ? busy_seconds_ : -1;
}

// All seats end together, as a batch, and the one under way may just have
// begun.
double Admission::SecondsNeeded(int32_t ahead) const {
  if (!options_.alike) return SecondsFor(ahead);
  const int32_t rounds = (ahead + max_num_seqs_ - 1) / max_num_seqs_;
  const double before = SecondsFor(rounds * max_num_seqs_);
  const double own = computed_ > 0 ? computed_seconds_ / computed_ : 0;
  return before < 0 ? before : kSpread * (before + own);
}

}  // namespace millrace::scheduler
