#include "models/grammar/literal_parts.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

namespace millrace::models {
namespace {

using Json = nlohmann::ordered_json;

constexpr LiteralNotation kNotations[] = {
    {"pythonic", "", "", "False", "True", "None", R"("," " "?)", R"(":" " "?)",
     "="},
    {"gemma", "<escape>", "<end_function_call>", "false", "true", "null",
     R"(",")", R"(":")", ":"},
    {"gemma4", "<|\"|>", "<tool_call|>", "false", "true", "null", R"(",")",
     R"(":")", ":"},
};

std::string TextOf(char c) { return EbnfText(std::string_view(&c, 1)); }

// One character of a class of the EBNF.
std::string InClass(char c) {
  const bool special =
      c == '\\' || c == ']' || c == '[' || c == '^' || c == '-' || c == '"';
  return special ? std::string("\\") + c : std::string(1, c);
}

}  // namespace

const LiteralNotation* FindLiteralNotation(std::string_view name) {
  const auto* found =
      std::ranges::find(kNotations, name, &LiteralNotation::name);
  return found == std::end(kNotations) ? nullptr : found;
}

std::string EbnfText(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20 || byte == 0x7f) {
      char escape[8];
      std::snprintf(escape, sizeof(escape), "\\x%02x", byte);
      out += escape;
    } else {
      out += c;
    }
  }
  return out + '"';
}

std::string EbnfCount(int64_t least, std::optional<int64_t> most) {
  return "{" + std::to_string(least) + "," +
         (most ? std::to_string(*most) : "") + "}";
}

bool IsLiteralWord(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           (c >= '0' && c <= '9') || c == '_' || c == '-' || c == '.';
  });
}

void LiteralParts::AddRule(const std::string& name, const std::string& text) {
  rules_ += name + " ::= " + text + "\n";
}

std::string LiteralParts::NewRule(const std::string& text) {
  const std::string name = "r" + std::to_string(num_rules_++);
  AddRule(name, text);
  return name;
}

std::string LiteralParts::PythonString(char quote,
                                       const std::string& count) const {
  return TextOf(quote) + " ([^" + InClass(quote) +
         R"(\\\x00-\x1f\x7f] | "\\" [nrt'\"\\]))" + count + " " + TextOf(quote);
}

// Any text up to the quote, and that; never what ends a call. A state is what
// the end of the text has in common with the beginning of either.
std::string LiteralParts::TaggedString() {
  const std::string_view quote = notation_.quote;
  const std::string_view close = notation_.close;
  std::map<std::string, std::string> states = {{"", ""}};  // and their rules
  std::set<char> letters;
  for (const std::string_view word : {quote, close}) {
    for (size_t i = 0; i < word.size(); ++i) {
      states[std::string(word.substr(0, i))] = "";
      letters.insert(word[i]);
    }
  }
  int number = 0;
  for (auto& [state, rule] : states) rule = "text" + std::to_string(number++);
  std::string others = "[^\\x00";
  for (const char c : letters) others += InClass(c);
  others += "]";
  for (const auto& [state, name] : states) {
    std::string rule = others + " " + states[""];
    for (const char c : letters) {
      std::string next = state + c;
      while (!states.contains(next) && next != quote && next != close) {
        next.erase(0, 1);
      }
      if (next == close) continue;
      rule += " | " + TextOf(c);
      if (next != quote) rule += " " + states[next];
    }
    AddRule(name, rule);
  }
  return EbnfText(quote) + " " + states[""];
}

std::string LiteralParts::AnyString() {
  if (Claim("string")) {
    AddRule("string", notation_.is_python() ? PythonString('"', "*") + " | " +
                                                  PythonString('\'', "*")
                                            : TaggedString());
  }
  return "string";
}

std::string LiteralParts::StringOf(int64_t least, std::optional<int64_t> most) {
  const std::string count = EbnfCount(least, most);
  if (notation_.is_python()) {
    return NewRule(PythonString('"', count) + " | " +
                   PythonString('\'', count));
  }
  const std::string quote = EbnfText(notation_.quote);
  return quote + " [^<\\x00]" + count + " " + quote;
}

std::string LiteralParts::AnyNumber() {
  if (Claim("number")) {
    AddRule("number",
            R"("-"? ("0" | [1-9] [0-9]{0,17}) ("." [0-9] [0-9]{0,17})?)");
  }
  return "number";
}

std::string LiteralParts::AnyBoolean() const {
  return "(" + EbnfText(notation_.no) + " | " + EbnfText(notation_.yes) + ")";
}

std::string LiteralParts::AnyWord() {
  if (Claim("word")) AddRule("word", "[a-zA-Z0-9_]{1,64}");
  return "word";
}

std::string LiteralParts::AnyValue() {
  if (!Claim("any")) return "any";
  const std::string key = notation_.is_python() ? AnyString() : AnyWord();
  const std::string member = key + " " + std::string(notation_.colon) + " any";
  AddRule("any", AnyString() + " | " + AnyNumber() + " | " + AnyBoolean() +
                     " | " + EbnfText(notation_.null) + " | \"[\" (any " +
                     Separated("any", "*") + ")? \"]\" | \"{\" (" + member +
                     " " + Separated(member, "*") + ")? \"}\"");
  return "any";
}

std::string LiteralParts::Separated(const std::string& part,
                                    const std::string& count) const {
  return "(" + std::string(notation_.separator) + " " + part + ")" + count;
}

StatusOr<std::string> LiteralParts::StringConstant(
    const std::string& text) const {
  if (!notation_.is_python()) {
    if (text.find(notation_.quote) != text.npos ||
        text.find(notation_.close) != text.npos) {
      return InvalidArgument("the model's own tags in a text");
    }
    return EbnfText(std::string(notation_.quote) + text +
                    std::string(notation_.quote));
  }
  std::string out;
  for (const char quote : {'"', '\''}) {
    std::string literal(1, quote);
    for (const char c : text) {
      if (c == quote || c == '\\') literal += '\\';
      literal += c == '\n'   ? std::string("\\n")
                 : c == '\r' ? std::string("\\r")
                 : c == '\t' ? std::string("\\t")
                             : std::string(1, c);
    }
    literal += quote;
    out += (out.empty() ? "(" : " | ") + EbnfText(literal);
  }
  return out + ")";
}

StatusOr<std::string> LiteralParts::Key(const std::string& name) {
  if (!notation_.is_python() && IsLiteralWord(name)) return EbnfText(name);
  return StringConstant(name);
}

StatusOr<std::string> LiteralParts::Constant(const Json& value) {
  if (value.is_string()) {
    return StringConstant(value.get_ref<const std::string&>());
  }
  if (value.is_null()) return EbnfText(notation_.null);
  if (value.is_boolean()) {
    return EbnfText(value.get<bool>() ? notation_.yes : notation_.no);
  }
  if (!value.is_structured()) return EbnfText(value.dump());
  const bool is_list = value.is_array();
  std::string out = is_list ? "\"[\"" : "\"{\"";
  bool first = true;
  for (const auto& [key, item] : value.items()) {
    if (!std::exchange(first, false)) {
      out += " " + std::string(notation_.separator);
    }
    if (!is_list) {
      ASSIGN_OR_RETURN(const std::string spelled, Key(key));
      out += " " + spelled + " " + std::string(notation_.colon);
    }
    ASSIGN_OR_RETURN(const std::string part, Constant(item));
    out += " " + part;
  }
  return out + (is_list ? " \"]\"" : " \"}\"");
}

}  // namespace millrace::models
