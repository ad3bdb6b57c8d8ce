// The one description of each setting. VisitSettings walks it over a Settings
// object, handing out what is known of a setting and where its value stands.
//
// Private to config: reading, printing and --help are made from it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "config/schema.h"
#include "config/task_settings.h"

namespace millrace::config {

enum class Unit {
  kNone,
  kBytes,         // "2GiB"; a bare number is bytes
  kMilliseconds,  // "5ms"; a bare number is seconds
  kMicroseconds,  // "500us"; a bare number is seconds
  kShare,         // "5%", kept in millionths; a bare number is a part of one
  kTokens,        // "32K" is 32768, "32k" 32000, "25.6k" 25600, as with vLLM
};

struct SettingInfo {
  // Another name that users of other servers know.
  struct Alias {
    std::string_view name;
    std::string_view bare_unit = {};  // of a bare number, where it differs
    // A letter or two of llama.cpp's command line ("-c"), which as a key of a
    // file may mean anything.
    bool flag_only = false;
  };
  std::string_view name;        // snake_case: YAML key, flag and MILLRACE_ name
  std::string_view group = {};  // heading of --help
  std::string_view help = {};   // what it does, in the words of --help
  Unit unit = Unit::kNone;
  int64_t min = 0;
  int64_t max = 0;
  std::vector<std::string_view> choices = {};  // of a text; empty: any
  std::vector<Alias> aliases = {};
  bool secret = false;
};

using SettingRef =
    std::variant<int64_t*, bool*, std::string*, std::vector<std::string>*>;
using SettingVisitor = std::function<void(const SettingInfo&, SettingRef)>;

// Tells each setting which group of --help it stands in. `visit` outlives it.
SettingVisitor InGroup(std::string_view group, const SettingVisitor& visit);

void VisitServerSettings(ServerSettings& settings, const SettingVisitor& visit);
void VisitLlmSettings(LlmSettings& settings, const SettingVisitor& visit);
void VisitGraphSettings(GraphSettings& settings, const SettingVisitor& visit);
// task_options of config.yaml: those that a task of this kind takes.
void VisitTaskSettings(TaskSettings& task, const SettingVisitor& visit);
// Those that one model may override.
void VisitModelSettings(ModelSettings& settings, const SettingVisitor& visit);
// All that are keys of the file's top level, in the order of --help.
void VisitSettings(Settings& settings, const SettingVisitor& visit);

}  // namespace millrace::config
