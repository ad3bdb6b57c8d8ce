// The text is looked at from its end: recent[0] is the last token. How much of
// the beginning of `recent` stands again at each place of it is the Z function
// (Gusfield 1997, section 1.3), linear in its length.
#include "models/llm/dry.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace millrace::models {
namespace {

// A penalty stays finite: e^80 times a multiplier of 100 is below the greatest
// float.
constexpr float kMaxLog = 80;

// Tokens at the end that stand behind the last breaker.
int32_t BehindBreaker(const DryBreakers& breakers,
                      std::span<const int32_t> recent) {
  const auto n = static_cast<int32_t>(recent.size());
  for (int32_t i = 0; i < n; ++i) {
    const auto head = breakers.tails.find(recent[i]);
    if (head == breakers.tails.end()) continue;
    int32_t longest = -1;
    for (const std::vector<int32_t>& tail : head->second) {
      const auto length = static_cast<int32_t>(tail.size());
      if (length <= longest || length > i) continue;
      // The token behind recent[i] is recent[i - 1].
      const auto behind = recent.subspan(i - length, length);
      if (std::equal(tail.begin(), tail.end(), behind.rbegin())) {
        longest = length;
      }
    }
    if (longest >= 0) return i - longest;
  }
  return n;
}

// z[i]: tokens from recent[i] on that equal those from recent[0] on.
std::vector<int32_t> ZFunction(std::span<const int32_t> recent) {
  const auto n = static_cast<int32_t>(recent.size());
  std::vector<int32_t> z(recent.size(), 0);
  int32_t left = 0;
  int32_t right = 0;  // recent[left, right) equals a beginning
  for (int32_t i = 1; i < n; ++i) {
    int32_t length = i < right ? std::min(right - i, z[i - left]) : 0;
    while (i + length < n && recent[length] == recent[i + length]) ++length;
    z[i] = length;
    if (i + length > right) {
      left = i;
      right = i + length;
    }
  }
  return z;
}

}  // namespace

std::vector<std::pair<int32_t, float>> DryPenalties(
    const DryParams& params, std::span<const int32_t> tokens) {
  if (params.multiplier == 0 || params.last_n == 0) return {};
  const size_t wanted =
      params.last_n < 0 ? tokens.size() : static_cast<size_t>(params.last_n);
  const auto last = tokens.last(std::min(wanted, tokens.size()));
  const std::vector<int32_t> recent(last.rbegin(), last.rend());
  const auto n = static_cast<int32_t>(recent.size());
  if (n <= params.allowed_length) return {};
  const int32_t most =
      params.breakers == nullptr ? n : BehindBreaker(*params.breakers, recent);
  if (most < params.allowed_length) return {};

  const std::vector<int32_t> z = ZFunction(recent);
  std::map<int32_t, int32_t> longest;  // by the token that came next
  for (int32_t i = 1; i < n; ++i) {
    const int32_t length = std::min(z[i], most);
    if (length < params.allowed_length) continue;
    int32_t& known = longest[recent[i - 1]];
    known = std::max(known, length);
  }
  const int32_t most_exponent =
      params.base > 1.000001f
          ? static_cast<int32_t>(kMaxLog / std::log(params.base))
          : INT32_MAX;
  std::vector<std::pair<int32_t, float>> penalties;
  for (const auto& [id, length] : longest) {
    const int32_t exponent =
        std::min(length - params.allowed_length, most_exponent);
    penalties.emplace_back(
        id, params.multiplier *
                std::pow(params.base, static_cast<float>(exponent)));
  }
  return penalties;
}

}  // namespace millrace::models
