#include "handlers/parsers/output_parser.h"

#include <utility>

namespace millrace::handlers {

OutputDelta& ParsedOutput::Last(DeltaKind kind) {
  if (deltas_.empty() || deltas_.back().kind != kind) {
    deltas_.emplace_back().kind = kind;
    if (kind == DeltaKind::kToolCall) deltas_.back().call_idx = num_calls_ - 1;
  }
  return deltas_.back();
}

void ParsedOutput::Content(std::string_view text) {
  const size_t end = text.find_last_not_of(" \n\t\r");
  if (end == std::string_view::npos) {
    space_ += text;
    return;
  }
  std::string& content = Last(DeltaKind::kContent).text;
  content += std::exchange(space_, {});
  content += text.substr(0, end + 1);
  space_ = text.substr(end + 1);
}

void ParsedOutput::Reasoning(std::string_view text) {
  if (!text.empty()) Last(DeltaKind::kReasoning).text += text;
}

void ParsedOutput::BeginCall(std::string_view name, std::string_view id) {
  space_.clear();
  if (++num_calls_ > most_calls_) return;
  OutputDelta& delta = deltas_.emplace_back();
  delta.kind = DeltaKind::kToolCall;
  delta.call_idx = num_calls_ - 1;
  delta.call_name = name;
  delta.call_id = id;
}

void ParsedOutput::Arguments(std::string_view text) {
  if (num_calls_ > most_calls_ || text.empty()) return;
  Last(DeltaKind::kToolCall).text += text;
}

void ParsedOutput::Finish() {
  if (num_calls_ == 0 && !space_.empty()) {
    Last(DeltaKind::kContent).text += space_;
  }
  space_.clear();
}

std::vector<OutputDelta> ParsedOutput::Take() {
  return std::exchange(deltas_, {});
}

}  // namespace millrace::handlers
