#include "scheduler/fair_order.h"

#include <algorithm>

namespace millrace::scheduler {

int64_t FairOrder::Tag(const TenantShare& tenant, int32_t num_prompt) {
  const int64_t earliest = virtual_time_ - kCredit * kScale;
  if (tags_.size() > kManyTenants) {  // without those who begin anew anyway
    std::erase_if(tags_, [earliest](const auto& each) {
      return std::max(each.second.next, each.second.last) <= earliest;
    });
  }
  Tags& tags =
      tags_.try_emplace(tenant.id, Tags{earliest, earliest}).first->second;
  tags.next = std::max(tags.next, earliest);
  tags.last = std::max(tags.next, tags.last);
  tags.next += Scaled(tenant, num_prompt + kCompletionTokens);
  return tags.last;
}

void FairOrder::Ended(const TenantShare& tenant, int32_t num_prompt,
                      std::optional<int32_t> num_output) {
  const auto known = tags_.find(tenant.id);
  if (known == tags_.end()) return;
  const int64_t more = num_output ? *num_output * kOutputTokens : -num_prompt;
  known->second.next += Scaled(tenant, more - kCompletionTokens);
}

int64_t FairOrder::Scaled(const TenantShare& tenant, int64_t tokens) {
  return tokens * kScale / std::max(tenant.weight, 1);
}

void FairOrder::Started(int64_t tag) {
  virtual_time_ = std::max(virtual_time_, tag);
}

}  // namespace millrace::scheduler
