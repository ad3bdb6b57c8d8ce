// Text of --help in lines that fit a terminal.
//
//   WrapText("some words", 4, 80)   lines of at most 80 columns, each behind
//                                   4 spaces, each with its line break
//
// Pure; thread-safe.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace millrace {

// Code points of UTF-8, each taken for one column.
size_t TextColumns(std::string_view text);

// Breaks between words; a word that is too long stands in a line of its own. A
// single line break counts as a space; an empty line, and a line that begins
// with spaces, stay as they are.
std::string WrapText(std::string_view text, size_t indent, size_t width);

// `left`, then `text` wrapped in a column that begins at `column`; on the next
// line where `left` does not fit before it.
std::string HelpEntry(std::string_view left, std::string_view text,
                      size_t column, size_t width);

// Columns of the terminal that standard output is, at most 120; else 80.
size_t HelpWidth();

}  // namespace millrace
