// Setting values as text: numbers with units, switches, choices.
//
// Private to config.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "config/base/status.h"
#include "config/settings_visitor.h"

namespace millrace::config {

// What is wrong about a key that has keys of its own: "drift: MESSAGE", at
// `drift`.
Status WrongSetting(std::string_view setting, std::string_view message);

// Sets the value from text, checking its bounds. `bare_unit` is the unit of a
// number that has none, empty for the setting's own. On failure the sentence
// names the setting, the value (unless secret) and the limit; the value stays.
Status ParseValue(const SettingInfo& info, std::string_view text,
                  std::string_view bare_unit, SettingRef value);

// The value as YAML that reads back to the same: 30s, 64MiB, "text".
// Secrets that are set become "***".
std::string PrintValue(const SettingInfo& info, SettingRef value);

// "A to B", "text | json", … for --help; empty when anything goes.
std::string DescribeBounds(const SettingInfo& info, SettingRef value);

}  // namespace millrace::config
