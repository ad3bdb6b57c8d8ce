// Template source cut into tokens, with the whitespace rules applied that chat
// templates are written for: trim_blocks, lstrip_blocks, and "-" and "+" in the
// delimiters.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "config/base/status.h"

namespace millrace::models::jinja {

struct Token {
  enum class Kind {
    kData,  // text between the tags, as it is printed
    kPrintBegin,
    kPrintEnd,
    kBlockBegin,
    kBlockEnd,
    kName,
    kString,  // text: the value, escapes resolved
    kInteger,
    kFloat,
    kOperator,
    kEnd,
  };
  Kind kind;
  std::string text;
  int line;

  bool Is(std::string_view op) const {
    return kind == Kind::kOperator && text == op;
  }
  bool IsName(std::string_view name) const {
    return kind == Kind::kName && text == name;
  }
};

// The source must be valid UTF-8. The last token is kEnd.
StatusOr<std::vector<Token>> Lex(std::string_view source);

// "line 3: message", as every error of a template's text reads.
Status TemplateError(int line, std::string_view message);

}  // namespace millrace::models::jinja
