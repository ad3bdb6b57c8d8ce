// String operations. Case mapping and escapes work run by run, as a mark never
// changes within a character; everything else copies slices.
#include "models/text/jinja/text_ops.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "models/text/jinja/unicode.h"

namespace millrace::models::jinja {
namespace {

void AppendLower(std::string& out, char32_t code) {
  if (code == 0x130) {  // İ
    out += "i\u0307";
  } else {
    AppendUtf8(out, ToLower(code));
  }
}

// Calls fn(code point, std::string& out) for each character.
template <typename Fn>
Text MapCharacters(const Text& text, Fn fn) {
  Text out;
  text.ForEachRun([&](std::string_view run, bool from_user) {
    std::string mapped;
    mapped.reserve(run.size());
    for (size_t at = 0; at < run.size();) fn(NextCodePoint(run, at), mapped);
    out.Append(mapped, from_user);
  });
  return out;
}

// Offset of the character that ends before `end`.
size_t PreviousCharacter(std::string_view text, size_t end) {
  size_t at = end - 1;
  while (at > 0 && (text[at] & 0xC0) == 0x80) --at;
  return at;
}

}  // namespace

size_t FindBytes(std::string_view text, std::string_view part, size_t from) {
  if (from > text.size()) return std::string_view::npos;
  if (part.empty()) return from;
  const void* found =
      memmem(text.data() + from, text.size() - from, part.data(), part.size());
  if (found == nullptr) return std::string_view::npos;
  return static_cast<size_t>(static_cast<const char*>(found) - text.data());
}

Text Upper(const Text& text) {
  return MapCharacters(
      text, [](char32_t code, std::string& out) { AppendUpper(out, code); });
}

Text Lower(const Text& text) {
  return MapCharacters(
      text, [](char32_t code, std::string& out) { AppendLower(out, code); });
}

Text SwapCase(const Text& text) {
  return MapCharacters(text, [](char32_t code, std::string& out) {
    if (IsUpper(code)) {
      AppendLower(out, code);
    } else {
      AppendUpper(out, code);
    }
  });
}

Text Capitalize(const Text& text) {
  bool first = true;
  return MapCharacters(text, [&first](char32_t code, std::string& out) {
    if (first) {
      AppendUpper(out, code);
    } else {
      AppendLower(out, code);
    }
    first = false;
  });
}

Text Title(const Text& text) {
  bool in_word = false;
  return MapCharacters(text, [&in_word](char32_t code, std::string& out) {
    if (in_word) {
      AppendLower(out, code);
    } else {
      AppendUpper(out, code);
    }
    in_word = IsUpper(code) || IsLower(code);
  });
}

Text TitleWords(const Text& text) {
  bool begins = true;
  return MapCharacters(text, [&begins](char32_t code, std::string& out) {
    if (begins) {
      AppendUpper(out, code);
    } else {
      AppendLower(out, code);
    }
    begins = IsSpace(code) || code == '-' || code == '(' || code == '{' ||
             code == '[' || code == '<';
  });
}

Text Strip(const Text& text, std::optional<std::string_view> chars, Side side) {
  const std::string_view bytes = text.bytes();
  std::u32string set;
  for (size_t at = 0; chars && at < chars->size();) {
    set.push_back(NextCodePoint(*chars, at));
  }
  const auto strips = [&](char32_t code) {
    return chars ? set.find(code) != std::u32string::npos : IsSpace(code);
  };
  size_t begin = 0, end = bytes.size();
  while (side != Side::kRight && begin < end) {
    size_t next = begin;
    if (!strips(NextCodePoint(bytes, next))) break;
    begin = next;
  }
  while (side != Side::kLeft && end > begin) {
    const size_t last = PreviousCharacter(bytes, end);
    size_t at = last;
    if (!strips(NextCodePoint(bytes, at))) break;
    end = last;
  }
  return text.Slice(begin, end);
}

Text Replace(const Text& text, std::string_view from, const Text& to,
             int64_t count) {
  Text out;
  const std::string_view bytes = text.bytes();
  size_t at = 0;
  if (from.empty()) {  // between all characters
    const auto offsets = CodePointOffsets(bytes);
    for (size_t i = 0; i < offsets.size() && count != 0; ++i, --count) {
      out.Append(text, at, offsets[i]);
      out.Append(to);
      at = offsets[i];
    }
  } else {
    for (; count != 0; --count) {
      const size_t found = FindBytes(bytes, from, at);
      if (found == std::string_view::npos) break;
      out.Append(text, at, found);
      out.Append(to);
      at = found + from.size();
    }
  }
  out.Append(text, at, text.size());
  return out;
}

namespace {

std::vector<Text> SplitAtSpaces(const Text& text, int64_t max_splits,
                                bool from_right) {
  const std::string_view bytes = text.bytes();
  // The words' bounds, then those beyond the last split are joined again.
  std::vector<std::pair<size_t, size_t>> words;
  for (size_t at = 0; at < bytes.size();) {
    const size_t begin = at;
    if (IsSpace(NextCodePoint(bytes, at))) continue;
    size_t end = at;
    while (at < bytes.size()) {
      end = at;
      if (IsSpace(NextCodePoint(bytes, at))) break;
      end = at;
    }
    words.emplace_back(begin, end);
  }
  std::vector<Text> out;
  const size_t keep =
      max_splits < 0 ? words.size()
                     : std::min(words.size(), static_cast<size_t>(max_splits));
  if (from_right) {
    if (keep < words.size()) {
      const size_t end = words[words.size() - keep - 1].second;
      // The rest keeps its inner and its leading spaces.
      out.push_back(text.Slice(0, end));
    }
    for (size_t i = words.size() - keep; i < words.size(); ++i) {
      out.push_back(text.Slice(words[i].first, words[i].second));
    }
    return out;
  }
  for (size_t i = 0; i < keep; ++i) {
    out.push_back(text.Slice(words[i].first, words[i].second));
  }
  if (keep < words.size()) {
    out.push_back(text.Slice(words[keep].first, text.size()));
  }
  return out;
}

}  // namespace

std::vector<Text> Split(const Text& text,
                        std::optional<std::string_view> separator,
                        int64_t max_splits, bool from_right) {
  if (!separator) return SplitAtSpaces(text, max_splits, from_right);
  const std::string_view bytes = text.bytes();
  std::vector<Text> out;
  if (from_right) {
    size_t end = bytes.size();
    for (; max_splits != 0; --max_splits) {
      if (end < separator->size()) break;
      const size_t found = bytes.rfind(*separator, end - separator->size());
      if (found == std::string_view::npos) break;
      out.push_back(text.Slice(found + separator->size(), end));
      end = found;
    }
    out.push_back(text.Slice(0, end));
    std::reverse(out.begin(), out.end());
    return out;
  }
  size_t begin = 0;
  for (; max_splits != 0; --max_splits) {
    const size_t found = FindBytes(bytes, *separator, begin);
    if (found == std::string_view::npos) break;
    out.push_back(text.Slice(begin, found));
    begin = found + separator->size();
  }
  out.push_back(text.Slice(begin, text.size()));
  return out;
}

std::vector<Text> SplitLines(const Text& text, bool keep_ends) {
  const std::string_view bytes = text.bytes();
  std::vector<Text> out;
  size_t begin = 0;
  for (size_t at = 0; at < bytes.size();) {
    const size_t end = at;
    const char32_t code = NextCodePoint(bytes, at);
    if (!IsLineBreak(code)) continue;
    if (code == '\r' && at < bytes.size() && bytes[at] == '\n') ++at;
    out.push_back(text.Slice(begin, keep_ends ? at : end));
    begin = at;
  }
  if (begin < bytes.size()) out.push_back(text.Slice(begin, bytes.size()));
  return out;
}

Text Pad(const Text& text, int64_t width, std::string_view fill, Side side) {
  const int64_t size = static_cast<int64_t>(CountCodePoints(text.bytes()));
  const int64_t missing = std::max<int64_t>(width - size, 0);
  // Which side gets the odd one follows CPython's str.center.
  const int64_t left = side == Side::kRight ? 0
                       : side == Side::kLeft
                           ? missing
                           : missing / 2 + (missing & width & 1);
  Text out;
  for (int64_t i = 0; i < left; ++i) out.Append(fill, false);
  out.Append(text);
  for (int64_t i = left; i < missing; ++i) out.Append(fill, false);
  return out;
}

Text EscapeHtml(const Text& text) {
  return MapCharacters(text, [](char32_t code, std::string& out) {
    switch (code) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '\'':
        out += "&#39;";
        break;
      case '"':
        out += "&#34;";
        break;
      default:
        AppendUtf8(out, code);
    }
  });
}

Text Indent(const Text& text, const Text& indention, bool first, bool blank) {
  // Jinja adds a newline first, so that a last empty line stays a line.
  Text with_end = text;
  with_end.Append("\n", false);
  Text out;
  if (first) out.Append(indention);
  bool is_first = true;
  for (const Text& line : SplitLines(with_end, false)) {
    if (!is_first) {
      out.Append("\n", false);
      if (blank || !line.empty()) out.Append(indention);
    }
    out.Append(line);
    is_first = false;
  }
  return out;
}

}  // namespace millrace::models::jinja
