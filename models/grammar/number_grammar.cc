#include "models/grammar/number_grammar.h"

#include <algorithm>

#include "config/base/status.h"

namespace millrace::models {
namespace {

constexpr int64_t kLargest = 999'999'999'999'999'999;

std::string Digits(char low, char high) {
  if (low == high) return std::string("\"") + low + "\"";
  return std::string("[") + low + "-" + high + "]";
}

std::string Times(const std::string& part, size_t count) {
  if (count == 0) return {};
  if (count == 1) return " " + part;
  return " " + part + "{" + std::to_string(count) + "}";
}

bool IsAll(std::string_view digits, char digit) {
  return digits.find_first_not_of(digit) == std::string_view::npos;
}

// Numbers of as many digits as both bounds have; adds alternatives with
// `before` in front.
void AddOfSameLength(const std::string& before, std::string_view low,
                     std::string_view high, std::string& out) {
  const auto add = [&](const std::string& text) {
    if (!out.empty()) out += " | ";
    out += text;
  };
  const std::string space = before.empty() ? "" : " ";
  if (low.empty()) return add(before);
  const std::string_view low_rest = low.substr(1);
  const std::string_view high_rest = high.substr(1);
  if (IsAll(low_rest, '0') && IsAll(high_rest, '9')) {
    return add(before + space + Digits(low[0], high[0]) +
               Times("[0-9]", low_rest.size()));
  }
  if (low[0] == high[0]) {
    return AddOfSameLength(before + space + Digits(low[0], low[0]), low_rest,
                           high_rest, out);
  }
  char first = low[0];
  char last = high[0];
  if (!IsAll(low_rest, '0')) {
    AddOfSameLength(before + space + Digits(first, first), low_rest,
                    std::string(low_rest.size(), '9'), out);
    ++first;
  }
  const bool high_is_split = !IsAll(high_rest, '9');
  if (high_is_split) --last;
  if (first <= last) {
    add(before + space + Digits(first, last) + Times("[0-9]", low_rest.size()));
  }
  if (high_is_split) {
    AddOfSameLength(before + space + Digits(high[0], high[0]),
                    std::string(high_rest.size(), '0'), high_rest, out);
  }
}

// 0 <= least <= most.
void AddRange(const std::string& before, int64_t least, int64_t most,
              std::string& out) {
  while (true) {
    const std::string low = std::to_string(least);
    const int64_t largest = std::stoll(std::string(low.size(), '9'));
    const int64_t end = std::min(most, largest);
    AddOfSameLength(before, low, std::to_string(end), out);
    if (end == most) return;
    least = end + 1;
  }
}

}  // namespace

std::string IntegerEbnf(std::optional<int64_t> least,
                        std::optional<int64_t> most) {
  if (!least && !most) return R"("0" | "-"? [1-9] [0-9]{0,17})";
  const int64_t low = std::max(least.value_or(-kLargest), -kLargest);
  const int64_t high = std::min(most.value_or(kLargest), kLargest);
  CHECK(low <= high, "a schema without a value is refused before");
  std::string out;
  if (low < 0) {
    AddRange("\"-\"", std::max<int64_t>(1, -high), -low, out);
  }
  if (high >= 0) AddRange("", std::max<int64_t>(0, low), high, out);
  return out;
}

}  // namespace millrace::models
