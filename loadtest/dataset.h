// Conversations to send, of one or more turns each, from a JSONL file or
// made up (loadtest/synthetic.h). One line of the file is one JSON object:
//
//   {"prompt": "..."}                      also "text", "text_input", "input"
//   {"turns": ["...", {"text": "...", "delay": 500}], "system": "..."}
//   {"messages": [{"role": "user", "content": "..."}]}    sent as it stands
//   {"timestamp": 1250, "input_length": 800, "output_length": 120}   a trace
//
// A line or a turn of text may carry "image": "cat.jpg", or "images" with a
// list: paths beside the file, or addresses.
// Any line may carry "output_length" (also "max_tokens"), in tokens, and
// "timestamp", in milliseconds from the start of a trace. A line with
// "input_length" and no text gets a synthetic prompt of that length.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/base/status.h"

namespace millrace::loadtest {

struct Turn {
  std::string text;
  std::vector<std::string> images = {};  // paths or addresses
  int64_t output_tokens = -1;            // -1: not asked for
  std::chrono::nanoseconds delay{0};     // pause before this turn
};

struct Conversation {
  std::string system;
  std::vector<Turn> turns;
  std::string messages;  // JSON array, sent instead of turns; one turn stands
  int64_t input_length = -1;  // of a synthetic prompt; -1: there is text
  std::optional<std::chrono::nanoseconds> due;
};

using Dataset = std::vector<Conversation>;

// INVALID_ARGUMENT names the line.
StatusOr<Dataset> ParseJsonl(std::string_view text);
StatusOr<Dataset> LoadJsonl(const std::string& path);

// When the conversations of a trace are due, `speed` times faster than they
// were recorded, from 0 on. INVALID_ARGUMENT where a line has no timestamp,
// they do not rise, or all of them take more than a year.
StatusOr<std::vector<std::chrono::nanoseconds>> TraceOf(const Dataset& dataset,
                                                        double speed);

StatusOr<std::string> ReadFile(const std::string& path);

}  // namespace millrace::loadtest
