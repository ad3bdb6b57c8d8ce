// A batch: the object that clients get, and what the folder keeps beside it.
// Source: OpenAI's API reference, "Batch" and "The batch object".
//
//   validating ─► in_progress ─► finalizing ─► completed | expired
//        └─► failed      └─► cancelling ─► cancelled
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/base/status.h"

namespace millrace::server {

struct BatchError {
  std::string code;
  std::string message;
  std::string param = {};  // empty: none
  int64_t line = 0;        // from 1; 0: none
};

struct BatchUsage {
  int64_t input_tokens = 0;
  int64_t cached_tokens = 0;  // of the input
  int64_t output_tokens = 0;
  int64_t reasoning_tokens = 0;  // of the output
};

struct Batch {
  std::string id = {};  // "batch_…"
  std::string tenant = {};
  std::string endpoint = {};  // "/v1/chat/completions"
  std::string model = {};     // of its lines, once known
  std::string input_file_id = {};
  std::string completion_window = "24h";
  std::string metadata = "null";  // JSON
  std::string status = "validating";
  int64_t created_at = 0;  // unix seconds
  int64_t expires_at = 0;
  std::map<std::string, int64_t> times = {};  // "completed_at" and others
  std::vector<BatchError> errors = {};
  int64_t total = 0;  // requests
  int64_t completed = 0;
  int64_t failed = 0;
  BatchUsage usage = {};
  bool has_output = false;  // output_id is a file now
  bool has_errors = false;

  // Not shown to clients.
  std::string output_id = {};  // reserved at once, so that a second try of the
  std::string error_id = {};   // end makes no second file
  std::optional<int64_t> output_expires_after = {};  // seconds
  std::string ending = {};  // the status it is going to have
  bool recorded = false;    // nothing will be appended to its results any more
  int64_t number = 0;       // the order in which they were made

  // Nothing will change any more.
  bool ended() const;
  // Sets the status and its time.
  void Become(std::string_view new_status, int64_t now);
};

// The object that clients see.
std::string BatchJson(const Batch& batch);

// What the folder keeps.
std::string BatchStateText(const Batch& batch);
StatusOr<Batch> ReadBatchState(const std::string& text);

}  // namespace millrace::server
