// What a command line may ask of one name: whether there is such a flag, and
// what to say where there is none.
#include "config/base/nearest.h"
#include "config/base/utf8.h"
#include "config/find_setting.h"
#include "config/foreign_names.h"
#include "config/load.h"

namespace millrace::config {

FlagKind KindOfFlag(std::string_view name) {
  Settings settings;
  const Target target =
      Find([&](const SettingVisitor& v) { VisitSettings(settings, v); },
           Canonical(name), NameIn::kCommandLine);
  if (!target.found) return FlagKind::kUnknown;
  return std::holds_alternative<bool*>(target.value) ? FlagKind::kSwitch
                                                     : FlagKind::kValue;
}

bool IsModelSetting(std::string_view name) {
  ModelSettings model;
  return Find([&](const SettingVisitor& v) { VisitModelSettings(model, v); },
              Canonical(name))
      .found;
}

Status SetModelSetting(ModelSettings* model, std::string_view name,
                       std::string_view text) {
  const Target target =
      Find([&](const SettingVisitor& v) { VisitModelSettings(*model, v); },
           Canonical(name));
  if (!target.found) {
    return NotFound("'" + std::string(name) + "' is no setting of a model");
  }
  return Set(target, text);
}

Status UnknownFlag(std::string_view name) {
  const std::string canonical = Canonical(name.substr(0, 100));
  if (const std::string_view answer = ForeignNameAnswer(canonical);
      !answer.empty()) {
    return InvalidArgument(
               AsFlag(canonical, false) +
               " is a flag of other servers: " + std::string(answer))
        .At(name);
  }
  Settings settings;
  const Visit all = [&](const SettingVisitor& v) {
    VisitSettings(settings, v);
  };
  std::vector<std::string> opposites;  // of switches
  all([&](const SettingInfo& info, SettingRef value) {
    if (std::holds_alternative<bool*>(value) && info.name != "no_auth") {
      opposites.push_back("no_" + std::string(info.name));
    }
  });
  std::vector<std::string_view> names = Names(all, NameIn::kCommandLine);
  names.insert(names.end(), opposites.begin(), opposites.end());
  const std::string near(Nearest(canonical, names));
  const std::string typed =
      (canonical.size() == 1 ? "-" : "--") + Shortened(name, 100);
  return InvalidArgument(
             "unknown flag " + typed +
             (near.empty()
                  ? "; millrace serve --help-all lists the flags"
                  : "; did you mean " +
                        AsFlag(near, near.size() > 3 ||
                                         Find(all, near, NameIn::kCommandLine)
                                                 .info.name == near) +
                        "?"))
      .At(name);
}

}  // namespace millrace::config
