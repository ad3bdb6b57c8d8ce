// Server-sent events out of a byte stream (WHATWG HTML, section 9.2): only
// their data, which is all that the OpenAI API uses.
//
//   for (const std::string& data : reader.Feed(bytes)) ...
//
// Not thread-safe.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace millrace::server {

class SseReader {
 public:
  // Data of each event that these bytes complete.
  std::vector<std::string> Feed(std::string_view bytes);

 private:
  void EndLine(std::vector<std::string>& events);

  std::string line_;
  std::string data_;
  bool has_data_ = false;
  bool after_cr_ = false;  // a line feed now belongs to the line before
};

}  // namespace millrace::server
