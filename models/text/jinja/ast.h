// A parsed template. Chains of one precedence ("a + b + c") are one node with
// many children, so that the depth of the tree is the depth of the source's
// brackets and not the length of its lines.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "models/text/jinja/operators.h"
#include "models/text/jinja/runtime.h"
#include "models/text/jinja/value.h"

namespace millrace::models::jinja {

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

struct CallArgs {
  std::vector<ExprPtr> positional;
  std::vector<std::pair<std::string, ExprPtr>> named;
  ExprPtr star;         // *list
  ExprPtr double_star;  // **dict
};

struct Expr {
  enum class Kind {
    kConst,        // value
    kName,         // name
    kList,         // kids
    kTuple,        // kids
    kDict,         // kids: key, value, key, value…
    kNegate,       // kids[0]
    kPositive,     // kids[0]
    kNot,          // kids[0]
    kAnd,          // kids
    kOr,           // kids
    kArithmetic,   // kids[0] ops[0] kids[1] ops[1] kids[2]…
    kCompare,      // the same, each pair must hold
    kConditional,  // kids: condition, then, else (may be null)
    kAttribute,    // kids[0].name
    kItem,         // kids[0][kids[1]]
    kSlice,        // kids[0][kids[1]:kids[2]:kids[3]], any of 1 to 3 null
    kCall,         // kids[0](args)
    kFilter,       // kids[0] | name(args)
    kTest,         // kids[0] is name(args)
    kBlockText,    // what a filter block or a set block has captured
  };
  Kind kind;
  int line;
  int depth = 1;  // of this tree
  std::string name;
  Value value;
  std::vector<ExprPtr> kids;
  std::vector<Operator> ops;
  CallArgs args;
  // Of a filter or test; null when there is none of that name, which is an
  // error only when it runs.
  const Builtin* builtin = nullptr;
};

// Where an assignment goes: a name, an attribute of a namespace, or several.
struct Target {
  std::string name;  // empty: see items
  std::string attribute;
  std::vector<Target> items;
};

struct Statement;
using Body = std::vector<Statement>;

struct Parameter {
  std::string name;
  ExprPtr otherwise;  // null: undefined
};

struct Statement {
  enum class Kind {
    kData,      // text
    kPrint,     // expr
    kFor,       // target in expr if condition: body, else other
    kIf,        // branches, else other
    kSet,       // target = expr
    kSetBlock,  // target = expr over what body prints
    kMacro,     // target.name(parameters): body
    kCall,      // expr with caller(parameters): body
    kFilter,    // expr over what body prints
    kWith,      // assignments: body
    kBreak,
    kContinue,
  };
  Kind kind;
  int line;
  std::string text;
  Target target;
  ExprPtr expr;
  ExprPtr condition;
  bool recursive = false;
  std::vector<Parameter> parameters;
  bool takes_varargs = false;
  bool takes_kwargs = false;
  bool takes_caller = false;
  std::vector<std::pair<ExprPtr, Body>> branches;
  std::vector<std::pair<Target, ExprPtr>> assignments;
  Body body;
  Body other;
};

}  // namespace millrace::models::jinja
