// Unicode normalisation form C: equal texts get equal characters, "e" and an
// acute accent become "é". Models whose tokenizer.json asks for it were trained
// on such text.
#pragma once

#include <string>
#include <string_view>

namespace millrace::models {

// The text must be valid UTF-8. Linear but for runs of marks, O(n log n) each.
// Thread-safe.
std::string ToNfc(std::string_view text);

// The canonical decomposition (form D): "é" becomes "e" and an acute accent,
// with the marks of a letter in canonical order. As above.
std::string ToNfd(std::string_view text);

// True when ToNfc would change nothing, seen from the text's bytes alone; false
// says nothing.
bool IsPlainlyNfc(std::string_view text);

}  // namespace millrace::models
