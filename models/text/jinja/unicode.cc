// Case and classes come from the C library's own C.UTF-8 tables, whatever
// locale the process runs in; without them only ASCII has case.
#include "models/text/jinja/unicode.h"

#include <locale.h>
#include <wctype.h>

#include <cstdint>

namespace millrace::models::jinja {
namespace {

// Made once, never changed; null when the C library has no such locale.
locale_t Utf8Locale() {
  static const locale_t locale = newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr);
  return locale;
}

template <typename Function>
bool Has(Function function, char32_t code) {
  const locale_t locale = Utf8Locale();
  if (locale == nullptr && code >= 0x80) return false;
  return locale == nullptr
             ? function(static_cast<wint_t>(code), LC_GLOBAL_LOCALE) != 0
             : function(static_cast<wint_t>(code), locale) != 0;
}

}  // namespace

char32_t NextCodePoint(std::string_view text, size_t& at) {
  const uint8_t lead = static_cast<uint8_t>(text[at++]);
  if (lead < 0x80) return lead;
  const int more = lead >= 0xF0 ? 3 : lead >= 0xE0 ? 2 : 1;
  char32_t code = lead & (0x3F >> more);
  for (int i = 0; i < more && at < text.size(); ++i) {
    code = code << 6 | (static_cast<uint8_t>(text[at++]) & 0x3F);
  }
  return code;
}

void AppendUtf8(std::string& out, char32_t code) {
  const auto put = [&](char32_t byte) {
    out.push_back(static_cast<char>(static_cast<uint8_t>(byte)));
  };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xC0 | code >> 6);
    put(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    put(0xE0 | code >> 12);
    put(0x80 | (code >> 6 & 0x3F));
    put(0x80 | (code & 0x3F));
  } else {
    put(0xF0 | code >> 18);
    put(0x80 | (code >> 12 & 0x3F));
    put(0x80 | (code >> 6 & 0x3F));
    put(0x80 | (code & 0x3F));
  }
}

size_t CountCodePoints(std::string_view text) {
  size_t out = 0;
  for (const char byte : text) out += (byte & 0xC0) != 0x80;
  return out;
}

std::vector<size_t> CodePointOffsets(std::string_view text) {
  std::vector<size_t> out;
  out.reserve(text.size() + 1);
  for (size_t i = 0; i < text.size(); ++i) {
    if ((text[i] & 0xC0) != 0x80) out.push_back(i);
  }
  out.push_back(text.size());
  return out;
}

bool IsSpace(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 ||
         c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) ||
         c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

bool IsLineBreak(char32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 ||
         c == 0x2028 || c == 0x2029;
}

bool IsPrintable(char32_t c) {
  if (c == ' ') return true;
  if (IsSpace(c) || c < 0x20 || (c >= 0x7F && c < 0xA0)) return false;
  const bool format =
      c == 0xAD || (c >= 0x600 && c <= 0x605) || c == 0x61C || c == 0x6DD ||
      c == 0x70F || c == 0x180E || (c >= 0x200B && c <= 0x200F) ||
      (c >= 0x202A && c <= 0x202E) || (c >= 0x2060 && c <= 0x206F) ||
      c == 0xFEFF || (c >= 0xFFF9 && c <= 0xFFFB) ||
      (c >= 0xE0000 && c <= 0xE007F);
  const bool private_use = (c >= 0xE000 && c <= 0xF8FF) || c >= 0xF0000;
  return !format && !private_use && (c < 0x80 || Has(iswprint_l, c));
}

bool IsUpper(char32_t code) { return Has(iswupper_l, code); }
bool IsLower(char32_t code) { return code == 0xDF || Has(iswlower_l, code); }
bool IsAlpha(char32_t code) { return Has(iswalpha_l, code) && !IsDigit(code); }

// Decimal digits of the scripts in use; each script has ten in a row.
bool IsDigit(char32_t code) {
  static constexpr char32_t kZeros[] = {
      0x30,   0x660,  0x6F0,  0x7C0,  0x966,  0x9E6,  0xA66,  0xAE6,
      0xB66,  0xBE6,  0xC66,  0xCE6,  0xD66,  0xDE6,  0xE50,  0xED0,
      0xF20,  0x1040, 0x1090, 0x17E0, 0x1810, 0x1946, 0x19D0, 0x1A80,
      0x1A90, 0x1B50, 0x1BB0, 0x1C40, 0x1C50, 0xA620, 0xA8D0, 0xA900,
      0xA9D0, 0xA9F0, 0xAA50, 0xABF0, 0xFF10};
  for (const char32_t zero : kZeros) {
    if (code >= zero && code < zero + 10) return true;
  }
  return code >= 0x1D7CE && code <= 0x1D7FF;
}

char32_t ToLower(char32_t code) {
  if (code < 0x80) return code >= 'A' && code <= 'Z' ? code + 32 : code;
  const locale_t locale = Utf8Locale();
  if (locale == nullptr) return code;
  return static_cast<char32_t>(towlower_l(static_cast<wint_t>(code), locale));
}

void AppendUpper(std::string& out, char32_t code) {
  if (code < 0x80) {
    out.push_back(
        static_cast<char>(code >= 'a' && code <= 'z' ? code - 32 : code));
    return;
  }
  if (code == 0xDF) {
    out += "SS";
    return;
  }
  if (code >= 0xFB00 && code <= 0xFB06) {  // the Latin ligatures
    static constexpr const char* kUpper[] = {"FF",  "FI", "FL", "FFI",
                                             "FFL", "ST", "ST"};
    out += kUpper[code - 0xFB00];
    return;
  }
  const locale_t locale = Utf8Locale();
  AppendUtf8(out, locale == nullptr ? code
                                    : static_cast<char32_t>(towupper_l(
                                          static_cast<wint_t>(code), locale)));
}

}  // namespace millrace::models::jinja
