// Filters that run other filters and tests over each item: map, select and
// their kin. They give generators: always true, without a length, read once.
#include "models/text/jinja/builtins.h"
#include "models/text/jinja/interpreter.h"
#include "models/text/jinja/operators.h"

namespace millrace::models::jinja {
namespace {

using Kind = Value::Kind;

// Jinja asks "if value" before it looks at anything else: what is not true has
// no items, even when it is a number.
Value Nothing() { return Value::Items(Kind::kGenerator, {}); }

StatusOr<Value> Map(Runtime& runtime, const Value& self, const Args& args) {
  if (!self.Truth()) return Nothing();
  ASSIGN_OR_RETURN(const std::vector<Value> items, Iterate(runtime, self));
  std::vector<Value> out;
  if (args.positional.empty()) {
    ASSIGN_OR_RETURN(const Params params,
                     Params::Bind(args, {"attribute", "default"}, 1));
    for (const Value& item : items) {
      RETURN_IF_ERROR(runtime.Step());
      ASSIGN_OR_RETURN(Value value,
                       GetPath(runtime, item, params[0],
                               params.Has(1) ? &params[1] : nullptr));
      out.push_back(std::move(value));
    }
  } else {
    const Value& name = args.positional[0];
    const Builtin* filter = name.IsString() ? FindFilter(name.str()) : nullptr;
    if (filter == nullptr) {
      return InvalidArgument("no filter named '" +
                             (name.IsString() ? std::string(name.str()) : "") +
                             "'");
    }
    Args rest = args;
    rest.positional.erase(rest.positional.begin());
    for (const Value& item : items) {
      RETURN_IF_ERROR(runtime.Step());
      ASSIGN_OR_RETURN(Value value, filter->call(runtime, item, rest));
      out.push_back(std::move(value));
    }
  }
  return runtime.MakeItems(Kind::kGenerator, std::move(out));
}

// Keeps the items (or those whose attribute) for which the test says `wanted`;
// without a test, for which they are true.
StatusOr<Value> Choose(Runtime& runtime, const Value& self, const Args& args,
                       bool by_attribute, bool wanted) {
  if (!self.Truth()) return Nothing();
  ASSIGN_OR_RETURN(const std::vector<Value> items, Iterate(runtime, self));
  Args rest = args;
  Value path;
  if (by_attribute) {
    if (rest.positional.empty()) {
      return InvalidArgument("needs an attribute");
    }
    path = rest.positional.front();
    rest.positional.erase(rest.positional.begin());
  }
  const Builtin* test = nullptr;
  if (!rest.positional.empty()) {
    const Value name = rest.positional.front();
    rest.positional.erase(rest.positional.begin());
    if (name.IsString()) test = FindTest(name.str());
    if (test == nullptr) {
      return InvalidArgument("no test named '" +
                             (name.IsString() ? std::string(name.str()) : "") +
                             "'");
    }
  }
  std::vector<Value> out;
  for (const Value& item : items) {
    RETURN_IF_ERROR(runtime.Step());
    Value tested = item;
    if (by_attribute) {
      ASSIGN_OR_RETURN(tested, GetPath(runtime, item, path, nullptr));
    }
    if (test != nullptr) {
      ASSIGN_OR_RETURN(tested, test->call(runtime, tested, rest));
    }
    if (tested.Truth() == wanted) out.push_back(item);
  }
  return runtime.MakeItems(Kind::kGenerator, std::move(out));
}

template <bool kByAttribute, bool kWanted>
StatusOr<Value> Choose(Runtime& runtime, const Value& self, const Args& args) {
  return Choose(runtime, self, args, kByAttribute, kWanted);
}

constexpr Builtin kFilters[] = {
    {"map", Map},
    {"reject", Choose<false, false>},
    {"rejectattr", Choose<true, false>},
    {"select", Choose<false, true>},
    {"selectattr", Choose<true, true>},
};

}  // namespace

std::span<const Builtin> SelectFilters() { return kFilters; }

}  // namespace millrace::models::jinja
