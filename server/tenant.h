// A tenant: the party a request is charged to, and its limits. Each key
// belongs to one; several keys may share it.
//
//   ASSIGN_OR_RETURN(Permit permit, tenant->Admit());   // or 429
//   ... the request runs ...
//   permit.Spend(tokens);                               // once they are known
//
// Rates are token buckets (RFC 2697's idea, one colour): they fill at the rate
// and hold a limited burst. Tokens of language models are charged when a
// request ends, since their number is not known before; a tenant that
// overdrew waits until its bucket is positive again.
//
// Thread-safe.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/base/clock.h"
#include "config/base/mutex.h"
#include "config/base/status.h"

namespace millrace::server {

// 0 and an empty list: no limit.
struct TenantLimits {
  double requests_per_second = 0;
  int64_t request_burst = 0;  // 0: those of one second, at least one
  int64_t tokens_per_minute = 0;
  int64_t max_concurrent_requests = 0;
  int64_t max_sessions = 0;  // WebSockets open at once
  // No request goes before this one; lower runs first.
  std::optional<int32_t> priority = {};
  int32_t weight = 1;  // its share beside other tenants
  std::vector<std::string> models = {};

  bool operator==(const TenantLimits&) const = default;
};

// What is left, as in the x-ratelimit-* headers. -1: no limit.
struct Quota {
  int64_t limit_requests = -1;
  int64_t remaining_requests = -1;
  std::chrono::milliseconds reset_requests{0};  // until the bucket is full
  int64_t limit_tokens = -1;
  int64_t remaining_tokens = -1;
  std::chrono::milliseconds reset_tokens{0};
};

class Tenant;

// One open session. Its end gives the place back; movable.
class SessionPermit {
 public:
  SessionPermit() = default;
  explicit SessionPermit(std::shared_ptr<Tenant> tenant)
      : tenant_(std::move(tenant)) {}
  SessionPermit(SessionPermit&&) noexcept = default;
  SessionPermit& operator=(SessionPermit&& other) noexcept {
    std::swap(tenant_, other.tenant_);
    return *this;
  }
  ~SessionPermit();

 private:
  std::shared_ptr<Tenant> tenant_;  // shared as that of a Permit
};

// One admitted request. Movable; its end gives the place back.
class Permit {
 public:
  Permit() = default;
  explicit Permit(std::shared_ptr<Tenant> tenant)
      : tenant_(std::move(tenant)) {}
  Permit(Permit&&) noexcept = default;
  Permit& operator=(Permit&& other) noexcept {
    std::swap(tenant_, other.tenant_);
    return *this;
  }
  ~Permit();

  // Charges tokens of prompt and completion.
  void Spend(int64_t tokens) const;

 private:
  // Shared: requests may outlive a reload that drops the tenant.
  std::shared_ptr<Tenant> tenant_;
};

class Tenant : public std::enable_shared_from_this<Tenant> {
 public:
  // `number` is its own among the tenants of this process; the clock outlives
  // it.
  Tenant(uint32_t number, std::string name, TenantLimits limits,
         const Clock* clock);

  const std::string& name() const { return name_; }
  uint32_t number() const { return number_; }

  // RESOURCE_EXHAUSTED with retry_after_ms; nothing is charged then.
  StatusOr<Permit> Admit();
  // The same for a session, beside its requests: those are admitted one by one.
  StatusOr<SessionPermit> AdmitSession();
  // PERMISSION_DENIED names the model.
  Status MayUse(std::string_view model) const;
  // The request's own priority, but none that goes before the tenant's.
  int32_t PriorityOf(int32_t asked) const;
  // No other tenant is known: it may take all places of a model.
  bool alone() const;
  void SetAlone(bool alone);
  TenantLimits limits() const;
  Quota quota() const;
  // After the key file changed. Requests under way keep their places.
  void SetLimits(TenantLimits limits);

 private:
  friend class Permit;
  friend class SessionPermit;

  // Fills at `per_second` up to `capacity`. Without a rate it is never empty.
  struct Bucket {
    double per_second = 0;
    double capacity = 0;
    double level = 0;
    void Fill(double seconds);
    std::chrono::milliseconds Until(double wanted) const;
  };

  void SetBuckets() REQUIRES(mu_);
  void Fill() const REQUIRES(mu_);
  void Leave();
  void LeaveSession();
  void Spend(int64_t tokens);

  const uint32_t number_;
  const std::string name_;
  const Clock* const clock_;
  mutable Mutex mu_;
  TenantLimits limits_ GUARDED_BY(mu_);
  mutable Bucket requests_ GUARDED_BY(mu_);
  mutable Bucket tokens_ GUARDED_BY(mu_);
  mutable Clock::Time filled_ GUARDED_BY(mu_);
  int64_t num_running_ GUARDED_BY(mu_) = 0;
  int64_t num_sessions_ GUARDED_BY(mu_) = 0;
  bool alone_ GUARDED_BY(mu_) = true;
};

}  // namespace millrace::server
