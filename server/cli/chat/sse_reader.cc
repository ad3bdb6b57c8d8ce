// A line may end with CR, LF or both, and the two halves of CR LF may come in
// different pieces.
#include "server/cli/chat/sse_reader.h"

#include <utility>

namespace millrace::server {

std::vector<std::string> SseReader::Feed(std::string_view bytes) {
  std::vector<std::string> events;
  for (const char byte : bytes) {
    const bool rest_of_crlf = after_cr_ && byte == '\n';
    after_cr_ = byte == '\r';
    if (rest_of_crlf) continue;
    if (byte == '\r' || byte == '\n') {
      EndLine(events);
    } else {
      line_ += byte;
    }
  }
  return events;
}

void SseReader::EndLine(std::vector<std::string>& events) {
  const std::string line = std::exchange(line_, {});
  if (line.empty()) {
    if (std::exchange(has_data_, false)) {
      events.push_back(std::exchange(data_, {}));
    }
    return;
  }
  std::string_view rest = line;
  if (!rest.starts_with("data")) return;
  rest.remove_prefix(4);
  if (!rest.empty()) {
    if (rest[0] != ':') return;
    rest.remove_prefix(1);
    if (rest.starts_with(' ')) rest.remove_prefix(1);
  }
  if (has_data_) data_ += '\n';
  has_data_ = true;
  data_ += rest;
}

}  // namespace millrace::server
