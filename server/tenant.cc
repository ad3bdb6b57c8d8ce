// Buckets are filled when they are looked at, so an idle tenant costs nothing.
#include "server/tenant.h"

#include <algorithm>
#include <cmath>

namespace millrace::server {
namespace {

constexpr std::string_view kReason = "rate_limit_exceeded";
// A bucket that is filled in many small steps may miss its level by rounding.
constexpr double kOne = 1 - 1e-6;

std::string Shown(double number) {
  std::string text = std::to_string(number);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.ends_with('.')) text.pop_back();
  return text;
}

std::string TryAgain(std::chrono::milliseconds wait) {
  return "try again in " + Shown(static_cast<double>(wait.count()) / 1000) +
         " s";
}

}  // namespace

Permit::~Permit() {
  if (tenant_ != nullptr) tenant_->Leave();
}

SessionPermit::~SessionPermit() {
  if (tenant_ != nullptr) tenant_->LeaveSession();
}

void Permit::Spend(int64_t tokens) const {
  if (tenant_ != nullptr && tokens > 0) tenant_->Spend(tokens);
}

void Tenant::Bucket::Fill(double seconds) {
  level = std::min(capacity, level + per_second * seconds);
}

std::chrono::milliseconds Tenant::Bucket::Until(double wanted) const {
  if (per_second <= 0 || level >= wanted) return std::chrono::milliseconds(0);
  return std::chrono::milliseconds(
      static_cast<int64_t>(std::ceil((wanted - level) / per_second * 1000)));
}

Tenant::Tenant(uint32_t number, std::string name, TenantLimits limits,
               const Clock* clock)
    : number_(number), name_(std::move(name)), clock_(clock) {
  MutexLock lock(mu_);
  limits_ = std::move(limits);
  filled_ = clock_->Now();
  SetBuckets();
  requests_.level = requests_.capacity;
  tokens_.level = tokens_.capacity;
}

void Tenant::SetBuckets() {
  requests_.per_second = limits_.requests_per_second;
  requests_.capacity =
      limits_.request_burst > 0
          ? static_cast<double>(limits_.request_burst)
          : std::max(1.0, std::floor(limits_.requests_per_second));
  tokens_.per_second = static_cast<double>(limits_.tokens_per_minute) / 60;
  tokens_.capacity = static_cast<double>(limits_.tokens_per_minute);
}

void Tenant::SetLimits(TenantLimits limits) {
  MutexLock lock(mu_);
  if (limits == limits_) return;
  Fill();
  const double missing_requests = requests_.capacity - requests_.level;
  const double missing_tokens = tokens_.capacity - tokens_.level;
  limits_ = std::move(limits);
  SetBuckets();
  // What was used stays used.
  requests_.level = requests_.capacity - missing_requests;
  tokens_.level = tokens_.capacity - missing_tokens;
}

void Tenant::Fill() const {
  const Clock::Time now = clock_->Now();
  const double seconds = std::chrono::duration<double>(now - filled_).count();
  filled_ = now;
  requests_.Fill(seconds);
  tokens_.Fill(seconds);
}

StatusOr<Permit> Tenant::Admit() {
  MutexLock lock(mu_);
  Fill();
  const int64_t most = limits_.max_concurrent_requests;
  if (most > 0 && num_running_ >= most) {
    return ResourceExhausted("tenant '" + name_ + "' has " +
                             std::to_string(num_running_) +
                             " requests under way, which is its limit; wait "
                             "for one to end")
        .Because(kReason)
        .RetryAfterMs(1000);
  }
  if (tokens_.per_second > 0 && tokens_.level < kOne) {
    return ResourceExhausted("tenant '" + name_ + "' used its " +
                             std::to_string(limits_.tokens_per_minute) +
                             " tokens a minute; " + TryAgain(tokens_.Until(1)))
        .Because(kReason)
        .RetryAfterMs(std::max<int64_t>(tokens_.Until(1).count(), 1));
  }
  if (requests_.per_second > 0) {
    if (requests_.level < kOne) {
      return ResourceExhausted("tenant '" + name_ + "' sent more than its " +
                               Shown(limits_.requests_per_second) +
                               " requests a second; " +
                               TryAgain(requests_.Until(1)))
          .Because(kReason)
          .RetryAfterMs(std::max<int64_t>(requests_.Until(1).count(), 1));
    }
    requests_.level -= 1;
  }
  ++num_running_;
  return Permit(shared_from_this());
}

StatusOr<SessionPermit> Tenant::AdmitSession() {
  MutexLock lock(mu_);
  if (limits_.max_sessions > 0 && num_sessions_ >= limits_.max_sessions) {
    return ResourceExhausted("tenant '" + name_ + "' has " +
                             std::to_string(num_sessions_) +
                             " sessions open, which is its limit; close one, "
                             "or raise its max_sessions")
        .Because("too_many_sessions")
        .RetryAfterMs(1000);
  }
  ++num_sessions_;
  return SessionPermit(shared_from_this());
}

void Tenant::LeaveSession() {
  MutexLock lock(mu_);
  --num_sessions_;
}

void Tenant::Leave() {
  MutexLock lock(mu_);
  --num_running_;
}

void Tenant::Spend(int64_t tokens) {
  MutexLock lock(mu_);
  if (tokens_.per_second <= 0) return;
  Fill();
  tokens_.level -= static_cast<double>(tokens);
}

Status Tenant::MayUse(std::string_view model) const {
  MutexLock lock(mu_);
  const std::vector<std::string>& models = limits_.models;
  if (models.empty() ||
      std::find(models.begin(), models.end(), model) != models.end()) {
    return OkStatus();
  }
  return Status(StatusCode::kPermissionDenied,
                "tenant '" + name_ + "' may not use the model '" +
                    std::string(model) +
                    "'; use one of its own, or ask the operator for it")
      .At("model")
      .Because("model_not_allowed");
}

int32_t Tenant::PriorityOf(int32_t asked) const {
  MutexLock lock(mu_);
  return limits_.priority.has_value() ? std::max(asked, *limits_.priority)
                                      : asked;
}

bool Tenant::alone() const {
  MutexLock lock(mu_);
  return alone_;
}

void Tenant::SetAlone(bool alone) {
  MutexLock lock(mu_);
  alone_ = alone;
}

TenantLimits Tenant::limits() const {
  MutexLock lock(mu_);
  return limits_;
}

Quota Tenant::quota() const {
  MutexLock lock(mu_);
  Fill();
  Quota quota;
  const auto whole = [](double level) {
    return static_cast<int64_t>(std::max(level, 0.0));
  };
  if (requests_.per_second > 0) {
    quota.limit_requests = static_cast<int64_t>(requests_.capacity);
    quota.remaining_requests = whole(requests_.level);
    quota.reset_requests = requests_.Until(requests_.capacity);
  }
  if (tokens_.per_second > 0) {
    quota.limit_tokens = static_cast<int64_t>(tokens_.capacity);
    quota.remaining_tokens = whole(tokens_.level);
    quota.reset_tokens = tokens_.Until(tokens_.capacity);
  }
  return quota;
}

}  // namespace millrace::server
