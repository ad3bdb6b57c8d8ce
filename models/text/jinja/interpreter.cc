// Statements. Scopes live on this stack unless a macro or a recursive loop
// defined within still refers to them; then they live until the rendering ends.
#include "models/text/jinja/interpreter.h"

#include "models/text/jinja/lexer.h"
#include "models/text/jinja/operators.h"
#include "models/text/jinja/print.h"

namespace millrace::models::jinja {

// Levels of evaluation that one level of max_depth allows: a macro that calls
// itself from within a loop and an expression passes about eight.
constexpr int kLevelsPerDepth = 10;

Interpreter::Interpreter(Runtime& runtime,
                         std::vector<std::pair<std::string, Value>> globals)
    : runtime_(runtime), root_{nullptr, std::move(globals)} {}
Interpreter::~Interpreter() = default;

StatusOr<Text> Interpreter::Run(const Body& body) {
  // The template's own names stand above the globals, which tests such as
  // "is defined" still find.
  const ScopeGuard scope(*this, &root_);
  RETURN_IF_ERROR(RunBody(body).status());
  return std::move(output_);
}

Status Interpreter::Locate(Status status, int line) const {
  if (status.ok() || runtime_.raised ||
      status.message().starts_with("chat template, ")) {
    return status;
  }
  return TemplateError(line, status.message());
}

Status Interpreter::CheckLevel(int line) {
  if (depth_ > kLevelsPerDepth * runtime_.limits().max_depth) {
    return TemplateError(line, "the template's calls are nested too deep");
  }
  return Locate(runtime_.Step(), line);
}

Value* Interpreter::Find(std::string_view name) {
  for (Scope* scope = scope_; scope != nullptr; scope = scope->parent) {
    for (auto& [key, value] : scope->names) {
      if (key == name) return &value;
    }
  }
  return nullptr;
}

void Interpreter::Set(const std::string& name, Value value) {
  for (auto& [key, old] : scope_->names) {
    if (key == name) {
      old = std::move(value);
      return;
    }
  }
  scope_->names.emplace_back(name, std::move(value));
}

StatusOr<Interpreter::Flow> Interpreter::RunBody(const Body& body) {
  for (const Statement& statement : body) {
    ASSIGN_OR_RETURN(const Flow flow, RunStatement(statement));
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

StatusOr<Interpreter::Flow> Interpreter::RunStatement(
    const Statement& statement) {
  const int line = statement.line;
  const Level level(&depth_);
  RETURN_IF_ERROR(CheckLevel(line));
  switch (statement.kind) {
    case Statement::Kind::kData:
      RETURN_IF_ERROR(Emit(Text(statement.text, false), line));
      break;
    case Statement::Kind::kPrint: {
      ASSIGN_OR_RETURN(const Value value, Evaluate(*statement.expr));
      RETURN_IF_ERROR(Print(value, line));
      break;
    }
    case Statement::Kind::kFor: {
      // The iterated value is not yet inside the loop's scope.
      ASSIGN_OR_RETURN(const Value iterated, Evaluate(*statement.expr));
      RETURN_IF_ERROR(RunFor(statement, iterated, 0));
      break;
    }
    case Statement::Kind::kIf:
      return RunIf(statement);
    case Statement::Kind::kSet: {
      ASSIGN_OR_RETURN(Value value, Evaluate(*statement.expr));
      RETURN_IF_ERROR(Assign(statement.target, std::move(value), line));
      break;
    }
    case Statement::Kind::kSetBlock: {
      ASSIGN_OR_RETURN(Value value, FilterBlock(statement));
      RETURN_IF_ERROR(Assign(statement.target, std::move(value), line));
      break;
    }
    case Statement::Kind::kFilter: {
      ASSIGN_OR_RETURN(const Value value, FilterBlock(statement));
      RETURN_IF_ERROR(Print(value, line));
      break;
    }
    case Statement::Kind::kMacro:
      Set(statement.target.name,
          Value::Of(NewMacro(statement, statement.target.name)));
      break;
    case Statement::Kind::kCall:
      RETURN_IF_ERROR(RunCall(statement));
      break;
    case Statement::Kind::kWith:
      return RunWith(statement);
    case Statement::Kind::kBreak:
      return Flow::kBreak;
    case Statement::Kind::kContinue:
      return Flow::kContinue;
  }
  return Flow::kNext;
}

StatusOr<Interpreter::Flow> Interpreter::RunIf(const Statement& statement) {
  for (const auto& [condition, body] : statement.branches) {
    ASSIGN_OR_RETURN(const Value holds, Evaluate(*condition));
    if (holds.Truth()) return RunBody(body);
  }
  return RunBody(statement.other);
}

Status Interpreter::RunFor(const Statement& statement, const Value& iterated,
                           int depth) {
  auto iterate = Iterate(runtime_, iterated);
  RETURN_IF_ERROR(Locate(iterate.status(), statement.line));
  std::vector<Value> items = std::move(iterate).value();
  Scope* const around = scope_;

  if (statement.condition != nullptr) {
    std::vector<Value> kept;
    for (Value& item : items) {
      const ScopeGuard scope(*this, around);
      RETURN_IF_ERROR(Assign(statement.target, item, statement.line));
      ASSIGN_OR_RETURN(const Value keep, Evaluate(*statement.condition));
      if (keep.Truth()) kept.push_back(std::move(item));
    }
    items = std::move(kept);
  }
  if (items.empty()) {
    const ScopeGuard scope(*this, around);
    return RunBody(statement.other).status();
  }
  RETURN_IF_ERROR(Locate(runtime_.Make(sizeof(Loop)), statement.line));
  Loop* const loop = loops_.emplace_back(std::make_unique<Loop>()).get();
  loop->items = std::move(items);
  loop->depth = depth;
  loop->statement = &statement;
  loop->scope = around;
  if (statement.recursive) {  // the loop may be called from elsewhere
    for (Scope* s = around; s != nullptr; s = s->parent) s->captured = true;
  }
  Status status = OkStatus();
  for (; loop->index < loop->items.size(); ++loop->index) {
    const ScopeGuard scope(*this, around);
    Set("loop", Value::Of(loop));
    status = Assign(statement.target, loop->items[loop->index], statement.line);
    if (!status.ok()) break;
    auto flow = RunBody(statement.body);
    status = flow.status();
    if (!status.ok() || *flow == Flow::kBreak) break;
  }
  // A variable may still name the loop, but it has nothing left to show.
  loop->items = {};
  loop->changed = {};
  loop->index = 0;
  return status;
}

StatusOr<Interpreter::Flow> Interpreter::RunWith(const Statement& statement) {
  const ScopeGuard scope(*this, scope_);
  std::vector<Value> values;
  for (const auto& assignment : statement.assignments) {
    ASSIGN_OR_RETURN(Value value, Evaluate(*assignment.second));
    values.push_back(std::move(value));
  }
  for (size_t i = 0; i < values.size(); ++i) {
    RETURN_IF_ERROR(Assign(statement.assignments[i].first, std::move(values[i]),
                           statement.line));
  }
  return RunBody(statement.body);
}

StatusOr<Value> Interpreter::CaptureBody(const Statement& statement) {
  const ScopeGuard scope(*this, scope_);
  Capture capture(*this);
  RETURN_IF_ERROR(RunBody(statement.body).status());
  return Value::String(capture.Take());
}

// What the body prints, through the statement's filters if it has any.
StatusOr<Value> Interpreter::FilterBlock(const Statement& statement) {
  ASSIGN_OR_RETURN(Value text, CaptureBody(statement));
  if (statement.expr == nullptr) return text;
  const Value* outer = std::exchange(block_text_, &text);
  auto out = Evaluate(*statement.expr);
  block_text_ = outer;
  return out;
}

Status Interpreter::RunCall(const Statement& statement) {
  const Expr& call = *statement.expr;
  ASSIGN_OR_RETURN(const Value callee, Evaluate(*call.kids[0]));
  ASSIGN_OR_RETURN(Args args, EvaluateArgs(call.args, call.line));
  args.named.emplace_back("caller", Value::Of(NewMacro(statement, "caller")));
  ASSIGN_OR_RETURN(const Value printed,
                   Call(callee, std::move(args), call.line));
  return Print(printed, statement.line);
}

const Macro* Interpreter::NewMacro(const Statement& statement,
                                   std::string name) {
  for (Scope* s = scope_; s != nullptr; s = s->parent) s->captured = true;
  macros_.push_back(
      std::make_unique<Macro>(Macro{&statement, scope_, std::move(name)}));
  return macros_.back().get();
}

Status Interpreter::Emit(const Text& text, int line) {
  RETURN_IF_ERROR(
      Locate(runtime_.Make(static_cast<int64_t>(text.size())), line));
  out_->Append(text);
  const int64_t limit = runtime_.limits().max_output_bytes;
  if (static_cast<int64_t>(out_->size()) <= limit) return OkStatus();
  return TemplateError(
      line, "the output is longer than " + std::to_string(limit) + " bytes");
}

Status Interpreter::Print(const Value& value, int line) {
  if (value.IsString()) return Emit(value.text(), line);
  auto text = ToText(runtime_, value);
  RETURN_IF_ERROR(Locate(text.status(), line));
  return Emit(*text, line);
}

Status Interpreter::Assign(const Target& target, Value value, int line) {
  if (!target.name.empty() && target.attribute.empty()) {
    Set(target.name, std::move(value));
    return OkStatus();
  }
  if (!target.name.empty()) {
    const Value* space = Find(target.name);
    if (space == nullptr || !space->Is(Value::Kind::kNamespace)) {
      return TemplateError(line,
                           "cannot assign attribute on non-namespace object");
    }
    space->space()->values.Set(target.attribute, std::move(value));
    return OkStatus();
  }
  auto items = Iterate(runtime_, value);
  RETURN_IF_ERROR(Locate(items.status(), line));
  if (items->size() != target.items.size()) {
    return TemplateError(line, std::to_string(items->size()) + " values for " +
                                   std::to_string(target.items.size()) +
                                   " names");
  }
  for (size_t i = 0; i < items->size(); ++i) {
    RETURN_IF_ERROR(Assign(target.items[i], std::move((*items)[i]), line));
  }
  return OkStatus();
}

}  // namespace millrace::models::jinja
