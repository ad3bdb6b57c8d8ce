// Server-sent events, cut from bytes that arrive in any pieces (WHATWG HTML,
// section 9.2). Only the data field is kept: the protocols here use no other.
//
//   SseParser parser;
//   parser.Add(bytes, [](std::string_view data) { ... });
//
// Lines end with LF or CR LF; several data lines of one event are joined by LF.
#pragma once

#include <string>
#include <string_view>

namespace millrace::loadtest {

class SseParser {
 public:
  void Reset() {
    line_.clear();
    data_.clear();
    has_data_ = false;
  }

  template <typename OnEvent>
  void Add(std::string_view bytes, OnEvent on_event) {
    while (!bytes.empty()) {
      const size_t end = bytes.find('\n');
      if (end == bytes.npos) {
        line_ += bytes;
        return;
      }
      if (line_.empty()) {
        OnLine(bytes.substr(0, end), on_event);
      } else {
        line_ += bytes.substr(0, end);
        OnLine(line_, on_event);
        line_.clear();
      }
      bytes.remove_prefix(end + 1);
    }
  }

  // Bytes of an event that has not ended.
  bool pending() const { return has_data_ || !line_.empty(); }

 private:
  template <typename OnEvent>
  void OnLine(std::string_view line, OnEvent on_event) {
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) {
      if (has_data_) on_event(std::string_view(data_));
      data_.clear();
      has_data_ = false;
      return;
    }
    if (!line.starts_with("data:")) return;
    line.remove_prefix(5);
    if (line.starts_with(' ')) line.remove_prefix(1);
    if (has_data_) data_ += '\n';
    data_ += line;
    has_data_ = true;
  }

  std::string line_;  // of an unfinished line
  std::string data_;  // of an unfinished event
  bool has_data_ = false;
};

}  // namespace millrace::loadtest
