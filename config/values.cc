// Units multiply: bytes take powers of 1024 for "K", "KiB" and of 1000 for
// "KB"; durations are kept in whole milliseconds, so "500us" is refused rather
// than rounded to nothing.
#include "config/values.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <optional>
#include <span>

#include "config/base/utf8.h"

namespace millrace::config {
namespace {

struct UnitScale {
  std::string_view name;  // lower case
  double scale;
};

constexpr UnitScale kByteUnits[] = {
    {"b", 1},        {"kb", 1e3},     {"mb", 1e6},     {"gb", 1e9},
    {"tb", 1e12},    {"k", 0x1p10},   {"m", 0x1p20},   {"g", 0x1p30},
    {"t", 0x1p40},   {"kib", 0x1p10}, {"mib", 0x1p20}, {"gib", 0x1p30},
    {"tib", 0x1p40},
};
constexpr UnitScale kTimeUnits[] = {
    {"us", 1e-3},  {"ms", 1},   {"s", 1e3},
    {"min", 60e3}, {"m", 60e3}, {"h", 3600e3},
};
constexpr UnitScale kShortTimeUnits[] = {
    {"us", 1}, {"ms", 1e3}, {"s", 1e6}, {"min", 60e6}, {"m", 60e6},
};

// Upper and lower case differ.
constexpr UnitScale kBinaryCounts[] = {
    {"K", 0x1p10}, {"M", 0x1p20}, {"G", 0x1p30}};
constexpr UnitScale kDecimalCounts[] = {{"k", 1e3}, {"m", 1e6}, {"g", 1e9}};

constexpr UnitScale kShareUnits[] = {{"of one", 1e6}, {"%", 1e4}};

std::string Lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return out;
}

std::string_view Trim(std::string_view text) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text[0]))) {
    text.remove_prefix(1);
  }
  while (!text.empty() &&
         std::isspace(static_cast<unsigned char>(text.back()))) {
    text.remove_suffix(1);
  }
  return text;
}

Status Wrong(const SettingInfo& info, std::string_view text,
             std::string_view rule) {
  const std::string shown =
      info.secret ? "***" : "'" + Shortened(text, 100) + "'";
  return InvalidArgument(std::string(info.name) + " is " + shown + " but " +
                         std::string(rule))
      .At(info.name);
}

std::optional<int64_t> ParseWhole(std::string_view text) {
  int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end) return std::nullopt;
  return value;
}

// A number and its unit, scaled; nothing when it is no whole number then.
std::optional<int64_t> ParseScaled(std::string_view text,
                                   std::span<const UnitScale> units,
                                   std::string_view bare_unit) {
  double number = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] =
      std::from_chars(text.data(), end, number, std::chars_format::fixed);
  if (error != std::errc() || !std::isfinite(number)) return std::nullopt;
  std::string unit = Lower(Trim({stop, static_cast<size_t>(end - stop)}));
  if (unit.empty()) {
    // Large plain numbers stay exact.
    const auto whole = ParseWhole(text);
    if (whole && bare_unit == "b") return whole;
    unit = bare_unit;
  }
  for (const UnitScale& known : units) {
    if (unit != known.name) continue;
    const double scaled = number * known.scale;
    // "0.3s" is 300.00000000000006 milliseconds or so.
    const double whole = std::round(scaled);
    if (std::abs(scaled - whole) > 1e-6 * std::max(1.0, std::abs(scaled)) ||
        std::abs(whole) >= 0x1p62) {
      return std::nullopt;
    }
    return static_cast<int64_t>(whole);
  }
  return std::nullopt;
}

// A number of tokens as vLLM's command line takes it (human_readable_int):
// fractions with decimal letters alone.
std::optional<int64_t> ParseTokens(std::string_view text) {
  if (text.empty()) return std::nullopt;
  const std::string_view letter = text.substr(text.size() - 1);
  const std::string_view number = text.substr(0, text.size() - 1);
  const bool is_number =
      !number.empty() && number.back() >= '0' && number.back() <= '9';
  for (const UnitScale& known : kBinaryCounts) {
    if (letter != known.name) continue;
    const auto whole = ParseWhole(number);
    const auto scale = static_cast<int64_t>(known.scale);
    const int64_t most = (int64_t{1} << 62) / scale;
    if (!whole || *whole > most || *whole < -most) return std::nullopt;
    return *whole * scale;
  }
  for (const UnitScale& known : kDecimalCounts) {
    if (letter != known.name) continue;
    if (!is_number) return std::nullopt;
    return ParseScaled(number, {&known, 1}, letter);
  }
  return ParseWhole(text);
}

std::string PrintScaled(Unit unit, int64_t value) {
  if (unit == Unit::kMilliseconds) {
    if (value % 3'600'000 == 0 && value != 0) {
      return std::to_string(value / 3'600'000) + "h";
    }
    if (value % 1000 == 0) return std::to_string(value / 1000) + "s";
    return std::to_string(value) + "ms";
  }
  if (unit == Unit::kMicroseconds) {
    if (value % 1'000'000 == 0) return std::to_string(value / 1'000'000) + "s";
    if (value % 1000 == 0) return std::to_string(value / 1000) + "ms";
    return std::to_string(value) + "us";
  }
  if (unit == Unit::kShare) {
    std::string text = std::to_string(value / 10'000);
    if (value % 10'000 != 0) {
      const std::string digits = std::to_string(10'000 + value % 10'000);
      text += "." + digits.substr(1, digits.find_last_not_of('0'));
    }
    return text + "%";
  }
  if (unit == Unit::kBytes && value != 0) {
    constexpr std::string_view kNames[] = {"TiB", "GiB", "MiB", "KiB"};
    for (int i = 0; i < 4; ++i) {
      const int64_t scale = int64_t{1} << (40 - 10 * i);
      if (value % scale == 0) {
        return std::to_string(value / scale) + std::string(kNames[i]);
      }
    }
  }
  return std::to_string(value);
}

Status ParseNumber(const SettingInfo& info, std::string_view text,
                   std::string_view bare_unit, int64_t& out) {
  std::optional<int64_t> value;
  std::string_view wanted;
  switch (info.unit) {
    case Unit::kNone:
      value = ParseWhole(text);
      wanted = "must be a whole number";
      break;
    case Unit::kBytes:
      value = ParseScaled(text, kByteUnits,
                          bare_unit.empty() ? "b" : Lower(bare_unit));
      wanted = "must be a size like 2GiB, 64MiB or 4096";
      break;
    case Unit::kMilliseconds:
      value = ParseScaled(text, kTimeUnits,
                          bare_unit.empty() ? "s" : Lower(bare_unit));
      wanted = "must be a time like 30s, 5ms or 2min, in whole milliseconds";
      break;
    case Unit::kMicroseconds:
      value = ParseScaled(text, kShortTimeUnits,
                          bare_unit.empty() ? "s" : Lower(bare_unit));
      wanted = "must be a time like 500us, 5ms or 1s, in whole microseconds";
      break;
    case Unit::kShare:
      value = ParseScaled(text, kShareUnits, "of one");
      wanted = "must be a share like 5% or 0.05";
      break;
    case Unit::kTokens:
      value = ParseTokens(text);
      wanted =
          "must be a whole number of tokens, like 32768, 32K (1024 each) or "
          "128k (1000 each)";
      break;
  }
  if (!value) return Wrong(info, text, wanted);
  if (*value < info.min) {
    return Wrong(info, text,
                 "must be at least " + PrintScaled(info.unit, info.min));
  }
  if (*value > info.max) {
    return Wrong(info, text,
                 "must be at most " + PrintScaled(info.unit, info.max));
  }
  out = *value;
  return OkStatus();
}

Status ParseSwitch(const SettingInfo& info, std::string_view text, bool& out) {
  const std::string word = Lower(text);
  for (const std::string_view yes : {"true", "yes", "on", "1", ""}) {
    if (word == yes) return out = true, OkStatus();
  }
  for (const std::string_view no : {"false", "no", "off", "0"}) {
    if (word == no) return out = false, OkStatus();
  }
  return Wrong(info, text, "must be true or false");
}

std::string Choices(const SettingInfo& info, std::string_view separator) {
  std::string out;
  for (const std::string_view choice : info.choices) {
    out.append(out.empty() ? "" : separator).append(choice);
  }
  return out;
}

Status ParseText(const SettingInfo& info, std::string_view text,
                 std::string& out) {
  if (!info.choices.empty() &&
      std::find(info.choices.begin(), info.choices.end(), text) ==
          info.choices.end()) {
    return Wrong(info, text, "must be one of " + Choices(info, ", "));
  }
  out = text;
  return OkStatus();
}

Status ParseList(const SettingInfo& info, std::string_view text,
                 std::vector<std::string>& out) {
  std::vector<std::string> items;
  if (Trim(text).empty()) {  // "[]" in a file
    out.clear();
    return OkStatus();
  }
  while (true) {
    const size_t comma = text.find(',');
    const std::string_view item = Trim(text.substr(0, comma));
    if (item.empty()) return Wrong(info, text, "no name may be empty");
    items.emplace_back(item);
    if (comma == std::string_view::npos) break;
    text.remove_prefix(comma + 1);
  }
  out = std::move(items);
  return OkStatus();
}

// Double-quoted YAML.
std::string Quote(std::string_view text) {
  constexpr char kHex[] = "0123456789abcdef";
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out.append(1, '\\').append(1, c);
    } else if (byte < 0x20) {
      out.append("\\x").append(1, kHex[byte >> 4]).append(1, kHex[byte & 15]);
    } else {
      out += c;
    }
  }
  return out + '"';
}

}  // namespace

Status WrongSetting(std::string_view setting, std::string_view message) {
  return InvalidArgument(std::string(setting) + ": " + std::string(message))
      .At(setting);
}

Status ParseValue(const SettingInfo& info, std::string_view text,
                  std::string_view bare_unit, SettingRef value) {
  text = Trim(text);
  if (auto* number = std::get_if<int64_t*>(&value)) {
    return ParseNumber(info, text, bare_unit, **number);
  }
  if (auto* flag = std::get_if<bool*>(&value)) {
    return ParseSwitch(info, text, **flag);
  }
  if (auto* line = std::get_if<std::string*>(&value)) {
    return ParseText(info, text, **line);
  }
  return ParseList(info, text, *std::get<std::vector<std::string>*>(value));
}

std::string PrintValue(const SettingInfo& info, SettingRef value) {
  if (auto* number = std::get_if<int64_t*>(&value)) {
    return PrintScaled(info.unit, **number);
  }
  if (auto* flag = std::get_if<bool*>(&value)) return **flag ? "true" : "false";
  if (auto* line = std::get_if<std::string*>(&value)) {
    return Quote(info.secret && !(*line)->empty() ? "***" : **line);
  }
  std::string out = "[";
  for (const std::string& item : *std::get<std::vector<std::string>*>(value)) {
    out.append(out.size() > 1 ? ", " : "").append(Quote(item));
  }
  return out + "]";
}

std::string DescribeBounds(const SettingInfo& info, SettingRef value) {
  if (std::holds_alternative<int64_t*>(value)) {
    return PrintScaled(info.unit, info.min) + " to " +
           PrintScaled(info.unit, info.max);
  }
  return Choices(info, " | ");
}

}  // namespace millrace::config
