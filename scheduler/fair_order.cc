#include "scheduler/fair_order.h"

#include <algorithm>

namespace millrace::scheduler {

int64_t FairOrder::Tag(const TenantShare& tenant, int32_t num_prompt) {
  const int64_t earliest = virtual_time_ - kCredit * kScale;
  if (next_.size() > kManyTenants) {
    std::erase_if(next_, [earliest](const auto& each) {
      return each.second <= earliest;  // as if it had never asked
    });
  }
  const auto [known, is_new] = next_.try_emplace(tenant.id, earliest);
  const int64_t tag = std::max(known->second, earliest);
  known->second = tag + Cost(tenant, num_prompt);
  return tag;
}

void FairOrder::Withdraw(const TenantShare& tenant, int32_t num_prompt) {
  const auto known = next_.find(tenant.id);
  if (known != next_.end()) known->second -= Cost(tenant, num_prompt);
}

int64_t FairOrder::Cost(const TenantShare& tenant, int32_t num_prompt) {
  const int64_t cost = (num_prompt + kCompletionTokens) * kScale;
  return cost / std::max(tenant.weight, 1);
}

void FairOrder::Started(int64_t tag) {
  virtual_time_ = std::max(virtual_time_, tag);
}

}  // namespace millrace::scheduler
