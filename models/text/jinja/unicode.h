// What Python's str knows of characters, over UTF-8 that is known to be valid.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace millrace::models::jinja {

// The character at a byte offset; its bytes are added to `at`.
char32_t NextCodePoint(std::string_view text, size_t& at);
void AppendUtf8(std::string& out, char32_t code);
size_t CountCodePoints(std::string_view text);
// Byte offset of each character, and the end.
std::vector<size_t> CodePointOffsets(std::string_view text);

bool IsSpace(char32_t code);      // str.isspace
bool IsLineBreak(char32_t code);  // where str.splitlines cuts
bool IsPrintable(char32_t code);  // shown as it is by repr
bool IsUpper(char32_t code);
bool IsLower(char32_t code);
bool IsAlpha(char32_t code);
bool IsDigit(char32_t code);
char32_t ToLower(char32_t code);
// Upper case of one character may be several ("ß" is "SS").
void AppendUpper(std::string& out, char32_t code);

}  // namespace millrace::models::jinja
