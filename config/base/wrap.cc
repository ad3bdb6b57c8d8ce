#include "config/base/wrap.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>

namespace millrace {
namespace {

constexpr size_t kDefaultColumns = 80;
constexpr size_t kFewestColumns = 40;
constexpr size_t kMostColumns = 120;

// One paragraph without line breaks.
void AppendParagraph(std::string_view words, size_t indent, size_t width,
                     std::string& out) {
  size_t column = 0;
  while (!words.empty()) {
    const size_t begin = words.find_first_not_of(' ');
    if (begin == words.npos) break;
    words.remove_prefix(begin);
    const std::string_view word = words.substr(0, words.find(' '));
    words.remove_prefix(word.size());
    const size_t columns = TextColumns(word);
    if (column > 0 && column + 1 + columns > width) {
      out += '\n';
      column = 0;
    }
    if (column == 0) {
      out.append(indent, ' ');
      column = indent;
    } else {
      out += ' ';
      ++column;
    }
    out += word;
    column += columns;
  }
  if (column > 0) out += '\n';
}

}  // namespace

size_t TextColumns(std::string_view text) {
  return static_cast<size_t>(std::count_if(
      text.begin(), text.end(),
      [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

std::string WrapText(std::string_view text, size_t indent, size_t width) {
  std::string out, paragraph;
  const auto end_paragraph = [&] {
    AppendParagraph(paragraph, indent, width, out);
    paragraph.clear();
  };
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.empty() || line.front() == ' ') {
      end_paragraph();
      if (!line.empty()) out.append(indent, ' ').append(line);
      out += '\n';
    } else {
      paragraph.append(paragraph.empty() ? "" : " ").append(line);
    }
  }
  end_paragraph();
  return out;
}

std::string HelpEntry(std::string_view left, std::string_view text,
                      size_t column, size_t width) {
  std::string out(left);
  const std::string right = WrapText(text, column, width);
  const size_t used = TextColumns(left);
  if (used + 2 > column || right.empty()) return out + "\n" + right;
  return out + std::string(column - used, ' ') + right.substr(column);
}

size_t HelpWidth() {
  winsize size{};
  if (::isatty(STDOUT_FILENO) == 0 ||
      ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) {
    return kDefaultColumns;
  }
  return std::clamp<size_t>(size.ws_col, kFewestColumns, kMostColumns);
}

}  // namespace millrace
