// Source of the request's shape: vLLM's LogitsProcessorConstructor
// (vllm/entrypoints/openai/protocol.py).
#include "handlers/logits_processor_fields.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <regex>
#include <utility>

#include "config/base/utf8.h"
#include "handlers/json_fields.h"

namespace millrace::handlers {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kField = "logits_processors";
constexpr size_t kMaxProcessors = 32;
constexpr size_t kMaxParameters = 5;

struct Processor {
  std::string_view name;
  // Fields of the request, in the order of positional arguments. The first one
  // must be given, unless it has a value otherwise.
  std::string_view parameters[kMaxParameters];
  double otherwise = 0;  // 0: none
};

// The values otherwise: DRY's and XTC's are those that their author advises
// (github.com/oobabooga/text-generation-webui/pull/5677 and /6335).
constexpr Processor kProcessors[] = {
    {"allowed_token_ids", {"allowed_token_ids"}},
    {"bad_words", {"bad_words"}},
    {"dry",
     {"dry_multiplier", "dry_base", "dry_allowed_length", "dry_penalty_last_n",
      "dry_sequence_breakers"},
     0.8},
    {"frequency_penalty", {"frequency_penalty"}},
    {"logit_bias", {"logit_bias"}},
    {"min_p", {"min_p"}},
    {"min_tokens", {"min_tokens"}},
    {"no_repeat_ngram", {"no_repeat_ngram_size"}, 3},
    {"presence_penalty", {"presence_penalty"}},
    {"repetition_penalty", {"repetition_penalty"}},
    {"suppress_tokens", {"suppress_tokens"}},
    {"top_n_sigma", {"top_n_sigma"}},
    {"typical", {"typical_p"}},
    {"xtc", {"xtc_probability", "xtc_threshold"}, 0.5},
};

std::string Listed(const std::vector<std::string_view>& names) {
  std::string out;
  for (const std::string_view name : names) {
    if (!out.empty()) out += ", ";
    out += name;
  }
  return out;
}

std::vector<std::string_view> ParametersOf(const Processor& processor) {
  std::vector<std::string_view> out;
  for (const std::string_view name : processor.parameters) {
    if (!name.empty()) out.push_back(name);
  }
  return out;
}

StatusOr<const Processor*> Find(const std::string& name,
                                const std::string& path) {
  for (const Processor& processor : kProcessors) {
    if (processor.name == name) return &processor;
  }
  return InvalidArgument(path + " names " + Shown(Json(name)) +
                         ", which is no logits processor of this server; it "
                         "has " +
                         Listed(LogitsProcessorNames()))
      .At(kField);
}

// Values by the fields of the request, absent and null ones left out.
class Setter {
 public:
  explicit Setter(Json& fields) : fields_(fields) {}

  Status Set(std::string_view field, const Json& value,
             const std::string& path) {
    if (value.is_null()) return OkStatus();
    if (FindField(fields_, field) != nullptr) {
      return InvalidArgument(path + " sets " + std::string(field) +
                             ", which the request sets already; leave one out")
          .At(kField);
    }
    fields_[std::string(field)] = value;
    return OkStatus();
  }

 private:
  Json& fields_;
};

Status SetParameters(const Processor& processor, const Json& entry,
                     const std::string& path, Setter& setter) {
  const std::vector<std::string_view> parameters = ParametersOf(processor);
  const auto takes = [&] {
    return "; " + std::string(processor.name) + " takes " + Listed(parameters);
  };
  bool has_first = false;
  if (entry.is_object()) {
    ASSIGN_OR_RETURN(const Json* args, ReadArray(entry, "args"));
    ASSIGN_OR_RETURN(const Json* kwargs, ReadObject(entry, "kwargs"));
    const size_t num_args = args == nullptr ? 0 : args->size();
    if (num_args > parameters.size()) {
      return InvalidArgument(path + ".args holds " + std::to_string(num_args) +
                             " values" + takes())
          .At(kField);
    }
    for (size_t i = 0; i < num_args; ++i) {
      RETURN_IF_ERROR(setter.Set(parameters[i], (*args)[i], path + ".args"));
    }
    has_first = num_args > 0 && !(*args)[0].is_null();
    const Json none = Json::object();
    for (const auto& [key, value] :
         (kwargs != nullptr ? *kwargs : none).items()) {
      if (std::ranges::find(parameters, key) == parameters.end()) {
        return InvalidArgument(path + ".kwargs has " + Shown(Json(key)) +
                               takes())
            .At(kField);
      }
      RETURN_IF_ERROR(setter.Set(key, value, path + ".kwargs"));
      has_first = has_first || (key == parameters[0] && !value.is_null());
    }
  }
  if (has_first) return OkStatus();
  if (processor.otherwise != 0) {
    return setter.Set(parameters[0], Json(processor.otherwise), path);
  }
  return InvalidArgument(path + " names \"" + std::string(processor.name) +
                         "\", which needs " + std::string(parameters[0]) +
                         "; write {\"qualname\": \"" +
                         std::string(processor.name) + "\", \"kwargs\": {\"" +
                         std::string(parameters[0]) + "\": ...}}")
      .At(kField);
}

}  // namespace

std::vector<std::string_view> LogitsProcessorNames() {
  std::vector<std::string_view> names;
  for (const Processor& processor : kProcessors)
    names.push_back(processor.name);
  return names;
}

StatusOr<std::vector<std::string>> AllowedLogitsProcessors(
    const std::string& pattern) {
  std::vector<std::string> allowed;
  try {
    const std::regex regex(pattern);
    for (const std::string_view name : LogitsProcessorNames()) {
      if (std::regex_search(std::string(name), regex,
                            std::regex_constants::match_continuous)) {
        allowed.emplace_back(name);
      }
    }
  } catch (const std::regex_error& error) {
    return InvalidArgument("logits_processor_pattern is '" +
                           Shortened(pattern, 100) +
                           "', which is no regular expression: " + error.what())
        .At("logits_processor_pattern");
  }
  return allowed;
}

StatusOr<std::optional<NamedProcessors>> ReadLogitsProcessors(
    const Json& body) {
  ASSIGN_OR_RETURN(const Json* list, ReadArray(body, kField));
  if (list == nullptr || list->empty()) {
    return std::optional<NamedProcessors>();
  }
  if (list->size() > kMaxProcessors) {
    return InvalidArgument(std::string(kField) + " holds " +
                           std::to_string(list->size()) +
                           " processors but may hold at most " +
                           std::to_string(kMaxProcessors))
        .At(kField);
  }
  NamedProcessors out;
  Json fields = Json::object();
  for (const auto& [key, value] : body.items()) {
    // The long ones, which no sampling field is among.
    if (key == "messages" || key == "prompt" || key == kField) continue;
    fields[key] = value;
  }
  Setter setter(fields);
  for (size_t i = 0; i < list->size(); ++i) {
    const Json& entry = (*list)[i];
    const std::string path =
        std::string(kField) + "[" + std::to_string(i) + "]";
    const Json* qualname =
        entry.is_object() ? FindField(entry, "qualname") : &entry;
    if (qualname == nullptr || !qualname->is_string()) {
      return InvalidArgument(
                 path + " is " + Shown(entry) +
                 " but must be a name or {\"qualname\": name, \"args\": "
                 "[...], \"kwargs\": {...}}")
          .At(kField);
    }
    ASSIGN_OR_RETURN(const Processor* processor,
                     Find(qualname->get<std::string>(), path));
    RETURN_IF_ERROR(SetParameters(*processor, entry, path, setter));
    out.names.emplace_back(processor->name);
  }
  out.fields = std::make_shared<const Json>(std::move(fields));
  return std::optional<NamedProcessors>(std::move(out));
}

}  // namespace millrace::handlers
