// The order between tenants: start-time fair queueing (Goyal, Vin, Cheng:
// "Start-time Fair Queuing", SIGCOMM 1996), with a credit for tenants that ask
// for little.
//
// Each request gets a start tag when it arrives; requests run in the order of
// their tags. A tenant's next tag moves on by the cost of its request, divided
// by its weight, so many requests of one tenant move its own tags far ahead and
// leave those of other tenants. The cost of a completion is a guess until it
// ends; then its tokens count, as in Sheng et al., "Fairness in Serving Large
// Language Models", OSDI 2024. Virtual time is the largest tag that has
// started. A tenant that was idle begins at most kCredit behind it: before what
// a flood has begun, but without a claim to all the time in which it asked for
// nothing. The credit is the same at every weight.
//
// One tenant alone has rising tags, so its requests run in order of arrival.
//
// Engine thread only.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "scheduler/request.h"

namespace millrace::scheduler {

class FairOrder {
 public:
  // Tokens at weight 1; a few requests. What a new flood may put before others.
  static constexpr int64_t kCredit = 2'048;
  // A completion's length is not known before its end: until then all count
  // like so many tokens of a prompt.
  static constexpr int64_t kCompletionTokens = 128;
  // An output token's cost in tokens of a prompt, which are computed many at a
  // time.
  static constexpr int64_t kOutputTokens = 4;

  // The start tag of a request with so many prompt tokens.
  int64_t Tag(const TenantShare& tenant, int32_t num_prompt);
  // A request of the tenant, with so many prompt tokens, ends after so many
  // output tokens; absent: it has not run. Its tenant's next requests stand
  // behind what it cost, no longer behind the guess.
  void Ended(const TenantShare& tenant, int32_t num_prompt,
             std::optional<int32_t> num_output);
  // A request with this tag runs from now on.
  void Started(int64_t tag);

 private:
  // Tags are tokens times kScale, so that weights divide without losing much.
  static constexpr int64_t kScale = 1000;
  static constexpr size_t kManyTenants = 1024;

  struct Tags {
    int64_t next = 0;  // behind the cost of all requests until now
    int64_t last = 0;  // of the last request; the next one's is not below it
  };

  static int64_t Scaled(const TenantShare& tenant, int64_t tokens);

  int64_t virtual_time_ = 0;
  std::map<uint32_t, Tags> tags_;  // by tenant
};

}  // namespace millrace::scheduler
