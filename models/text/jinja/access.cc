// Attributes, items and slices. "d.items" is the method even when the dict has
// a key of that name, and d["items"] is the key; methods that would change a
// value are not there at all, as in the sandbox that templates are written for.
#include <algorithm>
#include <array>

#include "models/text/jinja/interpreter.h"
#include "models/text/jinja/operators.h"
#include "models/text/jinja/print.h"
#include "models/text/jinja/unicode.h"

namespace millrace::models::jinja {
namespace {

using Kind = Value::Kind;

std::string TypeInWords(const Value& value) {
  if (value.IsNone()) return "None";
  return std::string(value.TypeName()) + " object";
}

Value NoAttribute(const Value& value, std::string_view name) {
  return Value::Undefined("'" + TypeInWords(value) + "' has no attribute '" +
                          std::string(name) + "'");
}

bool Mutates(const Value& value, std::string_view name) {
  static constexpr std::string_view kList[] = {"append",  "clear", "extend",
                                               "insert",  "pop",   "remove",
                                               "reverse", "sort"};
  static constexpr std::string_view kDict[] = {"clear", "pop", "popitem",
                                               "setdefault", "update"};
  if (value.Is(Kind::kList)) {
    return std::find(std::begin(kList), std::end(kList), name) !=
           std::end(kList);
  }
  return value.IsDict() &&
         std::find(std::begin(kDict), std::end(kDict), name) != std::end(kDict);
}

Value LoopAttribute(const Value& value, std::string_view name) {
  const Loop& loop = *value.loop();
  const size_t size = loop.items.size();
  const auto number = [](size_t n) {
    return Value::Int(static_cast<Integer>(n));
  };
  const size_t left = size > loop.index ? size - loop.index : 0;
  if (name == "index") return number(loop.index + 1);
  if (name == "index0") return number(loop.index);
  if (name == "revindex") return number(left);
  if (name == "revindex0") return number(left > 0 ? left - 1 : 0);
  if (name == "first") return Value::Bool(loop.index == 0);
  if (name == "last") return Value::Bool(left <= 1);
  if (name == "length") return number(size);
  if (name == "depth") return Value::Int(loop.depth + 1);
  if (name == "depth0") return Value::Int(loop.depth);
  if (name == "previtem") {
    if (loop.index > 0) return loop.items[loop.index - 1];
    return Value::Undefined("there is no previous item");
  }
  if (name == "nextitem") {
    if (left > 1) return loop.items[loop.index + 1];
    return Value::Undefined("there is no next item");
  }
  return NoAttribute(value, name);
}

// What Python's getattr finds, without the values of a dict.
Value OwnAttribute(const Value& value, std::string_view name) {
  if (Mutates(value, name) || name.starts_with("__")) {
    return Value::Undefined("access to attribute '" + std::string(name) +
                            "' of '" + std::string(value.TypeName()) +
                            "' object is unsafe");
  }
  if (const Builtin* method = FindMethod(value.kind(), name)) {
    return Value::Function(method, value);
  }
  if (value.Is(Kind::kNamespace)) {
    if (const Value* found = value.space()->values.Find(name)) return *found;
  } else if (value.Is(Kind::kLoop)) {
    return LoopAttribute(value, name);
  } else if (value.Is(Kind::kMacro)) {
    if (name == "name") return Value::String(value.macro()->name);
  } else if (value.Is(Kind::kTuple) && value.sequence().name == "group") {
    if (name == "grouper") return value.items()[0];
    if (name == "list") return value.items()[1];
  }
  return NoAttribute(value, name);
}

// The bounds of a slice as Python resolves them.
struct Range {
  int64_t begin;
  int64_t end;
  int64_t step;
};

StatusOr<Range> Resolve(const Value& begin, const Value& end, const Value& step,
                        int64_t size) {
  const auto bound = [&](const Value& value, int64_t otherwise, int64_t low,
                         int64_t high) -> StatusOr<int64_t> {
    if (value.IsNone()) return otherwise;
    if (!value.IsInteger()) {
      return InvalidArgument("a slice's bounds must be integers, not " +
                             std::string(value.TypeName()));
    }
    Integer out = value.integer();
    if (out < 0) out += size;
    return static_cast<int64_t>(
        std::clamp(out, static_cast<Integer>(low), static_cast<Integer>(high)));
  };
  Range out{0, 0, 1};
  if (!step.IsNone()) {
    if (!step.IsInteger()) {
      return InvalidArgument("a slice's step must be an integer");
    }
    if (step.integer() == 0) {
      return InvalidArgument("slice step cannot be zero");
    }
    const Integer far = size + 1;
    out.step = static_cast<int64_t>(std::clamp(step.integer(), -far, far));
  }
  const bool forward = out.step > 0;
  const int64_t low = forward ? 0 : -1;
  const int64_t high = forward ? size : size - 1;
  ASSIGN_OR_RETURN(out.begin, bound(begin, forward ? low : high, low, high));
  ASSIGN_OR_RETURN(out.end, bound(end, forward ? high : low, low, high));
  return out;
}

}  // namespace

StatusOr<Value> GetAttribute(Runtime&, const Value& value,
                             std::string_view name) {
  if (value.IsUndefined()) return InvalidArgument(value.undefined_message());
  Value own = OwnAttribute(value, name);
  if (own.IsUndefined() && value.IsDict() && !Mutates(value, name)) {
    if (const Value* found = value.dict().Find(name)) return *found;
  }
  return own;
}

StatusOr<Value> GetItem(Runtime& runtime, const Value& value,
                        const Value& key) {
  if (value.IsUndefined()) return InvalidArgument(value.undefined_message());
  if (value.IsDict() && Dict::Hashable(key)) {
    if (const Value* found = value.dict().Find(key)) return *found;
  }
  if (key.IsString()) return OwnAttribute(value, key.str());
  if (key.IsInteger() && (value.IsListOrTuple() || value.IsString())) {
    const auto at = [&](size_t size) -> int64_t {
      const Integer i = key.integer();
      const Integer n = static_cast<Integer>(size);
      return i >= 0 && i < n       ? static_cast<int64_t>(i)
             : i < 0 && i + n >= 0 ? static_cast<int64_t>(i + n)
                                   : -1;
    };
    if (value.IsString()) {
      const auto offsets = CodePointOffsets(value.str());
      const int64_t i = at(offsets.size() - 1);
      RETURN_IF_ERROR(
          runtime.Make(static_cast<int64_t>(value.text().size() / 8)));
      if (i >= 0) {
        return Value::String(
            value.text().Slice(offsets[static_cast<size_t>(i)],
                               offsets[static_cast<size_t>(i) + 1]));
      }
    } else {
      const int64_t i = at(value.items().size());
      if (i >= 0) return value.items()[static_cast<size_t>(i)];
    }
  }
  ASSIGN_OR_RETURN(const Text shown, ToRepr(runtime, key));
  return Value::Undefined(TypeInWords(value) + " has no element " +
                          shown.bytes());
}

StatusOr<Value> GetSlice(Runtime& runtime, const Value& value,
                         const Value& begin, const Value& end,
                         const Value& step) {
  if (value.IsUndefined()) return InvalidArgument(value.undefined_message());
  if (value.IsString()) {
    const auto offsets = CodePointOffsets(value.str());
    const int64_t size = static_cast<int64_t>(offsets.size()) - 1;
    ASSIGN_OR_RETURN(const Range range, Resolve(begin, end, step, size));
    RETURN_IF_ERROR(runtime.Make(static_cast<int64_t>(value.text().size())));
    if (range.step == 1) {
      const int64_t stop = std::max(range.begin, range.end);
      return Value::String(
          value.text().Slice(offsets[static_cast<size_t>(range.begin)],
                             offsets[static_cast<size_t>(stop)]));
    }
    Text out;
    for (int64_t i = range.begin;
         range.step > 0 ? i < range.end : i > range.end; i += range.step) {
      out.Append(value.text(), offsets[static_cast<size_t>(i)],
                 offsets[static_cast<size_t>(i) + 1]);
    }
    return Value::String(std::move(out));
  }
  if (value.IsListOrTuple()) {
    const int64_t size = static_cast<int64_t>(value.items().size());
    ASSIGN_OR_RETURN(const Range range, Resolve(begin, end, step, size));
    std::vector<Value> out;
    for (int64_t i = range.begin;
         range.step > 0 ? i < range.end : i > range.end; i += range.step) {
      out.push_back(value.items()[static_cast<size_t>(i)]);
    }
    return runtime.MakeItems(value.kind(), std::move(out));
  }
  return InvalidArgument("'" + std::string(value.TypeName()) +
                         "' object is not subscriptable");
}

StatusOr<Value> GetPath(Runtime& runtime, const Value& value, const Value& path,
                        const Value* otherwise) {
  if (!path.IsString()) return GetItem(runtime, value, path);
  Value out = value;
  std::string_view rest = path.str();
  for (;;) {
    const size_t dot = std::min(rest.find('.'), rest.size());
    const std::string_view part = rest.substr(0, dot);
    const bool is_index = !part.empty() && part.size() < 10 &&
                          std::all_of(part.begin(), part.end(), [](char c) {
                            return c >= '0' && c <= '9';
                          });
    ASSIGN_OR_RETURN(out,
                     GetItem(runtime, out,
                             is_index ? Value::Int(std::stoi(std::string(part)))
                                      : Value::String(part)));
    if (out.IsUndefined() && otherwise != nullptr) out = *otherwise;
    if (dot == rest.size()) return out;
    rest.remove_prefix(dot + 1);
  }
}

}  // namespace millrace::models::jinja
