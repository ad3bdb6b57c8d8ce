// A rule for each schema that is a target of a reference, for each member and
// for each rest of a list; all other schemas stand in place.
#include "models/grammar/literal_grammar.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "config/base/json.h"
#include "models/grammar/literal_parts.h"
#include "models/grammar/number_grammar.h"

namespace millrace::models {
namespace {

using Json = nlohmann::ordered_json;
using Text = StatusOr<std::string>;

constexpr int64_t kMostCharacters = 1000;  // of minLength and maxLength

// The number behind a keyword; none where it is absent.
std::optional<int64_t> NumberAt(const Json& schema, const char* keyword) {
  const auto found = schema.find(keyword);
  if (found == schema.end()) return std::nullopt;
  return found->get<int64_t>();
}

std::optional<int64_t> Less(std::optional<int64_t> number, int64_t by) {
  if (number) *number -= by;
  return number;
}

// What a minLength and a maxLength have become.
struct Lengths {
  int64_t least = 0;
  std::optional<int64_t> most;
};
std::optional<Lengths> LengthsOf(const Json& schema) {
  Lengths lengths = {schema.value("minLength", int64_t{0}),
                     NumberAt(schema, "maxLength")};
  if (schema.contains("format")) return std::nullopt;
  if (!schema.contains("pattern")) return lengths;
  const auto pattern = schema["pattern"].get<std::string>();
  int low = 0;
  int high = 0;
  int end = -1;
  if (std::sscanf(pattern.c_str(), "^.{%d,}$%n", &low, &end) == 1 &&
      end == static_cast<int>(pattern.size())) {
    return Lengths{low, std::nullopt};
  }
  if (std::sscanf(pattern.c_str(), "^.{%d,%d}$%n", &low, &high, &end) == 2 &&
      end == static_cast<int>(pattern.size())) {
    return Lengths{low, high};
  }
  return std::nullopt;
}

class Writer {
 public:
  Writer(const LiteralNotation& notation, const Json& root)
      : parts_(notation), root_(root) {}

  Text Grammar() {
    ASSIGN_OR_RETURN(const std::string arguments, Arguments(root_, ""));
    parts_.AddRule("root", arguments);
    return parts_.rules();
  }

 private:
  Status Unsupported(const std::string& path, const std::string& what) const {
    return InvalidArgument(
        "the schema" + (path.empty() ? "" : " at '" + path + "'") + " has " +
        what + ", which calls in this model's format (" +
        std::string(parts_.notation().name) +
        ") cannot be held to; leave it out");
  }
  Text At(const std::string& path, Text text) const {
    if (text.ok()) return text;
    return Unsupported(path, std::string(text.status().message()));
  }
  std::string separator() const {
    return std::string(parts_.notation().separator);
  }

  Text Reference(const std::string& ref) {
    const std::string name = ref.substr(ref.rfind('/') + 1);
    if (!parts_.Claim(name)) return name;
    ASSIGN_OR_RETURN(const std::string target,
                     Value(root_["$defs"][name], "/$defs/" + name));
    parts_.AddRule(name, target);
    return name;
  }

  Text AnyOf(const Json& branches, const std::string& path, bool arguments) {
    std::string out;
    for (size_t i = 0; i < branches.size(); ++i) {
      const std::string place = path + "/anyOf/" + std::to_string(i);
      ASSIGN_OR_RETURN(const std::string part,
                       arguments ? Arguments(branches[i], place)
                                 : Value(branches[i], place));
      out += (out.empty() ? "(" : " | ") + part;
    }
    return out + ")";
  }

  Text Enum(const Json& values, const std::string& path) {
    std::string out;
    for (const Json& value : values) {
      ASSIGN_OR_RETURN(const std::string part,
                       At(path, parts_.Constant(value)));
      out += (out.empty() ? "(" : " | ") + part;
    }
    return out + ")";
  }

  Text String(const Json& schema, const std::string& path) {
    const std::optional<Lengths> lengths = LengthsOf(schema);
    if (!lengths) return Unsupported(path, "a 'pattern' or 'format'");
    const auto& [least, most] = *lengths;
    if (least == 0 && !most) return parts_.AnyString();
    if (std::max(least, most.value_or(0)) > kMostCharacters) {
      return Unsupported(path, "a 'minLength' or 'maxLength' above " +
                                   std::to_string(kMostCharacters));
    }
    return parts_.StringOf(least, most);
  }

  Text Integer(const Json& schema, const std::string& path) {
    if (schema.contains("multipleOf")) return Unsupported(path, "'multipleOf'");
    return "(" +
           IntegerEbnf(NumberAt(schema, "minimum"),
                       NumberAt(schema, "maximum")) +
           ")";
  }

  Text Number(const Json& schema, const std::string& path) {
    for (const auto& [keyword, unused] : schema.items()) {
      if (keyword != "type") return Unsupported(path, "'" + keyword + "'");
    }
    return parts_.AnyNumber();
  }

  Text Array(const Json& schema, const std::string& path) {
    const Json prefix = schema.value("prefixItems", Json::array());
    const auto size = static_cast<int64_t>(prefix.size());
    const int64_t least = schema.value("minItems", int64_t{0});
    const std::optional<int64_t> most = NumberAt(schema, "maxItems");
    const Json items = schema.value("items", Json(false));
    std::string rest = "\"\"";
    if (items != false && most.value_or(INT64_MAX) > size) {
      ASSIGN_OR_RETURN(std::string item, Value(items, path + "/items"));
      item = parts_.NewRule(item);
      if (size == 0) {
        const std::string all =
            item + " " +
            parts_.Separated(item, EbnfCount(std::max<int64_t>(0, least - 1),
                                             Less(most, 1)));
        return "\"[\" " + (least > 0 ? all : "(" + all + ")?") + " \"]\"";
      }
      rest = parts_.Separated(
          item,
          EbnfCount(std::max<int64_t>(0, least - size), Less(most, size)));
    }
    // From the last item to the first: what may follow those before it.
    for (int64_t i = size - 1; i >= 0; --i) {
      ASSIGN_OR_RETURN(const std::string item,
                       Value(prefix[static_cast<size_t>(i)],
                             path + "/" + std::to_string(i)));
      rest =
          parts_.NewRule((i >= least ? "\"\" | " : "") +
                         (i > 0 ? separator() + " " : "") + item + " " + rest);
    }
    return "\"[\" " + rest + " \"]\"";
  }

  // A member of an object, or an argument of the call itself.
  Text Member(const std::string& name, const Json& rule,
              const std::string& path, bool argument) {
    const LiteralNotation& notation = parts_.notation();
    std::string key;
    if (!argument || !notation.is_python()) {
      ASSIGN_OR_RETURN(key, At(path, parts_.Key(name)));
    } else if (IsLiteralWord(name)) {
      key = EbnfText(name);
    } else {
      return Unsupported(
          path, "the property '" + name + "', which is no name of an argument");
    }
    ASSIGN_OR_RETURN(const std::string value,
                     Value(rule, path + "/properties/" + name));
    return parts_.NewRule(key + " " + BehindKey(argument) + " " + value);
  }
  std::string BehindKey(bool argument) const {
    return argument ? EbnfText(parts_.notation().equals)
                    : std::string(parts_.notation().colon);
  }

  // The members of an object, without its brackets.
  Text Members(const Json& schema, const std::string& path, bool arguments) {
    for (const char* keyword : {"patternProperties", "propertyNames"}) {
      if (schema.contains(keyword)) {
        return Unsupported(path, "'" + std::string(keyword) + "'");
      }
    }
    const Json named = schema.value("properties", Json::object());
    if (named.empty()) return FreeMembers(schema, path, arguments);
    const Json required = schema.value("required", Json::array());
    if (schema.value("minProperties", size_t{0}) > required.size()) {
      return Unsupported(path, "'minProperties'");
    }
    if (schema.value("maxProperties", named.size()) < named.size()) {
      return Unsupported(path, "'maxProperties'");
    }
    struct Part {
      std::string rule;
      bool must;
    };
    std::vector<Part> members;
    for (const auto& [name, rule] : named.items()) {
      ASSIGN_OR_RETURN(std::string member, Member(name, rule, path, arguments));
      members.push_back(
          {std::move(member),
           std::ranges::find(required, Json(name)) != required.end()});
    }
    // What may stand behind a member, and what may stand first, from the last
    // property on.
    std::string behind = "\"\"";
    std::string first = "\"\"";
    for (size_t i = members.size(); i-- > 0;) {
      const auto& [member, must] = members[i];
      first =
          parts_.NewRule((must ? "" : first + " | ") + member + " " + behind);
      behind = parts_.NewRule((must ? "" : behind + " | ") + separator() + " " +
                              member + " " + behind);
    }
    return first;
  }

  Text FreeMembers(const Json& schema, const std::string& path,
                   bool arguments) {
    const Json rule = schema.value("additionalProperties", Json(false));
    const std::optional<int64_t> most = NumberAt(schema, "maxProperties");
    if (rule == false || most == 0) return std::string("\"\"");
    ASSIGN_OR_RETURN(const std::string value,
                     Value(rule, path + "/additionalProperties"));
    const std::string key = arguments || !parts_.notation().is_python()
                                ? parts_.AnyWord()
                                : parts_.AnyString();
    const std::string member =
        parts_.NewRule(key + " " + BehindKey(arguments) + " " + value);
    const std::string all =
        member + " " + parts_.Separated(member, EbnfCount(0, Less(most, 1)));
    return schema.contains("minProperties") ? all : "(" + all + ")?";
  }

  Text Arguments(const Json& schema, const std::string& path) {
    if (schema.contains("anyOf")) return AnyOf(schema["anyOf"], path, true);
    if (schema.value("type", "") == "object")
      return Members(schema, path, true);
    return Unsupported(path, "arguments that are not described by properties");
  }

  Text Value(const Json& schema, const std::string& path) {
    if (!schema.is_object() || schema.empty()) return parts_.AnyValue();
    if (schema.contains("$ref")) return Reference(schema["$ref"]);
    if (schema.contains("anyOf")) return AnyOf(schema["anyOf"], path, false);
    if (schema.contains("enum")) return Enum(schema["enum"], path);
    const auto type = schema["type"].get<std::string>();
    if (type == "string") return String(schema, path);
    if (type == "integer") return Integer(schema, path);
    if (type == "number") return Number(schema, path);
    if (type == "boolean") return parts_.AnyBoolean();
    if (type == "null") return EbnfText(parts_.notation().null);
    if (type == "array") return Array(schema, path);
    ASSIGN_OR_RETURN(const std::string members, Members(schema, path, false));
    return "\"{\" " + members + " \"}\"";
  }

  LiteralParts parts_;
  const Json& root_;
};

}  // namespace

bool IsNotation(std::string_view name) {
  return FindLiteralNotation(name) != nullptr;
}

StatusOr<std::string> ArgumentsEbnf(std::string_view schema,
                                    std::string_view notation) {
  ASSIGN_OR_RETURN(const Json root, ParseJson(schema));
  const LiteralNotation* words = FindLiteralNotation(notation);
  CHECK(words != nullptr, "callers name a notation that there is");
  return Writer(*words, root).Grammar();
}

}  // namespace millrace::models
