// The part of the Unicode Character Database that normalisation form C needs,
// as text, numbers in hexadecimal but for classes. One space or line end stands
// behind each entry.
#pragma once

#include <string_view>

namespace millrace::models {

// "C0=41+300" a character and what it is made of, one or two others; with '>'
// instead of '=' those never become it again. Ascending; not Hangul.
std::string_view NfcDecompositions();
// "300-314:230" a range and its canonical combining class, not 0. Ascending.
std::string_view NfcClasses();

}  // namespace millrace::models
