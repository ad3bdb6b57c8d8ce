// Expressions. As in Python, "and" and "or" give one of their operands, and an
// "if" without "else" gives something undefined, which prints as nothing.
#include <utility>

#include "models/text/jinja/interpreter.h"
#include "models/text/jinja/lexer.h"
#include "models/text/jinja/operators.h"

namespace millrace::models::jinja {

using Kind = Expr::Kind;

StatusOr<Value> Interpreter::Evaluate(const Expr& expr) {
  const Level level(&depth_);
  RETURN_IF_ERROR(CheckLevel(expr.line));
  switch (expr.kind) {
    case Kind::kConst:
      return expr.value;
    case Kind::kName:
      return EvaluateName(expr);
    case Kind::kBlockText:
      return block_text_ == nullptr ? Value() : *block_text_;
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kDict:
      return EvaluateContainer(expr);
    case Kind::kAnd:
    case Kind::kOr:
    case Kind::kNot:
    case Kind::kConditional:
      return EvaluateLogic(expr);
    case Kind::kNegate:
    case Kind::kPositive:
    case Kind::kArithmetic:
      return EvaluateArithmetic(expr);
    case Kind::kCompare:
      return EvaluateCompare(expr);
    case Kind::kAttribute:
    case Kind::kItem:
    case Kind::kSlice:
      return EvaluateAccess(expr);
    case Kind::kCall:
      return EvaluateCall(expr);
    case Kind::kFilter:
    case Kind::kTest:
      return EvaluateBuiltin(expr);
  }
  return Internal("an expression of an unknown kind");
}

StatusOr<Value> Interpreter::EvaluateName(const Expr& expr) {
  if (const Value* found = Find(expr.name)) return *found;
  if (const Builtin* global = FindGlobal(expr.name)) {
    return Value::Function(global, Value());
  }
  return Value::Undefined("'" + expr.name + "' is undefined");
}

StatusOr<Value> Interpreter::EvaluateContainer(const Expr& expr) {
  std::vector<Value> items;
  items.reserve(expr.kids.size());
  for (const ExprPtr& kid : expr.kids) {
    ASSIGN_OR_RETURN(Value item, Evaluate(*kid));
    items.push_back(std::move(item));
  }
  if (expr.kind != Kind::kDict) {
    auto made = runtime_.MakeItems(
        expr.kind == Kind::kList ? Value::Kind::kList : Value::Kind::kTuple,
        std::move(items));
    RETURN_IF_ERROR(Locate(made.status(), expr.line));
    return made;
  }
  Dict dict;
  for (size_t i = 0; i + 1 < items.size(); i += 2) {
    if (!Dict::Hashable(items[i])) {
      return TemplateError(
          expr.line,
          "unhashable type: '" + std::string(items[i].TypeName()) + "'");
    }
    dict.Set(std::move(items[i]), std::move(items[i + 1]));
  }
  auto made = runtime_.MakeDict(std::move(dict));
  RETURN_IF_ERROR(Locate(made.status(), expr.line));
  return made;
}

StatusOr<Value> Interpreter::EvaluateLogic(const Expr& expr) {
  if (expr.kind == Kind::kNot) {
    ASSIGN_OR_RETURN(const Value value, Evaluate(*expr.kids[0]));
    return Value::Bool(!value.Truth());
  }
  if (expr.kind == Kind::kConditional) {
    ASSIGN_OR_RETURN(const Value condition, Evaluate(*expr.kids[0]));
    const ExprPtr& chosen = expr.kids[condition.Truth() ? 1 : 2];
    if (chosen != nullptr) return Evaluate(*chosen);
    return Value::Undefined(
        "the inline if-expression evaluated to false and no else section was "
        "defined");
  }
  const bool stops_at = expr.kind == Kind::kOr;
  Value out;
  for (const ExprPtr& kid : expr.kids) {
    ASSIGN_OR_RETURN(out, Evaluate(*kid));
    if (out.Truth() == stops_at) break;
  }
  return out;
}

StatusOr<Value> Interpreter::EvaluateArithmetic(const Expr& expr) {
  ASSIGN_OR_RETURN(Value out, Evaluate(*expr.kids[0]));
  if (expr.kind == Kind::kNegate) {
    auto negative = Negate(out);
    RETURN_IF_ERROR(Locate(negative.status(), expr.line));
    return negative;
  }
  if (expr.kind == Kind::kPositive) {
    if (out.IsNumber())
      return out.Is(Value::Kind::kBool) ? Value::Int(out.integer()) : out;
    return TemplateError(expr.line, "bad operand type for unary +: '" +
                                        std::string(out.TypeName()) + "'");
  }
  for (size_t i = 0; i < expr.ops.size(); ++i) {
    ASSIGN_OR_RETURN(const Value right, Evaluate(*expr.kids[i + 1]));
    auto result = Arithmetic(runtime_, expr.ops[i], std::move(out), right);
    RETURN_IF_ERROR(Locate(result.status(), expr.line));
    out = std::move(result).value();
  }
  return out;
}

StatusOr<Value> Interpreter::EvaluateCompare(const Expr& expr) {
  ASSIGN_OR_RETURN(Value left, Evaluate(*expr.kids[0]));
  for (size_t i = 0; i < expr.ops.size(); ++i) {
    ASSIGN_OR_RETURN(Value right, Evaluate(*expr.kids[i + 1]));
    const auto holds = Holds(runtime_, expr.ops[i], left, right);
    RETURN_IF_ERROR(Locate(holds.status(), expr.line));
    if (!*holds) return Value::Bool(false);
    left = std::move(right);
  }
  return Value::Bool(true);
}

StatusOr<Value> Interpreter::EvaluateAccess(const Expr& expr) {
  Value parts[4] = {Value(), Value::None(), Value::None(), Value::None()};
  for (size_t i = 0; i < expr.kids.size(); ++i) {
    if (expr.kids[i] == nullptr) continue;
    ASSIGN_OR_RETURN(parts[i], Evaluate(*expr.kids[i]));
  }
  auto out = expr.kind == Kind::kAttribute
                 ? GetAttribute(runtime_, parts[0], expr.name)
             : expr.kind == Kind::kItem
                 ? GetItem(runtime_, parts[0], parts[1])
                 : GetSlice(runtime_, parts[0], parts[1], parts[2], parts[3]);
  RETURN_IF_ERROR(Locate(out.status(), expr.line));
  return out;
}

StatusOr<Value> Interpreter::EvaluateBuiltin(const Expr& expr) {
  const bool is_filter = expr.kind == Kind::kFilter;
  const std::string what =
      std::string(is_filter ? "filter '" : "test '") + expr.name + "'";
  if (expr.builtin == nullptr) {
    return TemplateError(expr.line, "no " + what);
  }
  ASSIGN_OR_RETURN(const Value self, Evaluate(*expr.kids[0]));
  ASSIGN_OR_RETURN(const Args args, EvaluateArgs(expr.args, expr.line));
  auto out = expr.builtin->call(runtime_, self, args);
  if (!out.ok()) {
    return Locate(out.status().Prefixed(what), expr.line);
  }
  return out;
}

StatusOr<Args> Interpreter::EvaluateArgs(const CallArgs& args, int line) {
  Args out;
  for (const ExprPtr& expr : args.positional) {
    ASSIGN_OR_RETURN(Value value, Evaluate(*expr));
    out.positional.push_back(std::move(value));
  }
  for (const auto& [name, expr] : args.named) {
    ASSIGN_OR_RETURN(Value value, Evaluate(*expr));
    out.named.emplace_back(name, std::move(value));
  }
  if (args.star != nullptr) {
    ASSIGN_OR_RETURN(const Value list, Evaluate(*args.star));
    auto items = Iterate(runtime_, list);
    RETURN_IF_ERROR(Locate(items.status(), line));
    for (Value& item : *items) out.positional.push_back(std::move(item));
  }
  if (args.double_star != nullptr) {
    ASSIGN_OR_RETURN(const Value dict, Evaluate(*args.double_star));
    if (!dict.IsDict()) return TemplateError(line, "** needs a dict");
    RETURN_IF_ERROR(Locate(
        runtime_.Make(static_cast<int64_t>(dict.dict().size() * sizeof(Value))),
        line));
    for (const auto& [key, value] : dict.dict().entries()) {
      if (!key.IsString()) return TemplateError(line, "** needs string keys");
      out.named.emplace_back(key.str(), value);
    }
  }
  return out;
}

StatusOr<Value> Interpreter::EvaluateCall(const Expr& expr) {
  ASSIGN_OR_RETURN(const Value callee, Evaluate(*expr.kids[0]));
  ASSIGN_OR_RETURN(Args args, EvaluateArgs(expr.args, expr.line));
  return Call(callee, std::move(args), expr.line);
}

StatusOr<Value> Interpreter::Call(const Value& callee, Args args, int line) {
  switch (callee.kind()) {
    case Value::Kind::kFunction: {
      auto out = callee.builtin()->call(runtime_, callee.self(), args);
      if (!out.ok() && !runtime_.raised) {
        return Locate(out.status().Prefixed(callee.builtin()->name), line);
      }
      return out;
    }
    case Value::Kind::kMacro:
      return CallMacro(*callee.macro(), std::move(args), line);
    case Value::Kind::kLoop: {
      const Loop& loop = *callee.loop();
      if (!loop.statement->recursive) {
        return TemplateError(line, "the loop is not marked recursive");
      }
      if (args.positional.size() != 1 || !args.named.empty()) {
        return TemplateError(line, "a recursive loop takes one argument");
      }
      const ScopeGuard scope(*this, loop.scope);
      Capture capture(*this);
      RETURN_IF_ERROR(
          RunFor(*loop.statement, args.positional[0], loop.depth + 1));
      return Value::String(capture.Take());
    }
    case Value::Kind::kUndefined:
      return TemplateError(line, callee.undefined_message());
    default:
      return TemplateError(line, "'" + std::string(callee.TypeName()) +
                                     "' object is not callable");
  }
}

StatusOr<Value> Interpreter::CallMacro(const Macro& macro, Args args,
                                       int line) {
  const Level level(&macro_depth_);
  if (macro_depth_ > runtime_.limits().max_depth) {
    return TemplateError(line, "macros are called more than " +
                                   std::to_string(runtime_.limits().max_depth) +
                                   " deep");
  }
  const Statement& statement = *macro.statement;
  const auto& parameters = statement.parameters;
  if (args.positional.size() > parameters.size() && !statement.takes_varargs) {
    return TemplateError(
        line, "macro '" + macro.name + "' takes not more than " +
                  std::to_string(parameters.size()) + " argument(s)");
  }
  const ScopeGuard scope(*this, macro.scope);
  Set("caller", Value::Undefined("No caller defined"));

  std::vector<Value> extra;
  for (size_t i = 0; i < args.positional.size(); ++i) {
    if (i < parameters.size()) {
      Set(parameters[i].name, std::move(args.positional[i]));
    } else {
      extra.push_back(std::move(args.positional[i]));
    }
  }
  const size_t num_set = std::min(args.positional.size(), parameters.size());
  std::vector<bool> given(parameters.size(), false);
  std::fill(given.begin(), given.begin() + static_cast<ptrdiff_t>(num_set),
            true);
  Dict named;
  for (auto& [name, value] : args.named) {
    size_t i = 0;
    while (i < parameters.size() && parameters[i].name != name) ++i;
    if (i < parameters.size()) {
      if (given[i]) {
        return TemplateError(line, "macro '" + macro.name +
                                       "' got two values for '" + name + "'");
      }
      given[i] = true;
      Set(name, std::move(value));
    } else if (name == "caller" && statement.takes_caller) {
      Set(name, std::move(value));
    } else if (!statement.takes_kwargs) {
      return TemplateError(line, "macro '" + macro.name +
                                     "' takes no keyword argument '" + name +
                                     "'");
    } else {
      named.Set(name, std::move(value));
    }
  }
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (given[i]) continue;
    Value value = Value::Undefined("parameter '" + parameters[i].name +
                                   "' was not provided");
    if (parameters[i].otherwise != nullptr) {
      ASSIGN_OR_RETURN(value, Evaluate(*parameters[i].otherwise));
    }
    Set(parameters[i].name, std::move(value));
  }
  Set("varargs", Value::Items(Value::Kind::kTuple, std::move(extra)));
  Set("kwargs", Value::FromDict(std::move(named)));
  Capture capture(*this);
  RETURN_IF_ERROR(RunBody(statement.body).status());
  return Value::String(capture.Take());
}

}  // namespace millrace::models::jinja
