#include "config/find_setting.h"

#include "config/values.h"

namespace millrace::config {

std::string Canonical(std::string_view name) {
  std::string out(name);
  for (char& c : out) c = c == '-' ? '_' : c;
  return out;
}

std::string AsFlag(std::string_view name, bool is_own) {
  std::string out(name);
  for (char& c : out) c = c == '_' ? '-' : c;
  return (!is_own && out.size() <= 3 ? "-" : "--") + out;
}

Target Find(const Visit& visit, const std::string& name, NameIn where) {
  Target target;
  visit([&](const SettingInfo& info, SettingRef value) {
    const auto take = [&](std::string_view bare_unit, bool negated) {
      target = {info, value, bare_unit, negated, true};
    };
    if (info.name == name) take({}, false);
    for (const SettingInfo::Alias& alias : info.aliases) {
      if (alias.flag_only && where != NameIn::kCommandLine) continue;
      if (alias.name == name) take(alias.bare_unit, false);
    }
    if (std::holds_alternative<bool*>(value) && !target.found &&
        "no_" + std::string(info.name) == name && info.name != "no_auth") {
      take({}, true);
    }
  });
  return target;
}

bool IsList(const Target& target) {
  return std::holds_alternative<std::vector<std::string>*>(target.value);
}

Status Set(const Target& target, std::string_view text) {
  RETURN_IF_ERROR(
      ParseValue(target.info, text, target.bare_unit, target.value));
  if (target.negated) {
    bool& flag = *std::get<bool*>(target.value);
    flag = !flag;
  }
  return OkStatus();
}

std::vector<std::string_view> Names(const Visit& visit, NameIn where) {
  std::vector<std::string_view> names;
  visit([&](const SettingInfo& info, SettingRef) {
    names.push_back(info.name);
    for (const auto& alias : info.aliases) {
      if (alias.flag_only && where != NameIn::kCommandLine) continue;
      names.push_back(alias.name);
    }
  });
  return names;
}

}  // namespace millrace::config
