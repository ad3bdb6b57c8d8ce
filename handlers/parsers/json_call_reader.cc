// Arguments go out byte by byte as the model wrote them and are not checked: a
// client that reads a stream gets their beginning before their end is known.
#include "handlers/parsers/json_call_reader.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "config/base/json.h"

namespace millrace::handlers {
namespace {

// The text of a JSON string literal; empty when it is none.
std::string Unquoted(const std::string& literal) {
  const auto value = ParseJson(literal);
  return value.ok() && value->is_string() ? value->get<std::string>() : "";
}

}  // namespace

JsonValueEnd::Place JsonValueEnd::Step(char c) {
  if (in_string_) {
    if (escaped_) {
      escaped_ = false;
    } else if (c == '\\') {
      escaped_ = true;
    } else if (c == '"') {
      in_string_ = false;
      if (depth_ == 0) return Place::kLast;
    }
    return Place::kInside;
  }
  if (!started_ && IsJsonSpace(c)) return Place::kBefore;
  if (is_word_) {
    const bool ends = c == ',' || c == '}' || c == ']' || IsJsonSpace(c);
    return ends ? Place::kBehind : Place::kInside;
  }
  if (c == '"') {
    in_string_ = true;
  } else if (c == '{' || c == '[') {
    ++depth_;
  } else if ((c == '}' || c == ']') && started_) {
    if (--depth_ == 0) return Place::kLast;
  } else if (!started_) {
    is_word_ = true;
  }
  started_ = true;
  return Place::kInside;
}

JsonCallReader::Result JsonCallReader::Step(char c) {
  if (!begun_) raw_ += c;
  return Take(c);
}

JsonCallReader::Result JsonCallReader::Take(char c) {
  switch (state_) {
    case State::kStart:
      if (c != '{') return Fail();
      depth_ = 1;
      state_ = State::kMember;
      return Result::kMore;
    case State::kMember:
      if (IsJsonSpace(c) || c == ',') return Result::kMore;
      if (c == '}') return EndObject();
      if (c != '"') return Fail();
      key_.clear();
      state_ = State::kKey;
      return Result::kMore;
    case State::kKey:
      if (c == '"' && !escaped_) return EndKey();
      escaped_ = c == '\\' && !escaped_;
      key_ += c;
      return Result::kMore;
    case State::kColon:
      if (IsJsonSpace(c)) return Result::kMore;
      if (c != ':') return Fail();
      value_end_ = {};
      value_.clear();
      streamed_ = false;
      state_ = State::kValue;
      return Result::kMore;
    case State::kValue:
      if (role_ == Role::kFunction && value_.empty() && c == '{' &&
          depth_ == 1) {
        depth_ = 2;
        state_ = State::kMember;
        return Result::kMore;
      }
      switch (value_end_.Step(c)) {
        case JsonValueEnd::Place::kBefore:
          return Result::kMore;
        case JsonValueEnd::Place::kInside:
          Collect(c);
          return Result::kMore;
        case JsonValueEnd::Place::kLast:
          Collect(c);
          return EndValue();
        case JsonValueEnd::Place::kBehind:
          if (const Result result = EndValue(); result != Result::kMore) {
            return result;
          }
          return Take(c);
      }
      return Fail();
    case State::kBehindValue:
      if (IsJsonSpace(c)) return Result::kMore;
      if (c == '}') return EndObject();
      if (c != ',') return Fail();
      state_ = State::kMember;
      return Result::kMore;
  }
  return Fail();
}

JsonCallReader::Result JsonCallReader::EndKey() {
  role_ = Role::kOther;
  if (key_ == "name") {
    role_ = name_.empty() ? Role::kName : Role::kOther;
  } else if (key_ == "arguments" || key_ == "parameters") {
    role_ = has_arguments_ ? Role::kOther : Role::kArguments;
    if (!name_.empty() && !begun_) Begin();
  } else if (key_ == "function") {
    role_ = name_.empty() ? Role::kFunction : Role::kOther;
  } else if (names_ != nullptr && key_ != "type" && key_ != "id") {
    return Fail();
  }
  state_ = State::kColon;
  return Result::kMore;
}

void JsonCallReader::Collect(char c) {
  if (role_ == Role::kOther) return;
  if (role_ == Role::kArguments && value_.empty() && !streamed_ &&
      (c == '{' || c == '[')) {
    streamed_ = true;
    has_arguments_ = true;
  }
  if (streamed_) {
    GiveArguments(std::string_view(&c, 1));
  } else {
    value_ += c;
  }
}

void JsonCallReader::GiveArguments(std::string_view text) {
  if (begun_) {
    out_.Arguments(text);
  } else {
    arguments_ += text;
  }
}

JsonCallReader::Result JsonCallReader::EndValue() {
  state_ = State::kBehindValue;
  if (role_ == Role::kArguments && !streamed_) {
    has_arguments_ = true;
    const std::string inner = Unquoted(value_);
    if (!inner.empty()) {
      GiveArguments(inner);
    } else if (value_ == "null" || value_ == "\"\"") {
      GiveArguments("{}");
    } else {
      GiveArguments(value_);
    }
  }
  if (role_ == Role::kName || role_ == Role::kFunction) {
    name_ = Unquoted(value_);
    if (name_.empty()) return Fail();
    const bool is_known =
        names_ == nullptr || std::ranges::find(*names_, name_) != names_->end();
    if (!is_known) return Fail();
    // Among known names, a further key may still show that it is no call.
    if (names_ == nullptr || has_arguments_) Begin();
  }
  return Result::kMore;
}

void JsonCallReader::Begin() {
  begun_ = true;
  out_.BeginCall(name_);
  out_.Arguments(arguments_);
}

JsonCallReader::Result JsonCallReader::Fail() {
  if (!begun_) return Result::kNotACall;
  if (!has_arguments_) out_.Arguments("{}");
  return Result::kBroken;
}

JsonCallReader::Result JsonCallReader::EndObject() {
  if (--depth_ > 0) {
    state_ = State::kBehindValue;
    return Result::kMore;
  }
  if (name_.empty()) return Result::kNotACall;
  if (!begun_) Begin();
  if (!has_arguments_) out_.Arguments("{}");
  return Result::kDone;
}

void JsonCallReader::End() {
  if (!begun_ || state_ != State::kValue || role_ != Role::kArguments) return;
  if (!streamed_) out_.Arguments(value_);
}

}  // namespace millrace::handlers
