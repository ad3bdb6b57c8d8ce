// Python's str methods over text that carries marks: what comes out of a
// character keeps that character's mark.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "models/text/jinja/text.h"

namespace millrace::models::jinja {

// Byte offset of the part at or after `from`, npos if none. Linear.
size_t FindBytes(std::string_view text, std::string_view part, size_t from);

Text Upper(const Text& text);
Text Lower(const Text& text);
Text SwapCase(const Text& text);
Text Capitalize(const Text& text);
// str.title: every run of letters begins with a capital.
Text Title(const Text& text);
// The title filter: words after spaces, dashes and opening brackets do.
Text TitleWords(const Text& text);

enum class Side { kLeft, kRight, kBoth };
// Without chars: spaces.
Text Strip(const Text& text, std::optional<std::string_view> chars, Side side);
// At most `count` times unless it is negative.
Text Replace(const Text& text, std::string_view from, const Text& to,
             int64_t count);
// Without separator: at runs of spaces, which leave no empty parts.
std::vector<Text> Split(const Text& text,
                        std::optional<std::string_view> separator,
                        int64_t max_splits, bool from_right);
std::vector<Text> SplitLines(const Text& text, bool keep_ends);
// Fill on the left and right up to a width in characters.
Text Pad(const Text& text, int64_t width, std::string_view fill, Side side);
// & < > ' " as HTML writes them.
Text EscapeHtml(const Text& text);
Text Indent(const Text& text, const Text& indention, bool first, bool blank);

}  // namespace millrace::models::jinja
