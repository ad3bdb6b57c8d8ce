// Completions of two engines that must be equal to the last bit.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "tests/unit/scheduler/engine_fixture.h"

namespace millrace::scheduler {

// Bits, not values: a NaN equals itself and 0 is not -0.
inline bool SameBits(const std::vector<TokenEvent>& a,
                     const std::vector<TokenEvent>& b) {
  const auto same = [](const TokenEvent& x, const TokenEvent& y) {
    return x.id == y.id &&
           std::memcmp(&x.logprob, &y.logprob, sizeof(float)) == 0 &&
           x.top.size() == y.top.size() &&
           std::equal(x.top.begin(), x.top.end(), y.top.begin(),
                      [](const models::TokenLogprob& s,
                         const models::TokenLogprob& t) {
                        return std::memcmp(&s, &t, sizeof(s)) == 0;
                      });
  };
  return a.size() == b.size() &&
         std::equal(a.begin(), a.end(), b.begin(), same);
}

// Submits all tasks at once and compares their prompts and tokens with those of
// `expected`, which have ended. The prompt tokens that came out of a cache.
inline int32_t ExpectSameBits(Engine& engine,
                              const std::vector<GenerateTask>& tasks,
                              const std::vector<Reader>& expected) {
  std::vector<Reader> readers;
  for (const GenerateTask& task : tasks) {
    readers.emplace_back(MustSubmit(engine, task));
  }
  int32_t found = 0;
  for (size_t i = 0; i < tasks.size(); ++i) {
    EXPECT_EQ(readers[i].EndCode(), StatusCode::kOk) << "request " << i;
    if (readers[i].end) found += readers[i].end->cached_tokens;
    EXPECT_TRUE(SameBits(readers[i].tokens, expected[i].tokens))
        << "answer of request " << i;
    EXPECT_TRUE(SameBits(readers[i].prompt, expected[i].prompt))
        << "prompt of request " << i;
  }
  return found;
}

}  // namespace millrace::scheduler
