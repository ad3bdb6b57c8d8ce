// Runs a tree. Scopes are as in Jinja: the body of a loop, macro, call, filter,
// block of set or with sees outer names and keeps its own assignments to
// itself; "if" is no scope.
//
// One thread, one rendering.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "config/base/status.h"
#include "models/text/jinja/ast.h"
#include "models/text/jinja/runtime.h"

namespace millrace::models::jinja {

struct Scope {
  Scope* parent;
  std::vector<std::pair<std::string, Value>> names;
  bool captured = false;  // a macro or a loop still refers to it
};

// A macro, or the caller of a call block; belongs to the interpreter.
struct Macro {
  const Statement* statement;
  Scope* scope;  // where it was defined
  std::string name;
};

// What "loop" is inside of one.
struct Loop {
  std::vector<Value> items;
  size_t index = 0;
  int depth = 0;  // of recursive loops
  const Statement* statement = nullptr;
  Scope* scope = nullptr;  // around the loop
  std::vector<Value> changed;
};

class Interpreter {
 public:
  // The globals are what the template may name. All lenders outlive this.
  Interpreter(Runtime& runtime,
              std::vector<std::pair<std::string, Value>> globals);
  ~Interpreter();

  StatusOr<Text> Run(const Body& body);

 private:
  enum class Flow { kNext, kBreak, kContinue };

  // Sends what is printed elsewhere while it lives.
  class Capture {
   public:
    explicit Capture(Interpreter& owner) : owner_(owner), outer_(owner.out_) {
      owner_.out_ = &text_;
    }
    ~Capture() { owner_.out_ = outer_; }
    Capture(const Capture&) = delete;
    Capture& operator=(const Capture&) = delete;
    Text Take() { return std::move(text_); }

   private:
    Interpreter& owner_;
    Text* outer_;
    Text text_;
  };

  // A new scope while it lives.
  class ScopeGuard {
   public:
    ScopeGuard(Interpreter& owner, Scope* parent)
        : owner_(owner),
          outer_(owner.scope_),
          scope_(std::make_unique<Scope>(Scope{parent, {}})) {
      owner_.scope_ = scope_.get();
    }
    ~ScopeGuard() {
      owner_.scope_ = outer_;
      if (scope_->captured) owner_.captured_.push_back(std::move(scope_));
    }
    ScopeGuard(const ScopeGuard&) = delete;
    ScopeGuard& operator=(const ScopeGuard&) = delete;

   private:
    Interpreter& owner_;
    Scope* outer_;
    std::unique_ptr<Scope> scope_;
  };

  // Counts one level while it lives.
  class Level {
   public:
    explicit Level(int* depth) : depth_(depth) { ++*depth_; }
    ~Level() { --*depth_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    int* depth_;
  };
  Status CheckLevel(int line);

  // Statements.
  StatusOr<Flow> RunBody(const Body& body);
  StatusOr<Flow> RunStatement(const Statement& statement);
  Status RunFor(const Statement& statement, const Value& iterated, int depth);
  StatusOr<Flow> RunIf(const Statement& statement);
  StatusOr<Flow> RunWith(const Statement& statement);
  Status RunCall(const Statement& statement);
  StatusOr<Value> CaptureBody(const Statement& statement);
  StatusOr<Value> FilterBlock(const Statement& statement);
  Status Print(const Value& value, int line);
  Status Emit(const Text& text, int line);
  Status Assign(const Target& target, Value value, int line);
  const Macro* NewMacro(const Statement& statement, std::string name);

  // Expressions.
  StatusOr<Value> Evaluate(const Expr& expr);
  StatusOr<Value> EvaluateName(const Expr& expr);
  StatusOr<Value> EvaluateContainer(const Expr& expr);
  StatusOr<Value> EvaluateLogic(const Expr& expr);
  StatusOr<Value> EvaluateArithmetic(const Expr& expr);
  StatusOr<Value> EvaluateCompare(const Expr& expr);
  StatusOr<Value> EvaluateAccess(const Expr& expr);
  StatusOr<Value> EvaluateCall(const Expr& expr);
  StatusOr<Value> EvaluateBuiltin(const Expr& expr);
  StatusOr<Args> EvaluateArgs(const CallArgs& args, int line);
  StatusOr<Value> Call(const Value& callee, Args args, int line);
  StatusOr<Value> CallMacro(const Macro& macro, Args args, int line);

  Value* Find(std::string_view name);
  void Set(const std::string& name, Value value);
  Status Locate(Status status, int line) const;

  Runtime& runtime_;
  Scope root_;
  Scope* scope_ = &root_;
  Text output_;
  Text* out_ = &output_;
  const Value* block_text_ = nullptr;  // what kBlockText is now
  int depth_ = 0;
  int macro_depth_ = 0;
  std::vector<std::unique_ptr<Scope>> captured_;
  std::vector<std::unique_ptr<Macro>> macros_;
  std::vector<std::unique_ptr<Loop>> loops_;
};

// value.name and value[key]: nothing there is undefined, and only asking
// something undefined is an error.
StatusOr<Value> GetAttribute(Runtime& runtime, const Value& value,
                             std::string_view name);
StatusOr<Value> GetItem(Runtime& runtime, const Value& value, const Value& key);
StatusOr<Value> GetSlice(Runtime& runtime, const Value& value,
                         const Value& begin, const Value& end,
                         const Value& step);
// "role" or "function.name" or 0, as map and its kin take it.
StatusOr<Value> GetPath(Runtime& runtime, const Value& value, const Value& path,
                        const Value* otherwise);

}  // namespace millrace::models::jinja
