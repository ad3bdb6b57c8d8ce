// The settings as text: the effective configuration with its origins, and the
// flags part of --help. Both read the same description as the loader.
#include <sstream>

#include "config/load.h"
#include "config/settings_visitor.h"
#include "config/values.h"

namespace millrace::config {
namespace {

std::string_view Name(Origin origin) {
  switch (origin) {
    case Origin::kDefault:
      return "default";
    case Origin::kFile:
      return "file";
    case Origin::kEnvironment:
      return "environment";
    case Origin::kFlag:
      return "flag";
  }
  return "default";
}

Origin Of(const Loaded& loaded, const std::string& name) {
  const auto at = loaded.origins.find(name);
  return at == loaded.origins.end() ? Origin::kDefault : at->second;
}

std::string Line(const SettingInfo& info, SettingRef value, Origin origin) {
  std::string line =
      std::string(info.name) + ": " + PrintValue(info, value) + "  ";
  if (line.size() < 40) line.resize(40, ' ');
  return line + "# " + std::string(Name(origin)) + "\n";
}

// A text as YAML, by way of the printer of text settings.
std::string Quoted(std::string text) {
  return PrintValue({.name = "text"}, &text);
}

std::string Placeholder(const SettingInfo& info, SettingRef value) {
  if (std::holds_alternative<bool*>(value)) return "";
  if (info.unit == Unit::kBytes) return " SIZE";
  if (info.unit == Unit::kMilliseconds || info.unit == Unit::kMicroseconds) {
    return " TIME";
  }
  if (info.unit == Unit::kShare) return " SHARE";
  if (std::holds_alternative<int64_t*>(value)) return " N";
  if (info.name.ends_with("file") || info.name == "chat_template") {
    return " FILE";
  }
  return " TEXT";
}

}  // namespace

std::string Dump(const Loaded& loaded) {
  std::ostringstream out;
  Settings settings = loaded.settings;  // the visitor hands out writable ones
  VisitSettings(settings, [&](const SettingInfo& info, SettingRef value) {
    if (info.name == "served_model_name") {
      const auto& names = *std::get<std::vector<std::string>*>(value);
      if (names.empty() || !settings.models.empty()) return;
    }
    out << Line(info, value, Of(loaded, std::string(info.name)));
  });
  if (settings.models.empty()) return out.str();
  out << "models:\n";
  for (size_t i = 0; i < settings.models.size(); ++i) {
    ModelSettings& model = settings.models[i];
    out << "  - path: " << Quoted(model.path) << "\n";
    if (!model.name.empty()) out << "    name: " << Quoted(model.name) << "\n";
    if (!model.served_model_name.empty()) {
      out << "    served_model_name: "
          << PrintValue({.name = "served_model_name"}, &model.served_model_name)
          << "\n";
    }
    const std::string prefix = "models[" + std::to_string(i) + "].";
    VisitModelSettings(model, [&](const SettingInfo& info, SettingRef value) {
      const auto own = loaded.origins.find(prefix + std::string(info.name));
      if (own == loaded.origins.end()) return;
      out << "    " << Line(info, value, own->second);
    });
  }
  return out.str();
}

std::string FlagsHelp() {
  std::ostringstream out;
  Settings defaults;
  const auto describe = [&](const SettingInfo& info, SettingRef value) {
    std::string flag = "  --" + std::string(info.name);
    for (char& c : flag) c = c == '_' ? '-' : c;
    flag += Placeholder(info, value) + "  ";
    if (flag.size() < 34) flag.resize(34, ' ');
    out << flag << info.help;
    std::string facts = DescribeBounds(info, value);
    const std::string standard = PrintValue(info, value);
    if (standard != "\"\"" && standard != "[]") {
      facts += (facts.empty() ? "" : ", ") + std::string("default ") + standard;
    }
    if (!facts.empty()) out << " (" << facts << ")";
    if (!info.aliases.empty()) {
      out << "; also";
      for (const auto& alias : info.aliases) {
        std::string dashed = alias.name.size() > 3 ? " --" : " -";
        dashed += alias.name;
        for (char& c : dashed) c = c == '_' ? '-' : c;
        out << dashed;
        if (!alias.bare_unit.empty()) out << " (in " << alias.bare_unit << ")";
      }
    }
    out << "\n";
  };
  size_t num_server = 0, index = 0;
  VisitServerSettings(defaults.server,
                      [&](const SettingInfo&, SettingRef) { ++num_server; });
  out << "server:\n";
  VisitSettings(defaults, [&](const SettingInfo& info, SettingRef value) {
    if (index++ == num_server) {
      out << "\nmodels (the file may set these for one of them, under "
             "`models`):\n";
    }
    describe(info, value);
  });
  out << "\nSIZE is bytes or 64MiB, 2GiB, 4GB; TIME is seconds or 5ms, 30s, "
         "2min;\nSHARE is 0.05 or 5%. A switch stands alone or takes =true or "
         "=false; --no-NAME "
         "turns it off.\n";
  return out.str();
}

}  // namespace millrace::config
