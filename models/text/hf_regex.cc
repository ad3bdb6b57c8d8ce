// A walk over the pattern, one construct at a time. What differs: PCRE2's \s
// takes U+180E, its \w leaves out marks, its \p{Han} means script extensions,
// \v and \h mean other things, and "{1,3}+" is possessive only there.
#include "models/text/hf_regex.h"

#include <array>
#include <cstdint>

#include "config/base/utf8.h"

namespace millrace::models {
namespace {

constexpr std::string_view kWord = "\\p{L}\\p{M}\\p{N}\\p{Pc}";
// Escapes that mean the same in both.
constexpr std::string_view kSameEscapes = "dDnrtfaebBAzZ0";

constexpr std::array<std::string_view, 7> kBinaryProperties = {
    "White_Space", "Alphabetic",  "Uppercase", "Lowercase",
    "Emoji",       "Ideographic", "Any"};

struct LongName {
  std::string_view name;
  std::string_view category;
};
constexpr LongName kCategories[] = {
    {"Letter", "L"}, {"Mark", "M"},      {"Number", "N"}, {"Punctuation", "P"},
    {"Punct", "P"},  {"Separator", "Z"}, {"Symbol", "S"}, {"Other", "C"},
};

bool IsLetter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

class Translator {
 public:
  explicit Translator(std::string_view pattern) : in_(pattern) {}

  StatusOr<std::string> Run() {
    while (at_ < in_.size()) {
      const char c = in_[at_];
      if (c == '\\') {
        RETURN_IF_ERROR(Escape());
      } else if (class_began_ != kOutside) {
        RETURN_IF_ERROR(InClass(c));
      } else if (c == '[') {
        Copy(1);
        if (Next(0) == '^') Copy(1);
        class_began_ = at_;
      } else if (c == '(' && Next(1) == '?') {
        RETURN_IF_ERROR(Group());
      } else if (c == '}' && Next(1) == '+') {
        return Refused("{…}+");
      } else {
        Copy(1);
      }
    }
    return std::move(out_);
  }

 private:
  static constexpr size_t kOutside = SIZE_MAX;

  char Next(size_t ahead) const {
    return at_ + ahead < in_.size() ? in_[at_ + ahead] : '\0';
  }
  void Copy(size_t n) {
    out_ += in_.substr(at_, n);
    at_ += n;
  }
  Status Refused(std::string_view construct) const {
    return Unimplemented("the pre-tokeniser's expression '" +
                         Shortened(in_, 300) + "' has '" +
                         std::string(construct) + "' at offset " +
                         std::to_string(at_) + ", which is not supported");
  }

  Status InClass(char c) {
    if (c == ']' && at_ != class_began_) {
      class_began_ = kOutside;
    } else if (c == '[') {
      const size_t end = in_.find(":]", at_);
      if (Next(1) != ':' || end == std::string_view::npos) {
        return Refused("[…[");
      }
      Copy(end + 1 - at_);
    } else if (c == '&' && Next(1) == '&') {
      return Refused("&&");
    }
    Copy(1);
    return OkStatus();
  }

  Status Group() {
    const std::string_view rest = in_.substr(at_ + 2);
    for (const std::string_view known :
         {":", "=", "!", ">", "<=", "<!", "i:", "i)"}) {
      if (rest.starts_with(known)) {
        Copy(2 + known.size());
        return OkStatus();
      }
    }
    return Refused("(?" + std::string(rest.substr(0, 1)));
  }

  Status Escape() {
    const char c = Next(1);
    const bool in_class = class_began_ != kOutside;
    switch (c) {
      case 's':
        return Put("\\p{White_Space}");
      case 'S':
        return Put("\\P{White_Space}");
      case 'w':
        return Put(in_class ? std::string(kWord)
                            : "[" + std::string(kWord) + "]");
      case 'W':
        if (in_class) return Refused("[\\W");
        return Put("[^" + std::string(kWord) + "]");
      case 'v':
        return Put("\\x0b");
      case 'p':
      case 'P':
        return Property();
      case 'u': {
        const std::string_view digits = in_.substr(at_ + 2, 4);
        at_ += digits.size();
        return Put("\\x{" + std::string(digits) + "}");
      }
      case 'x':
        if (Next(2) != '{' && (Next(2) < '0' || Next(2) > '7')) {
          return Refused("\\x");
        }
        Copy(2);
        return OkStatus();
      default:
        if (IsLetter(c) && kSameEscapes.find(c) == std::string_view::npos) {
          return Refused(in_.substr(at_, 2));
        }
        if (c >= '1' && c <= '9') return Refused(in_.substr(at_, 2));
        Copy(2);
        return OkStatus();
    }
  }

  // Replaces a backslash and its letter.
  Status Put(std::string_view text) {
    out_ += text;
    at_ += 2;
    return OkStatus();
  }

  // \p{L}, \P{Han}, \p{^Lu}
  Status Property() {
    const size_t end = in_.find('}', at_);
    if (Next(2) != '{' || end == std::string_view::npos) {
      return Refused(in_.substr(at_, 2));
    }
    std::string_view name = in_.substr(at_ + 3, end - at_ - 3);
    bool negated = Next(1) == 'P';
    if (name.starts_with('^')) {
      negated = !negated;
      name.remove_prefix(1);
    }
    for (const LongName& category : kCategories) {
      if (name == category.name) name = category.category;
    }
    bool is_script = name.size() > 2;
    for (const std::string_view binary : kBinaryProperties) {
      if (name == binary) is_script = false;
    }
    out_ += negated ? "\\P{" : "\\p{";
    if (is_script) out_ += "sc:";
    out_.append(name).append("}");
    at_ = end + 1;
    return OkStatus();
  }

  const std::string_view in_;
  size_t at_ = 0;
  size_t class_began_ = kOutside;  // the first place inside […]
  std::string out_;
};

}  // namespace

StatusOr<std::string> Pcre2FromOniguruma(std::string_view pattern) {
  return Translator(pattern).Run();
}

}  // namespace millrace::models
