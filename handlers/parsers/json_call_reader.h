// Reads one tool call written as a JSON object, byte by byte, and passes its
// arguments on as they come:
//
//   {"name": "get_weather", "arguments": {"city": "Paris"}}
//
// Also understood: "parameters" for "arguments", arguments before the name,
// arguments as a JSON string that holds the object, and OpenAI's nesting
// {"type": "function", "function": {"name": …, "arguments": …}}.
//
// Not thread-safe.
#pragma once

#include <string>
#include <vector>

#include "handlers/parsers/output_parser.h"

namespace millrace::handlers {

// Where one JSON value ends: counts brackets outside of strings.
class JsonValueEnd {
 public:
  enum class Place { kBefore, kInside, kLast, kBehind };
  // The place of the next byte: white space before the value, a byte of it, its
  // last one, or the first byte behind a number or a word.
  Place Step(char c);

 private:
  int depth_ = 0;
  bool started_ = false;
  bool is_word_ = false;  // a number, true, false or null
  bool in_string_ = false;
  bool escaped_ = false;
};

class JsonCallReader {
 public:
  enum class Result {
    kMore,
    kDone,      // this byte was the object's last one
    kBroken,    // the call began, and this byte cannot belong to it
    kNotACall,  // nothing began; raw() is plain text
  };
  // With `names`, only a call of one of them is a call, and only an object
  // without other keys. Both are borrowed.
  JsonCallReader(ParsedOutput& out, const std::vector<std::string>* names)
      : out_(out), names_(names) {}

  Result Step(char c);  // the first byte is '{'
  // The text ended inside of the object.
  void End();

  bool begun() const { return begun_; }
  const std::string& raw() const { return raw_; }  // all bytes until it began

 private:
  enum class State { kStart, kMember, kKey, kColon, kValue, kBehindValue };
  enum class Role { kName, kArguments, kFunction, kOther };

  Result Take(char c);
  Result EndKey();
  void Collect(char c);
  Result EndValue();
  Result EndObject();
  void Begin();
  Result Fail();
  void GiveArguments(std::string_view text);

  ParsedOutput& out_;
  const std::vector<std::string>* const names_;
  State state_ = State::kStart;
  Role role_ = Role::kOther;
  int depth_ = 0;  // 2 inside of "function"
  std::string raw_;
  std::string key_;
  bool escaped_ = false;  // in a key
  JsonValueEnd value_end_;
  std::string value_;      // of a name, a string or a word
  bool streamed_ = false;  // the value's bytes are passed on at once
  std::string name_;
  std::string arguments_;  // that came before the name
  bool has_arguments_ = false;
  bool begun_ = false;
};

}  // namespace millrace::handlers
