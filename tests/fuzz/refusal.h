// What every fuzzer of request bodies requires of a refusal.
#pragma once

#include <cstdio>
#include <cstdlib>

#include "config/base/status.h"
#include "config/base/utf8.h"

namespace millrace {

// Aborts with the reason, which the fuzzer reports with its input.
inline void Require(bool condition, const char* why) {
  if (condition) return;
  std::fprintf(stderr, "%s\n", why);
  std::abort();
}

// INVALID_ARGUMENT, with a message in UTF-8.
inline void CheckRefusal(const Status& status) {
  Require(status.code() == StatusCode::kInvalidArgument,
          "a bad request is INVALID_ARGUMENT");
  Require(!status.message().empty(), "a refusal says why");
  Require(IsValidUtf8(status.message()), "and says it in UTF-8");
}

}  // namespace millrace
