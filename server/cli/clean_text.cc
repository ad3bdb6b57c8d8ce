#include "server/cli/clean_text.h"

#include "config/base/utf8.h"

namespace millrace::server {

std::string Clean(std::string_view bytes, size_t most, bool keep_lines) {
  const bool cut = bytes.size() > most;
  std::string_view kept = bytes.substr(0, most);
  if (cut) kept.remove_suffix(IncompleteUtf8Suffix(kept));
  std::string text = ReplaceInvalidUtf8(kept);
  for (char& c : text) {
    if (keep_lines && c == '\n') continue;
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
  }
  return cut ? text + "…" : text;
}

}  // namespace millrace::server
