// Values that models write in another notation than JSON, turned into JSON
// text: Python's literals and Gemma's. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace millrace::handlers {

// Reads values from the front of a text, which outlives the reader. What is no
// value gives none and leaves the reader where it failed.
class LiteralReader {
 public:
  struct Notation {
    // What stands at both ends of a string; empty: Python's quotes.
    std::string_view quote = {};
    bool bare_keys = false;  // {city:"Paris"}
  };
  LiteralReader(std::string_view text, Notation notation)
      : text_(text), notation_(notation) {}

  std::optional<std::string> Value() { return Value(0); }
  // A word of letters, digits, '_', '-' and '.'; empty when there is none.
  std::string Word();
  // Skips white space, then takes `c` if it comes next.
  bool Take(char c);
  bool TakeText(std::string_view text);
  bool AtEnd();

 private:
  std::optional<std::string> Value(int depth);
  std::optional<std::string> List(char close, int depth);
  std::optional<std::string> Dict(int depth);
  std::optional<std::string> Quoted();  // as JSON, quotes included
  std::optional<std::string> PythonString();
  void SkipSpace();

  std::string_view text_;
  const Notation notation_;
};

}  // namespace millrace::handlers
