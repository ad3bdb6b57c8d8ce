// Reads the body of a 2xx reply while it arrives, notes when output came, and
// judges at the end whether the reply holds what the endpoint owes. A body that
// is cut short or wrong makes the request a failure of that kind.
//
//   reader->Begin(json_bytes);
//   reader->Add(bytes, now, record);   // any number of times
//   reader->End(record);               // or Cut(record), when the bytes stop
//
// One reader serves one connection, request after request. Not thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "loadtest/endpoint.h"
#include "loadtest/record.h"

namespace millrace::loadtest {

class BodyReader {
 public:
  virtual ~BodyReader() = default;

  // json_bytes: Inference-Header-Content-Length of the reply, -1 if absent.
  virtual void Begin(int64_t json_bytes) = 0;
  virtual void Add(std::string_view bytes, Time now, RequestRecord& record) = 0;
  virtual void End(RequestRecord& record) = 0;
  // The connection closed before the body was complete.
  virtual void Cut(RequestRecord& record);
  // The text of the reply, for the next turn of a conversation.
  virtual std::string_view text() const { return {}; }
};

std::unique_ptr<BodyReader> MakeBodyReader(EndpointType type, bool streaming);

}  // namespace millrace::loadtest
