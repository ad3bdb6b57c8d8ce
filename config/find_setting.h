// Finds a setting by any of its names, for files, flags and the environment.
//
// Private to config.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "config/base/status.h"
#include "config/settings_visitor.h"

namespace millrace::config {

// VisitSettings or a part of it, over an object.
using Visit = std::function<void(const SettingVisitor&)>;

// "http-port" and "http_port" are one name.
std::string Canonical(std::string_view name);

// As a flag is typed: "-np", "--http-port". Of our own names all have two
// dashes; of aliases, and of flags of others, those of at most three letters
// have one.
std::string AsFlag(std::string_view name, bool is_own);

struct Target {
  SettingInfo info;
  SettingRef value = static_cast<bool*>(nullptr);
  std::string_view bare_unit;  // of the alias it was called by
  bool negated = false;        // "no_access_log"
  bool found = false;
};

// Where a name stands: some aliases are flags alone.
enum class NameIn { kFile, kCommandLine };

// The setting called `name`, by its own name, by an alias, or, for a switch, by
// its opposite.
Target Find(const Visit& visit, const std::string& name,
            NameIn where = NameIn::kFile);
bool IsList(const Target& target);
// INVALID_ARGUMENT as of ParseValue; the value then stays.
Status Set(const Target& target, std::string_view text);
// Names and aliases.
std::vector<std::string_view> Names(const Visit& visit,
                                    NameIn where = NameIn::kFile);

}  // namespace millrace::config
