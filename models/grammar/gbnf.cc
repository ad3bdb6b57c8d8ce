// One walk: strings, classes and comments are copied, the rest is looked at
// sign by sign.
#include "models/grammar/gbnf.h"

#include "models/grammar/literal_parts.h"
#include "models/grammar/pattern.h"

namespace millrace::models {
namespace {

// The end of the string or class that begins at `begin`.
StatusOr<size_t> EndOf(std::string_view text, size_t begin, char close) {
  for (size_t i = begin + 1; i < text.size(); ++i) {
    if (text[i] == '\\') {
      ++i;
    } else if (text[i] == close) {
      return i + 1;
    }
  }
  return InvalidArgument("the grammar at byte " + std::to_string(begin) +
                         " opens a string or class that never ends");
}

bool IsSpace(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

// `ebnf` has no comments; its strings and classes end.
Status CheckCounts(std::string_view ebnf) {
  // Strings of Regex("…") are patterns; which ones is not told.
  const bool has_patterns = ebnf.find("Regex") != ebnf.npos;
  for (size_t i = 0; i < ebnf.size();) {
    const char c = ebnf[i];
    if (c == '"' || c == '[') {
      ASSIGN_OR_RETURN(const size_t end, EndOf(ebnf, i, c == '"' ? '"' : ']'));
      if (has_patterns) RETURN_IF_ERROR(CheckRepeats(ebnf.substr(i, end - i)));
      i = end;
      continue;
    }
    if (c == '{' && IsGreatCount(ebnf.substr(i))) {
      return InvalidArgument("the grammar has a count above " +
                             std::to_string(kMaxRepeats) +
                             ", which is not supported");
    }
    ++i;
  }
  return OkStatus();
}

}  // namespace

StatusOr<std::string> EbnfOfGbnf(std::string_view gbnf) {
  std::string out;
  // Nothing but blanks stands between here and the last '|', '(' or "::=".
  bool may_be_empty = false;
  const auto close_alternative = [&] {
    if (may_be_empty) out += " \"\" ";
    may_be_empty = false;
  };
  NestedRepeats repeats;
  size_t count_end = 0;
  for (size_t i = 0; i < gbnf.size();) {
    const char c = gbnf[i];
    if (i >= count_end && std::string_view("(){}|?*+#").find(c) == gbnf.npos &&
        !IsSpace(c)) {
      repeats.Item();
    }
    if (c == '"' || c == '[') {
      ASSIGN_OR_RETURN(const size_t end, EndOf(gbnf, i, c == '"' ? '"' : ']'));
      out += gbnf.substr(i, end - i);
      i = end;
      may_be_empty = false;
    } else if (c == '#') {
      while (i < gbnf.size() && gbnf[i] != '\n') ++i;
    } else if (c == '<') {
      return InvalidArgument("the grammar at byte " + std::to_string(i) +
                             " names a token, which is not supported; write "
                             "its text");
    } else if (c == '.') {
      out += R"([\x00-\U0010FFFF])";
      may_be_empty = false;
      ++i;
    } else if (c == '{') {
      ASSIGN_OR_RETURN(const size_t size, repeats.Count(gbnf.substr(i)));
      count_end = i + size;
      out += c;
      for (++i; i < gbnf.size() && IsSpace(gbnf[i]);) ++i;
      if (i < gbnf.size() && gbnf[i] == ',') out += '0';
    } else if (gbnf.substr(i, 3) == "::=") {
      out += "::=";
      i += 3;
      may_be_empty = false;  // an empty rule is the library's to refuse
    } else if (c == '|' || c == '(' || c == ')') {
      if (c != '(') close_alternative();
      out += c;
      may_be_empty = c != ')';
      if (c == '(') repeats.Open();
      if (c == ')') repeats.Close();
      ++i;
    } else {
      out += c;
      if (!IsSpace(c)) may_be_empty = false;
      ++i;
    }
  }
  close_alternative();
  RETURN_IF_ERROR(CheckCounts(out));
  return out;
}

std::string EbnfOfChoices(const std::vector<std::string>& choices) {
  std::string out = "root ::= ";
  for (size_t i = 0; i < choices.size(); ++i) {
    if (i > 0) out += " | ";
    out += EbnfText(choices[i]);
  }
  return out + "\n";
}

}  // namespace millrace::models
