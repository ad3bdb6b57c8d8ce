#include "server/cli/clean_text.h"

#include "config/base/utf8.h"

namespace millrace::server {
namespace {

// Bytes of the control character that the text begins with; 0: another one.
size_t ControlBytes(std::string_view text) {
  const auto first = static_cast<unsigned char>(text[0]);
  if (first < 0x20 || first == 0x7F) return 1;
  const bool c1 = first == 0xC2 && text.size() > 1 &&
                  static_cast<unsigned char>(text[1]) >= 0x80 &&
                  static_cast<unsigned char>(text[1]) < 0xA0;
  return c1 ? 2 : 0;
}

}  // namespace

std::string Clean(std::string_view bytes, size_t most, bool keep_lines) {
  const bool cut = bytes.size() > most;
  std::string_view kept = bytes.substr(0, most);
  if (cut) kept.remove_suffix(IncompleteUtf8Suffix(kept));
  const std::string valid = ReplaceInvalidUtf8(kept);
  std::string text;
  for (size_t i = 0; i < valid.size();) {
    const size_t control = ControlBytes(std::string_view(valid).substr(i));
    const bool space = control > 0 && !(keep_lines && valid[i] == '\n');
    text += space ? ' ' : valid[i];
    i += control > 0 ? control : 1;
  }
  return cut ? text + "…" : text;
}

std::string Printable(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const size_t control = ControlBytes(text.substr(i));
    if (control == 0 || text[i] == '\n' || text[i] == '\t') out += text[i];
    i += control > 0 ? control : 1;
  }
  return out;
}

}  // namespace millrace::server
