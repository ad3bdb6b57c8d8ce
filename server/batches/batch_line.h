// One line of a batch's input, and its line in the results. Pure functions.
// Source: OpenAI's API reference, "The request input object" and "The request
// output object".
//
//   {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions",
//    "body": {"model": "m", "messages": [...]}}
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "config/base/status.h"
#include "server/batches/batch.h"

namespace millrace::server {

struct BatchLine {
  std::string custom_id;
  std::string model;  // empty: the body names none
  std::string body;   // JSON object
};

// What the endpoint answered.
struct LineAnswer {
  int status = 0;  // of HTTP
  std::string request_id = {};
  std::string body = {};  // JSON
  int64_t retry_after_ms = 0;
};

// A failure has the code of OpenAI as its reason and its field as field().
StatusOr<BatchLine> ReadBatchLine(std::string_view text,
                                  std::string_view endpoint);

// The lines of `text`, each with its number from 1, until the function fails.
// Empty lines are counted and left out.
Status ForEachLine(
    std::string_view text,
    const std::function<Status(std::string_view line, int64_t number)>& each);

// With its newline.
std::string AnswerLine(std::string_view custom_id, const LineAnswer& answer);
// Of a request that was never answered ("batch_expired").
std::string UnansweredLine(std::string_view custom_id, std::string_view code,
                           std::string_view message);

// A line of the results as it is read back.
struct RecordedLine {
  std::string custom_id;
  BatchUsage usage;
};
StatusOr<RecordedLine> ReadRecordedLine(std::string_view line);

}  // namespace millrace::server
