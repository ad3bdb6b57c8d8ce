// The effective configuration with its origins, as YAML.
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

}  // namespace millrace::config
