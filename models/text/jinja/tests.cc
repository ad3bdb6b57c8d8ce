// What stands after "is".
#include "models/text/jinja/builtins.h"
#include "models/text/jinja/operators.h"
#include "models/text/jinja/print.h"

namespace millrace::models::jinja {
namespace {

using Kind = Value::Kind;

// A test that only looks at the value.
template <bool (*kTest)(const Value&)>
StatusOr<Value> Is(Runtime&, const Value& self, const Args& args) {
  RETURN_IF_ERROR(Params::Bind(args, {}).status());
  return Value::Bool(kTest(self));
}

template <Operator kOperator>
StatusOr<Value> Relates(Runtime& runtime, const Value& self, const Args& args) {
  ASSIGN_OR_RETURN(const Params params, Params::Bind(args, {"other"}, 1));
  ASSIGN_OR_RETURN(const bool holds,
                   Holds(runtime, kOperator, self, params[0]));
  return Value::Bool(holds);
}

StatusOr<Value> Remainder(Runtime& runtime, const Value& self,
                          const Value& divisor) {
  return Arithmetic(runtime, Operator::kModulo, self, divisor);
}

StatusOr<Value> DivisibleBy(Runtime& runtime, const Value& self,
                            const Args& args) {
  ASSIGN_OR_RETURN(const Params params, Params::Bind(args, {"num"}, 1));
  ASSIGN_OR_RETURN(const Value rest, Remainder(runtime, self, params[0]));
  return Value::Bool(!rest.Truth());
}

template <int kRest>
StatusOr<Value> Parity(Runtime& runtime, const Value& self, const Args& args) {
  RETURN_IF_ERROR(Params::Bind(args, {}).status());
  if (!self.IsNumber()) {
    return InvalidArgument("needs a number, not " +
                           std::string(self.TypeName()));
  }
  ASSIGN_OR_RETURN(const Value rest, Remainder(runtime, self, Value::Int(2)));
  return Value::Bool(rest.number() == kRest);
}

StatusOr<Value> SameAs(Runtime&, const Value& self, const Args& args) {
  ASSIGN_OR_RETURN(const Params params, Params::Bind(args, {"other"}, 1));
  const Value& other = params[0];
  if (self.kind() != other.kind()) return Value::Bool(false);
  if (self.IsNumber()) {
    return Value::Bool(self.integer() == other.integer() &&
                       self.number() == other.number());
  }
  if (self.IsString()) return Value::Bool(self.str() == other.str());
  return Value::Bool(self.IsNone() || self.SameObject(other));
}

template <const Builtin* (*kFind)(std::string_view)>
StatusOr<Value> Named(Runtime&, const Value& self, const Args& args) {
  RETURN_IF_ERROR(Params::Bind(args, {}).status());
  return Value::Bool(self.IsString() && kFind(self.str()) != nullptr);
}

template <bool kUpper>
StatusOr<Value> HasCase(Runtime& runtime, const Value& self, const Args& args) {
  const Builtin* method =
      FindMethod(Kind::kString, kUpper ? "isupper" : "islower");
  ASSIGN_OR_RETURN(Text text, ToText(runtime, self));
  return method->call(runtime, Value::String(std::move(text)), args);
}

bool Callable(const Value& v) {
  return v.Is(Kind::kFunction) || v.Is(Kind::kMacro) || v.Is(Kind::kLoop) ||
         v.IsUndefined();
}
bool Iterable(const Value& v) {
  return v.IsSequence() || v.IsString() || v.IsDict() || v.IsUndefined() ||
         v.Is(Kind::kLoop);
}
bool IsSequenceTest(const Value& v) {  // has a length and items
  return v.IsListOrTuple() || v.IsString() || v.IsDict() || v.IsUndefined();
}

constexpr Builtin kTests[] = {
    {"boolean", Is<[](const Value& v) { return v.Is(Kind::kBool); }>},
    {"callable", Is<Callable>},
    {"defined", Is<[](const Value& v) { return !v.IsUndefined(); }>},
    {"divisibleby", DivisibleBy},
    {"escaped", Is<[](const Value&) { return false; }>},
    {"even", Parity<0>},
    {"false",
     Is<[](const Value& v) { return v.Is(Kind::kBool) && !v.Truth(); }>},
    {"filter", Named<FindFilter>},
    {"float", Is<[](const Value& v) { return v.Is(Kind::kFloat); }>},
    {"in", Relates<Operator::kIn>},
    {"integer", Is<[](const Value& v) { return v.Is(Kind::kInt); }>},
    {"iterable", Is<Iterable>},
    {"lower", HasCase<false>},
    {"mapping", Is<[](const Value& v) { return v.IsDict(); }>},
    {"none", Is<[](const Value& v) { return v.IsNone(); }>},
    {"number", Is<[](const Value& v) { return v.IsNumber(); }>},
    {"odd", Parity<1>},
    {"sameas", SameAs},
    {"sequence", Is<IsSequenceTest>},
    {"string", Is<[](const Value& v) { return v.IsString(); }>},
    {"test", Named<FindTest>},
    {"true", Is<[](const Value& v) { return v.Is(Kind::kBool) && v.Truth(); }>},
    {"undefined", Is<[](const Value& v) { return v.IsUndefined(); }>},
    {"upper", HasCase<true>},
    {"eq", Relates<Operator::kEqual>},
    {"equalto", Relates<Operator::kEqual>},
    {"==", Relates<Operator::kEqual>},
    {"ne", Relates<Operator::kNotEqual>},
    {"!=", Relates<Operator::kNotEqual>},
    {"lt", Relates<Operator::kLess>},
    {"lessthan", Relates<Operator::kLess>},
    {"<", Relates<Operator::kLess>},
    {"le", Relates<Operator::kLessEqual>},
    {"<=", Relates<Operator::kLessEqual>},
    {"gt", Relates<Operator::kGreater>},
    {"greaterthan", Relates<Operator::kGreater>},
    {">", Relates<Operator::kGreater>},
    {"ge", Relates<Operator::kGreaterEqual>},
    {">=", Relates<Operator::kGreaterEqual>},
};

}  // namespace

std::span<const Builtin> Tests() { return kTests; }

}  // namespace millrace::models::jinja
