// One walk: strings, comments and names of tokens are skipped.
#include "models/grammar/lark.h"

#include <algorithm>
#include <string>

#include "models/grammar/pattern.h"

namespace millrace::models {
namespace {

// Behind the sign that closes what is opened at `begin`, or the text's end.
size_t Behind(std::string_view text, size_t begin, char close) {
  for (size_t i = begin + 1; i < text.size(); ++i) {
    if (text[i] == '\\') {
      ++i;
    } else if (text[i] == close) {
      return i + 1;
    }
  }
  return text.size();
}

// JSON follows, with patterns among its strings.
bool IsBeforeJson(std::string_view rest) {
  return rest.starts_with("%json") || rest.starts_with("%regex") ||
         rest.starts_with("%grammar_options");
}

}  // namespace

Status CheckLark(std::string_view lark) {
  for (size_t i = 0; i < lark.size();) {
    const std::string_view rest = lark.substr(i);
    if (rest.starts_with('#') || rest.starts_with("//")) {
      i += std::min(rest.find_first_of("\r\n"), rest.size());
    } else if (rest.starts_with('"')) {
      i = Behind(lark, i, '"');
    } else if (rest.starts_with('/')) {
      const size_t end = Behind(lark, i, '/');
      RETURN_IF_ERROR(CheckRegexRepeats(lark.substr(i + 1, end - i - 2)));
      i = end;
    } else if (rest.starts_with('<')) {
      i += std::min(rest.find('>'), rest.size());
    } else if (IsBeforeJson(rest)) {
      return CheckRepeats(rest);
    } else if ((rest.starts_with('~') || rest.starts_with('{')) &&
               IsGreatCount(rest)) {
      return InvalidArgument(
          "the grammar at byte " + std::to_string(i) + " has a count above " +
          std::to_string(kMaxRepeats) + ", which is not supported");
    } else {
      ++i;
    }
  }
  return OkStatus();
}

}  // namespace millrace::models
