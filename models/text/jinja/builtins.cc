// Look-ups in the tables.
#include "models/text/jinja/builtins.h"

namespace millrace::models::jinja {
namespace {

const Builtin* Find(std::span<const Builtin> table, std::string_view name) {
  for (const Builtin& builtin : table) {
    if (builtin.name == name) return &builtin;
  }
  return nullptr;
}

}  // namespace

const Builtin* FindFilter(std::string_view name) {
  for (const auto table :
       {TextFilters(), ListFilters(), SelectFilters(), ValueFilters()}) {
    if (const Builtin* found = Find(table, name)) return found;
  }
  return nullptr;
}

const Builtin* FindTest(std::string_view name) { return Find(Tests(), name); }

const Builtin* FindGlobal(std::string_view name) {
  return Find(Globals(), name);
}

const Builtin* FindMethod(Value::Kind kind, std::string_view name) {
  switch (kind) {
    case Value::Kind::kString:
      return Find(StringMethods(), name);
    case Value::Kind::kDict:
      return Find(DictMethods(), name);
    case Value::Kind::kList:
    case Value::Kind::kTuple:
      return Find(ListMethods(), name);
    case Value::Kind::kLoop:
      return Find(LoopMethods(), name);
    default:
      return nullptr;
  }
}

}  // namespace millrace::models::jinja
