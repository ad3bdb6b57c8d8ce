// Four layers write into one Settings, each overwriting the one below. The
// environment is asked for canonical names only: container platforms set
// variables of their own making (a service called millrace gives every pod a
// MILLRACE_PORT), which must not be taken for aliases, nor be warned of.
#include "config/load.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include <yaml-cpp/yaml.h>

#include "config/base/nearest.h"
#include "config/base/utf8.h"
#include "config/environment.h"
#include "config/find_setting.h"
#include "config/foreign_names.h"
#include "config/settings_visitor.h"
#include "config/speculation.h"
#include "config/values.h"
#include "config/yaml.h"

namespace millrace::config {
namespace {

class Loader {
 public:
  explicit Loader(const Sources& sources) : sources_(sources) {}

  StatusOr<Loaded> Run() {
    if (!sources_.config_file.empty()) RETURN_IF_ERROR(ReadFile());
    // Those of the command line stand first: clients that name no model get
    // the first one.
    settings().models.insert(settings().models.begin(), sources_.models.begin(),
                             sources_.models.end());
    overrides_.insert(overrides_.begin(), sources_.models.size(), {});
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
    RETURN_IF_ERROR(CheckModelIds(settings().models, sources_));
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
      return ReadYaml(LoadYaml(text.str()));
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
                             " holds no settings; expected lines like "
                             "'http_port: 8000'")
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
        if (key == "path" || key == "name") {
          return Misplaced(key, At(entry.first),
                           "belongs to a model; write '- path: FILE' under "
                           "'models:'");
        }
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
    const std::string name = Canonical(key);
    std::string message =
        where + ": unknown setting '" + Shortened(key, 100) + "'; ";
    const std::string_view answer = ForeignNameAnswer(name);
    const std::string_view near = Nearest(name, names);
    if (!answer.empty()) {
      message += answer;
    } else if (!near.empty()) {
      message.append("did you mean '").append(near).append("'?");
    } else {
      message += "millrace serve --help-all lists the settings";
    }
    return InvalidArgument(message).At(key);
  }

  // A setting in the wrong place of the file: of the server under a model, or
  // of a model at the top.
  static Status Misplaced(const std::string& key, const std::string& where,
                          const std::string& right) {
    return InvalidArgument(where + ": " + key + " " + right).At(key);
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
        if (!item.IsScalar()) {
          return InvalidArgument(At(item) + ": an item of " + name +
                                 " has no single value; write it as " +
                                 AsFlag(name, true) + " takes it")
              .At(name);
        }
        list.append(list.empty() ? "" : ",").append(item.Scalar());
      }
      return list;
    }
    if (node.IsMap() && name == "override_generation_config") {
      return JsonOf(node);
    }
    return InvalidArgument(At(node) + ": " + name + " has no single value")
        .At(name);
  }

  // {temperature: 0.5} as {"temperature": 0.5}; what is wrong with a value is
  // found by the reader of the JSON.
  static std::string JsonOf(const YAML::Node& map) {
    std::string json;
    for (const auto& field : map) {
      json.append(json.empty() ? "{\"" : ", \"");
      json.append(field.first.as<std::string>()).append("\": ");
      json.append(field.second.IsScalar() ? field.second.Scalar() : "[]");
    }
    return json.empty() ? "{}" : json + "}";
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
        const Visit server = [&](const SettingVisitor& v) {
          VisitServerSettings(settings().server, v);
        };
        if (Find(server, Canonical(key)).found) {
          return Misplaced(key, where,
                           "belongs to the server, not to a model; write it at "
                           "the top level of the file");
        }
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

  // Sets it for the server, or for every model there is. Errors call it
  // `where`, as it was given.
  Status SetForAll(const std::string& name, const std::string& text,
                   const std::string& where, Origin origin) {
    Target target = Find(AllSettings(), name, NameIn::kCommandLine);
    const std::string canonical(target.info.name);
    target.info.name = where;
    if (const Status set = Set(target, text); !set.ok()) {
      return set.At(canonical);
    }
    loaded_.origins[canonical] = origin;
    for (size_t i = 0; i < settings().models.size(); ++i) {
      const Target own = Find(
          [&](const SettingVisitor& v) {
            VisitModelSettings(settings().models[i], v);
          },
          name, NameIn::kCommandLine);
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
    const auto variables = sources_.environment ? sources_.environment()
                           : sources_.getenv    ? Environment()
                                                : ProcessEnvironment();
    loaded_.warnings = UnknownVariables(variables, names);
    return OkStatus();
  }

  Status ReadFlags() {
    for (const auto& [typed, value] : sources_.flags) {
      const std::string name = Canonical(typed);
      const Target target = Find(AllSettings(), name, NameIn::kCommandLine);
      if (!target.found) return UnknownFlag(typed);
      const bool is_own = target.info.name == name || target.negated;
      std::string where = AsFlag(typed, is_own);
      if (!is_own) where.append(" (").append(target.info.name).append(")");
      RETURN_IF_ERROR(SetForAll(name, value, where, Origin::kFlag));
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

  const Sources& sources_;
  Loaded loaded_;
  std::vector<std::vector<Override>> overrides_;  // as settings().models
};

}  // namespace

StatusOr<Loaded> Load(const Sources& sources) { return Loader(sources).Run(); }

Status CheckModelIds(const std::vector<ModelSettings>& models,
                     const Sources& sources) {
  const size_t num_typed = sources.models.size();
  std::map<std::string, size_t> ids;  // name to the model's place
  for (size_t i = 0; i < models.size(); ++i) {
    std::vector<std::string> own = models[i].served_model_name;
    const bool is_address = models[i].path.find("://") != std::string::npos;
    if (!models[i].name.empty() || !is_address) {
      own.push_back(ModelId(models[i]));
    }
    for (const std::string& id : own) {
      const auto [at, is_new] = ids.emplace(id, i);
      if (is_new) continue;
      if (at->second < num_typed && i >= num_typed) {
        return InvalidArgument(
                   "the command line and " + sources.config_file +
                   " both name a model '" + id +
                   "'; the models of both are served, so give one of them "
                   "another name or leave it out")
            .At("models");
      }
      return InvalidArgument("two models, or two names of one, are '" + id +
                             "'; give one of them another name")
          .At("models");
    }
  }
  return OkStatus();
}

}  // namespace millrace::config
