// What a grammar of values in another notation than JSON consists of, whatever
// the schema: strings, numbers, constants, and any value at all.
//
//   LiteralParts parts(notation);
//   const std::string rule = parts.NewRule(parts.AnyString() + " | \"None\"");
//   parts.AddRule("root", rule);
//   parts.rules();                      // the grammar, in xgrammar's EBNF
//
// Every expression that comes back may stand in a sequence as it is.
//
// Pure.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "config/base/status.h"

namespace millrace::models {

// How the models of a family write values.
struct LiteralNotation {
  std::string_view name;
  // Around strings; empty: Python's quotes, and keys of dictionaries in them.
  std::string_view quote;
  std::string_view close;  // ends a call, wherever it stands
  std::string_view no, yes, null;
  // Expressions: between two parts; behind the key of a dictionary; behind the
  // name of an argument.
  std::string_view separator;
  std::string_view colon;
  std::string_view equals;

  bool is_python() const { return quote.empty(); }
};

// Null: there is none of this name.
const LiteralNotation* FindLiteralNotation(std::string_view name);

class LiteralParts {
 public:
  explicit LiteralParts(const LiteralNotation& notation)
      : notation_(notation) {}

  const LiteralNotation& notation() const { return notation_; }
  const std::string& rules() const { return rules_; }
  void AddRule(const std::string& name, const std::string& text);
  std::string NewRule(const std::string& text);  // its name
  // Whether this is the first time that the name is claimed.
  bool Claim(const std::string& name) { return shared_.insert(name).second; }

  std::string AnyString();
  // Of so many characters.
  std::string StringOf(int64_t least, std::optional<int64_t> most);
  std::string AnyNumber();
  std::string AnyBoolean() const;
  std::string AnyValue();
  std::string AnyWord();  // a key without quotes

  // INVALID_ARGUMENT for a text that has the model's own tags in it.
  StatusOr<std::string> Constant(const nlohmann::ordered_json& value);
  StatusOr<std::string> Key(const std::string& name);
  // `part` behind a separator, so many times.
  std::string Separated(const std::string& part,
                        const std::string& count) const;

 private:
  std::string PythonString(char quote, const std::string& count) const;
  std::string TaggedString();
  StatusOr<std::string> StringConstant(const std::string& text) const;

  const LiteralNotation& notation_;
  std::string rules_;
  int num_rules_ = 0;
  std::set<std::string> shared_;  // names of rules that are written once
};

// A text between quotes of the EBNF.
std::string EbnfText(std::string_view text);
// {least,most}
std::string EbnfCount(int64_t least, std::optional<int64_t> most);
// As the readers of calls take a word.
bool IsLiteralWord(std::string_view text);

}  // namespace millrace::models
