// The expression half of the parser, by recursive descent. Precedence, from
// loose to tight: if-else, or, and, not, comparisons, + and -, ~, * and /, **,
// signs, then whatever follows an operand: attributes, calls, filters, tests.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/base/status.h"
#include "models/text/jinja/ast.h"
#include "models/text/jinja/lexer.h"

namespace millrace::models::jinja {

class ExpressionParser {
 public:
  ExpressionParser(std::vector<Token> tokens, int max_depth)
      : tokens_(std::move(tokens)), max_depth_(max_depth) {}

  // An expression, or several with commas: a tuple. Without conditions an
  // "if" ends it, as in "for x in y if z".
  StatusOr<ExprPtr> ParseTuple(bool with_condition);
  StatusOr<ExprPtr> ParseExpression(bool with_condition = true);
  // "name(args) | name(args)…" over kBlockText.
  StatusOr<ExprPtr> ParseFilterChain();
  StatusOr<CallArgs> ParseArgs();  // at "("

  const Token& Peek(size_t ahead = 0) const;
  Token Take();
  bool SkipOp(std::string_view op);
  bool SkipName(std::string_view name);
  Status ExpectOp(std::string_view op);
  Status ExpectName(std::string_view name);
  StatusOr<std::string> TakeName(std::string_view what);
  Status Unexpected(std::string_view wanted) const;

  // Counts one level of the source's nesting while it lives.
  class Nesting {
   public:
    explicit Nesting(int* depth) : depth_(depth) { ++*depth_; }
    ~Nesting() { --*depth_; }
    Nesting(const Nesting&) = delete;
    Nesting& operator=(const Nesting&) = delete;

   private:
    int* depth_;
  };
  Status CheckDepth(int depth) const;

  int depth = 0;
  // The first filter or test that is not known, OK if none. It is an error
  // unless it stands where code may never run: whoever knows that clears it.
  Status unknown;
  // Whether a name was read that makes a macro take arguments beyond its
  // parameters.
  bool uses_varargs = false;
  bool uses_kwargs = false;
  bool uses_caller = false;

 private:
  using Rule = StatusOr<ExprPtr> (ExpressionParser::*)();
  ExprPtr Make(Expr::Kind kind) const;
  // Notes the depth of a tree whose children are complete.
  StatusOr<ExprPtr> Finish(ExprPtr expr) const;
  StatusOr<ExprPtr> Wrap(Expr::Kind kind, ExprPtr kid) const;
  StatusOr<ExprPtr> ParseChain(
      Rule rule,
      std::initializer_list<std::pair<std::string_view, Operator>> ops);
  StatusOr<ExprPtr> ParseLogic(Expr::Kind kind, std::string_view word,
                               Rule rule);

  StatusOr<ExprPtr> ParseOr();
  StatusOr<ExprPtr> ParseAnd();
  StatusOr<ExprPtr> ParseNot();
  StatusOr<ExprPtr> ParseCompare();
  StatusOr<ExprPtr> ParseSum();
  StatusOr<ExprPtr> ParseConcat();
  StatusOr<ExprPtr> ParseProduct();
  StatusOr<ExprPtr> ParsePower();
  StatusOr<ExprPtr> ParseUnary() { return ParseSigned(true); }
  StatusOr<ExprPtr> ParseSigned(bool with_filters);
  StatusOr<ExprPtr> ParsePrimary();
  StatusOr<ExprPtr> ParseNumber();
  StatusOr<ExprPtr> ParseDict();
  StatusOr<ExprPtr> ParsePostfix(ExprPtr expr);
  StatusOr<ExprPtr> ParseSubscript(ExprPtr expr);
  StatusOr<ExprPtr> ParseFiltersAndTests(ExprPtr expr);
  StatusOr<ExprPtr> ParseFilter(ExprPtr expr);
  StatusOr<ExprPtr> ParseTest(ExprPtr expr);
  StatusOr<ExprPtr> ParseCall(ExprPtr expr);
  bool EndsTuple(bool with_condition) const;

  const std::vector<Token> tokens_;
  const int max_depth_;
  size_t at_ = 0;
};

}  // namespace millrace::models::jinja
