// Names of outcomes, as reports and tests know them.
#include "loadtest/record.h"

namespace millrace::loadtest {

std::string_view OutcomeName(Outcome outcome) {
  switch (outcome) {
    case Outcome::kOk:
      return "ok";
    case Outcome::kConnect:
      return "connect";
    case Outcome::kConnectionLost:
      return "connection_lost";
    case Outcome::kTimeout:
      return "timeout";
    case Outcome::kHttpStatus:
      return "http_status";
    case Outcome::kRateLimited:
      return "rate_limited";
    case Outcome::kProtocol:
      return "protocol";
    case Outcome::kTruncatedStream:
      return "truncated_stream";
    case Outcome::kWrongJson:
      return "wrong_json";
    case Outcome::kStreamError:
      return "stream_error";
    case Outcome::kUnfinished:
      return "unfinished";
  }
  return "";
}

}  // namespace millrace::loadtest
