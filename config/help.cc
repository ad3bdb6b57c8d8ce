// The flags part of --help, made from the same description as the loader.
#include <algorithm>
#include <iterator>
#include <string>
#include <vector>

#include "config/base/wrap.h"
#include "config/load.h"
#include "config/settings_visitor.h"
#include "config/values.h"

namespace millrace::config {
namespace {

constexpr size_t kColumn = 32;

// What most people need.
constexpr std::string_view kShort[] = {"host",
                                       "http_port",
                                       "grpc_port",
                                       "api_key",
                                       "no_auth",
                                       "shutdown_timeout",
                                       "log_level",
                                       "log_format",
                                       "threads",
                                       "max_queue_size",
                                       "max_model_len",
                                       "max_num_seqs",
                                       "chat_template",
                                       "generation_config",
                                       "quantize",
                                       "kv_cache_memory_bytes",
                                       "kv_cache_dtype",
                                       "speculative_model",
                                       "precision",
                                       "max_batch_size",
                                       "instance_count",
                                       "max_queue_delay",
                                       "isa",
                                       "model_repository",
                                       "served_model_name"};

std::string FlagName(const SettingInfo& info) {
  std::string name(info.name);
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

std::string Placeholder(const SettingInfo& info, SettingRef value) {
  if (std::holds_alternative<bool*>(value)) return "";
  if (info.unit == Unit::kBytes) return " SIZE";
  if (info.unit == Unit::kMilliseconds || info.unit == Unit::kMicroseconds) {
    return " TIME";
  }
  if (info.unit == Unit::kShare) return " SHARE";
  if (std::holds_alternative<int64_t*>(value)) return " N";
  if (info.name == "override_generation_config") return " JSON";
  if (info.name.ends_with("file") || info.name == "chat_template" ||
      info.name == "speculative_model" || info.name == "quantization") {
    return " FILE";
  }
  return info.name == "model_repository" ? " DIR" : " TEXT";
}

std::string Aliases(const SettingInfo& info) {
  std::string text;
  for (const auto& alias : info.aliases) {
    text += text.empty() ? "; also" : "";
    std::string dashed = alias.name.size() > 3 ? " --" : " -";
    dashed += alias.name;
    for (char& c : dashed) c = c == '_' ? '-' : c;
    text += dashed;
    if (!alias.bare_unit.empty()) {
      text.append(" (in ").append(alias.bare_unit).append(")");
    }
  }
  return text;
}

// As a person would type it: a text without quotes.
std::string DefaultValue(const SettingInfo& info, SettingRef value) {
  if (auto* text = std::get_if<std::string*>(&value)) return **text;
  const std::string printed = PrintValue(info, value);
  return printed == "[]" ? "" : printed;
}

// What the help says of the default value ("0: as the model says"), or the
// value.
std::string DefaultText(const SettingInfo& info, const std::string& standard) {
  const std::string mark = "; " + standard + ": ";
  const size_t at = info.help.find(mark);
  if (at == info.help.npos) return "default " + standard;
  const std::string_view rest = info.help.substr(at + mark.size());
  return "default: " + std::string(rest.substr(0, rest.find(';')));
}

// One clause and the default.
std::string DescribeShortly(const SettingInfo& info, SettingRef value) {
  std::string text(info.help.substr(0, info.help.find_first_of(";:")));
  std::string facts = info.choices.empty() ? "" : DescribeBounds(info, value);
  const std::string standard = DefaultValue(info, value);
  if (!standard.empty() && !std::holds_alternative<bool*>(value)) {
    facts += (facts.empty() ? "" : ", ") + DefaultText(info, standard);
  }
  return facts.empty() ? text : text + " (" + facts + ")";
}

std::string Describe(const SettingInfo& info, SettingRef value) {
  std::string text(info.help);
  std::string facts = DescribeBounds(info, value);
  const std::string standard = DefaultValue(info, value);
  if (!standard.empty()) {
    facts += (facts.empty() ? "" : ", ") + std::string("default ") + standard;
  }
  if (standard == "true") {
    facts += "; --no-" + FlagName(info) + " turns it off";
  }
  if (!facts.empty()) text += " (" + facts + ")";
  return text + Aliases(info);
}

bool IsShort(std::string_view name) {
  return std::find(std::begin(kShort), std::end(kShort), name) !=
         std::end(kShort);
}

struct Group {
  std::string_view name;
  std::string text;
};

}  // namespace

std::vector<FlagInfo> Flags() {
  Settings defaults;
  std::vector<FlagInfo> flags;
  VisitSettings(defaults, [&](const SettingInfo& info, SettingRef value) {
    flags.push_back({FlagName(info),
                     std::string(info.help),
                     !std::holds_alternative<bool*>(value),
                     {info.choices.begin(), info.choices.end()}});
  });
  return flags;
}

std::string FlagsHelp(size_t width, bool all) {
  Settings defaults;
  std::vector<Group> groups;  // in the order of their first setting
  VisitSettings(defaults, [&](const SettingInfo& info, SettingRef value) {
    if (!all && !IsShort(info.name)) return;
    auto group = std::find_if(
        groups.begin(), groups.end(),
        [&](const Group& each) { return each.name == info.group; });
    if (group == groups.end()) {
      group = groups.insert(groups.end(), {info.group, ""});
    }
    const std::string flag = "  --" + FlagName(info) + Placeholder(info, value);
    group->text += HelpEntry(
        flag, all ? Describe(info, value) : DescribeShortly(info, value),
        kColumn, width);
  });
  std::string out;
  for (const Group& group : groups) {
    out.append(out.empty() ? "" : "\n").append(group.name).append(":\n");
    out += group.text;
  }
  if (all) {
    out += "\n" + WrapText(
                      "SIZE is bytes or 64MiB, 2GiB, 4GB; TIME is seconds or "
                      "5ms, 30s, 2min; SHARE is 0.05 or 5%. A switch stands "
                      "alone or takes =true or =false; --no-NAME turns it off. "
                      "In the YAML file the settings of models may also stand "
                      "under one of `models`.",
                      0, width);
  }
  return out;
}

}  // namespace millrace::config
