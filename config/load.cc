// Four layers write into one Settings, each overwriting the one below. The
// environment is asked for canonical names only: container platforms set
// variables of their own making (a service called millrace gives every pod a
// MILLRACE_PORT), which must not be taken for aliases.
#include "config/load.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include <yaml-cpp/yaml.h>

#include "config/settings_visitor.h"
#include "config/speculation.h"
#include "config/values.h"

namespace millrace::config {
namespace {

using Visit = std::function<void(const SettingVisitor&)>;

// "--http-port", "http-port" and "http_port" are one name.
std::string Canonical(std::string_view name) {
  std::string out(name);
  for (char& c : out) c = c == '-' ? '_' : c;
  return out;
}

std::string Dashed(std::string_view name) {
  std::string out(name);
  for (char& c : out) c = c == '_' ? '-' : c;
  return out;
}

struct Target {
  SettingInfo info;
  SettingRef value = static_cast<bool*>(nullptr);
  std::string_view bare_unit;  // of the alias it was called by
  bool negated = false;        // "no_access_log"
  bool found = false;
};

// The setting called `name`, by its own name, by an alias, or, for a switch, by
// its opposite.
Target Find(const Visit& visit, const std::string& name) {
  Target target;
  visit([&](const SettingInfo& info, SettingRef value) {
    const auto take = [&](std::string_view bare_unit, bool negated) {
      target = {info, value, bare_unit, negated, true};
    };
    if (info.name == name) take({}, false);
    for (const SettingInfo::Alias& alias : info.aliases) {
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

std::vector<std::string_view> Names(const Visit& visit) {
  std::vector<std::string_view> names;
  visit([&](const SettingInfo& info, SettingRef) {
    names.push_back(info.name);
    for (const auto& alias : info.aliases) names.push_back(alias.name);
  });
  return names;
}

class Loader {
 public:
  explicit Loader(const Sources& sources) : sources_(sources) {}

  StatusOr<Loaded> Run() {
    if (!sources_.config_file.empty()) RETURN_IF_ERROR(ReadFile());
    if (!sources_.models.empty()) {
      settings().models = sources_.models;
      overrides_.assign(settings().models.size(), {});
    }
    // A model starts from the file's general settings; its own come next, and
    // then what the environment and the flags say to all.
    for (size_t i = 0; i < settings().models.size(); ++i) {
      ModelSettings& model = settings().models[i];
      model.common = settings().common;
      model.llm = settings().llm;
      model.graph = settings().graph;
      for (const Override& own : overrides_[i]) {
        RETURN_IF_ERROR(SetOwn(i, own));
      }
    }
    RETURN_IF_ERROR(ReadEnvironment());
    RETURN_IF_ERROR(ReadFlags());
    RETURN_IF_ERROR(HandOverServedNames());
    RETURN_IF_ERROR(CheckIds());
    for (const ModelSettings& model : settings().models) {
      RETURN_IF_ERROR(SpeculativeMethodOf(model.llm).status());
    }
    return std::move(loaded_);
  }

 private:
  struct Override {
    std::string key;
    std::string value;
    std::string where;
  };

  Settings& settings() { return loaded_.settings; }
  Visit AllSettings() {
    return [this](const SettingVisitor& v) { VisitSettings(settings(), v); };
  }

  // ---- file ----

  std::string At(const YAML::Node& node) const {
    return sources_.config_file + " line " +
           std::to_string(node.Mark().line + 1);
  }

  Status ReadFile() {
    std::error_code ignored;
    std::ifstream file(sources_.config_file);
    if (!file || std::filesystem::is_directory(sources_.config_file, ignored)) {
      return NotFound("the configuration file '" + sources_.config_file +
                      "' cannot be read; check the path after --config")
          .At("config");
    }
    std::ostringstream text;
    text << file.rdbuf();
    // yaml-cpp throws for bad syntax and for values of another kind.
    try {
      return ReadYaml(YAML::Load(text.str()));
    } catch (const YAML::Exception& error) {
      return InvalidArgument(sources_.config_file + " line " +
                             std::to_string(error.mark.line + 1) +
                             " is no YAML: " + error.msg)
          .At("config");
    }
  }

  Status ReadYaml(const YAML::Node& document) {
    if (document.IsNull()) return OkStatus();
    if (!document.IsMap()) {
      return InvalidArgument(sources_.config_file +
                             " holds no settings; lines like 'http_port: 8000' "
                             "are wanted")
          .At("config");
    }
    std::set<std::string> seen;
    for (const auto& entry : document) {
      const std::string key = entry.first.as<std::string>();
      if (key == "models") {
        RETURN_IF_ERROR(Once(seen, key, At(entry.first)));
        RETURN_IF_ERROR(ReadModels(entry.second));
        continue;
      }
      const Target target = Find(AllSettings(), Canonical(key));
      if (!target.found) {
        std::vector<std::string_view> names = Names(AllSettings());
        names.push_back("models");
        return Unknown(key, names, At(entry.first));
      }
      const std::string name(target.info.name);
      RETURN_IF_ERROR(Once(seen, name, At(entry.first)));
      ASSIGN_OR_RETURN(const std::string text,
                       Text(entry.second, name, IsList(target)));
      RETURN_IF_ERROR(Set(target, text).Prefixed(At(entry.first)));
      loaded_.origins[name] = Origin::kFile;
    }
    return OkStatus();
  }

  static Status Unknown(const std::string& key,
                        const std::vector<std::string_view>& names,
                        const std::string& where) {
    return InvalidArgument(where + ": unknown setting '" + key.substr(0, 100) +
                           "'; did you mean '" +
                           std::string(Nearest(Canonical(key), names)) + "'?")
        .At(key);
  }

  static Status Once(std::set<std::string>& seen, const std::string& name,
                     const std::string& where) {
    if (seen.insert(name).second) return OkStatus();
    return InvalidArgument(where + ": " + name +
                           " is given twice; keep one of them")
        .At(name);
  }

  // A scalar's text; a sequence of scalars as a list with commas.
  StatusOr<std::string> Text(const YAML::Node& node, const std::string& name,
                             bool is_list) const {
    if (node.IsScalar()) return node.Scalar();
    if (node.IsSequence() && is_list) {
      std::string list;
      for (const auto& item : node) {
        if (!item.IsScalar()) break;
        list.append(list.empty() ? "" : ",").append(item.Scalar());
      }
      return list;
    }
    return InvalidArgument(At(node) + ": " + name + " has no single value")
        .At(name);
  }

  Status ReadModels(const YAML::Node& list) {
    if (!list.IsSequence()) {
      return InvalidArgument(At(list) +
                             ": models is no list; '- path: FILE' lines are "
                             "wanted under it")
          .At("models");
    }
    for (const auto& entry : list) {
      if (!entry.IsMap()) {
        return InvalidArgument(At(entry) +
                               ": a model is given as '- path: FILE'")
            .At("models");
      }
      RETURN_IF_ERROR(ReadModel(entry));
    }
    return OkStatus();
  }

  Status ReadModel(const YAML::Node& entry) {
    ModelSettings model;
    std::vector<Override> own;
    const Visit llm = [&](const SettingVisitor& v) {
      VisitModelSettings(model, v);
    };
    std::set<std::string> seen;
    for (const auto& field : entry) {
      const std::string key = field.first.as<std::string>();
      const std::string where = At(field.first);
      if (key == "name" || key == "path" || key == "served_model_name") {
        RETURN_IF_ERROR(Once(seen, key, where));
        ASSIGN_OR_RETURN(const std::string text,
                         Text(field.second, key, key == "served_model_name"));
        if (key == "name") model.name = text;
        if (key == "path") model.path = text;
        if (key == "served_model_name") {
          RETURN_IF_ERROR(
              ParseValue({.name = key}, text, {}, &model.served_model_name)
                  .Prefixed(where));
        }
        continue;
      }
      const Target target = Find(llm, Canonical(key));
      if (!target.found) {
        std::vector<std::string_view> names = Names(llm);
        names.insert(names.end(), {"name", "path", "served_model_name"});
        return Unknown(key, names, where);
      }
      const std::string name(target.info.name);
      RETURN_IF_ERROR(Once(seen, name, where));
      ASSIGN_OR_RETURN(const std::string text,
                       Text(field.second, name, IsList(target)));
      own.push_back({key, text, where});
    }
    if (model.path.empty()) {
      return InvalidArgument(At(entry) +
                             ": the model has no path; add 'path: FILE'")
          .At("models");
    }
    settings().models.push_back(std::move(model));
    overrides_.push_back(std::move(own));
    return OkStatus();
  }

  Status SetOwn(size_t model, const Override& own) {
    const Visit llm = [&](const SettingVisitor& v) {
      VisitModelSettings(settings().models[model], v);
    };
    const Target target = Find(llm, Canonical(own.key));
    RETURN_IF_ERROR(Set(target, own.value).Prefixed(own.where));
    loaded_.origins[OwnName(model, target.info.name)] = Origin::kFile;
    return OkStatus();
  }

  static std::string OwnName(size_t model, std::string_view name) {
    return "models[" + std::to_string(model) + "]." + std::string(name);
  }

  // ---- environment and flags ----

  // Sets it for the server, or for every model there is.
  Status SetForAll(const std::string& name, const std::string& text,
                   const std::string& where, Origin origin) {
    const Target target = Find(AllSettings(), name);
    RETURN_IF_ERROR(Set(target, text).Prefixed(where));
    const std::string canonical(target.info.name);
    loaded_.origins[canonical] = origin;
    for (size_t i = 0; i < settings().models.size(); ++i) {
      const Target own = Find(
          [&](const SettingVisitor& v) {
            VisitModelSettings(settings().models[i], v);
          },
          name);
      if (!own.found) continue;
      RETURN_IF_ERROR(Set(own, text));
      loaded_.origins.erase(OwnName(i, canonical));
    }
    return OkStatus();
  }

  Status ReadEnvironment() {
    const auto from_process =
        [](const std::string& name) -> std::optional<std::string> {
      const char* value = std::getenv(name.c_str());
      return value == nullptr ? std::nullopt : std::optional(value);
    };
    std::vector<std::string> names;
    VisitSettings(settings(), [&](const SettingInfo& info, SettingRef) {
      names.emplace_back(info.name);
    });
    for (const std::string& name : names) {
      std::string variable = "MILLRACE_";
      for (const char c : name) {
        variable += static_cast<char>(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
      }
      const auto value =
          sources_.getenv ? sources_.getenv(variable) : from_process(variable);
      // An empty variable is how a shell or a manifest says "not set".
      if (!value || value->empty()) continue;
      RETURN_IF_ERROR(SetForAll(name, *value, variable, Origin::kEnvironment));
    }
    return OkStatus();
  }

  Status ReadFlags() {
    for (const auto& [typed, value] : sources_.flags) {
      if (KindOfFlag(typed) == FlagKind::kUnknown) return UnknownFlag(typed);
      const std::string dashes = typed.size() > 3 ? "--" : "-";
      RETURN_IF_ERROR(
          SetForAll(Canonical(typed), value, dashes + typed, Origin::kFlag));
    }
    return OkStatus();
  }

  // ---- models as a whole ----

  Status HandOverServedNames() {
    std::vector<std::string>& names = settings().served_model_name;
    if (names.empty() || settings().models.empty()) return OkStatus();
    if (settings().models.size() > 1) {
      return InvalidArgument(
                 "served_model_name is '" + names.front() + "' but there are " +
                 std::to_string(settings().models.size()) +
                 " models; give each its own under `models` in the file")
          .At("served_model_name");
    }
    settings().models.front().served_model_name = names;
    return OkStatus();
  }

  Status CheckIds() {
    std::set<std::string> ids;
    for (const ModelSettings& model : settings().models) {
      std::vector<std::string> own = model.served_model_name;
      own.push_back(ModelId(model));
      for (const std::string& id : own) {
        if (ids.insert(id).second) continue;
        return InvalidArgument("two models, or two names of one, are '" + id +
                               "'; give one of them another name")
            .At("models");
      }
    }
    return OkStatus();
  }

  const Sources& sources_;
  Loaded loaded_;
  std::vector<std::vector<Override>> overrides_;  // as settings().models
};

}  // namespace

StatusOr<Loaded> Load(const Sources& sources) { return Loader(sources).Run(); }

FlagKind KindOfFlag(std::string_view name) {
  Settings settings;
  const Target target =
      Find([&](const SettingVisitor& v) { VisitSettings(settings, v); },
           Canonical(name));
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
  Settings settings;
  const auto names =
      Names([&](const SettingVisitor& v) { VisitSettings(settings, v); });
  return InvalidArgument("unknown flag --" + std::string(name.substr(0, 100)) +
                         "; did you mean --" +
                         Dashed(Nearest(Canonical(name), names)) + "?")
      .At(name);
}

}  // namespace millrace::config
