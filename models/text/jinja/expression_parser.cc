// Expressions, with the oddities that templates rely on: "-x | abs" filters
// the negated x, "**" binds to the left, and a test takes one argument without
// brackets ("x is divisibleby 3").
#include "models/text/jinja/expression_parser.h"

#include <algorithm>

namespace millrace::models::jinja {

using Kind = Expr::Kind;

const Token& ExpressionParser::Peek(size_t ahead) const {
  return tokens_[std::min(at_ + ahead, tokens_.size() - 1)];
}

Token ExpressionParser::Take() {
  const Token& out = Peek();
  if (at_ + 1 < tokens_.size()) ++at_;
  return out;
}

bool ExpressionParser::SkipOp(std::string_view op) {
  if (!Peek().Is(op)) return false;
  ++at_;
  return true;
}

bool ExpressionParser::SkipName(std::string_view name) {
  if (!Peek().IsName(name)) return false;
  ++at_;
  return true;
}

Status ExpressionParser::Unexpected(std::string_view wanted) const {
  const Token& token = Peek();
  std::string found = "'" + token.text + "'";
  if (token.kind == Token::Kind::kEnd) found = "the end of the template";
  if (token.kind == Token::Kind::kPrintEnd) found = "'}}'";
  if (token.kind == Token::Kind::kBlockEnd) found = "'%}'";
  return TemplateError(token.line,
                       "expected " + std::string(wanted) + ", found " + found);
}

Status ExpressionParser::ExpectOp(std::string_view op) {
  if (SkipOp(op)) return OkStatus();
  return Unexpected("'" + std::string(op) + "'");
}

Status ExpressionParser::ExpectName(std::string_view name) {
  if (SkipName(name)) return OkStatus();
  return Unexpected("'" + std::string(name) + "'");
}

StatusOr<std::string> ExpressionParser::TakeName(std::string_view what) {
  if (Peek().kind != Token::Kind::kName) return Unexpected(what);
  return Take().text;
}

Status ExpressionParser::CheckDepth(int nesting) const {
  if (nesting <= max_depth_) return OkStatus();
  return TemplateError(
      Peek().line, "nested more than " + std::to_string(max_depth_) + " deep");
}

ExprPtr ExpressionParser::Make(Kind kind) const {
  auto out = std::make_unique<Expr>();
  out->kind = kind;
  out->line = Peek().line;
  return out;
}

StatusOr<ExprPtr> ExpressionParser::Finish(ExprPtr expr) const {
  const auto count = [&](const ExprPtr& kid) {
    if (kid != nullptr) expr->depth = std::max(expr->depth, kid->depth + 1);
  };
  for (const ExprPtr& kid : expr->kids) count(kid);
  for (const ExprPtr& kid : expr->args.positional) count(kid);
  for (const auto& named : expr->args.named) count(named.second);
  count(expr->args.star);
  count(expr->args.double_star);
  RETURN_IF_ERROR(CheckDepth(expr->depth));
  return expr;
}

StatusOr<ExprPtr> ExpressionParser::Wrap(Kind kind, ExprPtr kid) const {
  ExprPtr out = Make(kind);
  out->kids.push_back(std::move(kid));
  return Finish(std::move(out));
}

bool ExpressionParser::EndsTuple(bool with_condition) const {
  const Token& token = Peek();
  return token.kind == Token::Kind::kPrintEnd ||
         token.kind == Token::Kind::kBlockEnd || token.Is(")") ||
         token.IsName("recursive") || (!with_condition && token.IsName("if"));
}

StatusOr<ExprPtr> ExpressionParser::ParseTuple(bool with_condition) {
  ExprPtr out = Make(Kind::kTuple);
  ASSIGN_OR_RETURN(ExprPtr first, ParseExpression(with_condition));
  if (!Peek().Is(",")) return first;
  out->kids.push_back(std::move(first));
  while (SkipOp(",") && !EndsTuple(with_condition)) {
    ASSIGN_OR_RETURN(ExprPtr next, ParseExpression(with_condition));
    out->kids.push_back(std::move(next));
  }
  return Finish(std::move(out));
}

StatusOr<ExprPtr> ExpressionParser::ParseExpression(bool with_condition) {
  const Nesting nesting(&depth);
  RETURN_IF_ERROR(CheckDepth(depth));
  if (!with_condition) return ParseOr();
  const Status before = unknown;
  ASSIGN_OR_RETURN(ExprPtr out, ParseOr());
  while (SkipName("if")) {
    unknown = before;  // what stands before an "if" may never run
    ExprPtr choice = Make(Kind::kConditional);
    ASSIGN_OR_RETURN(ExprPtr condition, ParseOr());
    choice->kids.push_back(std::move(condition));
    choice->kids.push_back(std::move(out));
    choice->kids.push_back(nullptr);
    if (SkipName("else")) {
      const Status before_else = unknown;
      ASSIGN_OR_RETURN(choice->kids[2], ParseExpression());
      unknown = before_else;
    }
    ASSIGN_OR_RETURN(out, Finish(std::move(choice)));
  }
  return out;
}

StatusOr<ExprPtr> ExpressionParser::ParseLogic(Kind kind, std::string_view word,
                                               Rule rule) {
  ExprPtr out = Make(kind);
  ASSIGN_OR_RETURN(ExprPtr first, (this->*rule)());
  if (!Peek().IsName(word)) return first;
  out->kids.push_back(std::move(first));
  while (SkipName(word)) {
    ASSIGN_OR_RETURN(ExprPtr next, (this->*rule)());
    out->kids.push_back(std::move(next));
  }
  return Finish(std::move(out));
}

StatusOr<ExprPtr> ExpressionParser::ParseOr() {
  return ParseLogic(Kind::kOr, "or", &ExpressionParser::ParseAnd);
}

StatusOr<ExprPtr> ExpressionParser::ParseAnd() {
  return ParseLogic(Kind::kAnd, "and", &ExpressionParser::ParseNot);
}

StatusOr<ExprPtr> ExpressionParser::ParseNot() {
  if (!SkipName("not")) return ParseCompare();
  const Nesting nesting(&depth);
  RETURN_IF_ERROR(CheckDepth(depth));
  ASSIGN_OR_RETURN(ExprPtr kid, ParseNot());
  return Wrap(Kind::kNot, std::move(kid));
}

StatusOr<ExprPtr> ExpressionParser::ParseCompare() {
  ExprPtr out = Make(Kind::kCompare);
  ASSIGN_OR_RETURN(ExprPtr first, ParseSum());
  out->kids.push_back(std::move(first));
  static constexpr std::pair<std::string_view, Operator> kSigns[] = {
      {"==", Operator::kEqual},  {"!=", Operator::kNotEqual},
      {"<", Operator::kLess},    {"<=", Operator::kLessEqual},
      {">", Operator::kGreater}, {">=", Operator::kGreaterEqual},
  };
  for (;;) {
    const auto* sign =
        std::find_if(std::begin(kSigns), std::end(kSigns),
                     [&](const auto& entry) { return Peek().Is(entry.first); });
    if (sign != std::end(kSigns)) {
      Take();
      out->ops.push_back(sign->second);
    } else if (SkipName("in")) {
      out->ops.push_back(Operator::kIn);
    } else if (Peek().IsName("not") && Peek(1).IsName("in")) {
      Take();
      Take();
      out->ops.push_back(Operator::kNotIn);
    } else {
      break;
    }
    ASSIGN_OR_RETURN(ExprPtr next, ParseSum());
    out->kids.push_back(std::move(next));
  }
  if (out->ops.empty()) return std::move(out->kids[0]);
  return Finish(std::move(out));
}

StatusOr<ExprPtr> ExpressionParser::ParseChain(
    Rule rule,
    std::initializer_list<std::pair<std::string_view, Operator>> ops) {
  ExprPtr out = Make(Kind::kArithmetic);
  ASSIGN_OR_RETURN(ExprPtr first, (this->*rule)());
  out->kids.push_back(std::move(first));
  for (;;) {
    const auto* op =
        std::find_if(ops.begin(), ops.end(),
                     [&](const auto& entry) { return Peek().Is(entry.first); });
    if (op == ops.end()) break;
    Take();
    out->ops.push_back(op->second);
    ASSIGN_OR_RETURN(ExprPtr next, (this->*rule)());
    out->kids.push_back(std::move(next));
  }
  if (out->ops.empty()) return std::move(out->kids[0]);
  return Finish(std::move(out));
}

StatusOr<ExprPtr> ExpressionParser::ParseSum() {
  return ParseChain(&ExpressionParser::ParseConcat,
                    {{"+", Operator::kAdd}, {"-", Operator::kSubtract}});
}

StatusOr<ExprPtr> ExpressionParser::ParseConcat() {
  return ParseChain(&ExpressionParser::ParseProduct,
                    {{"~", Operator::kConcat}});
}

StatusOr<ExprPtr> ExpressionParser::ParseProduct() {
  return ParseChain(&ExpressionParser::ParsePower,
                    {{"*", Operator::kMultiply},
                     {"/", Operator::kDivide},
                     {"//", Operator::kFloorDivide},
                     {"%", Operator::kModulo}});
}

StatusOr<ExprPtr> ExpressionParser::ParsePower() {
  return ParseChain(&ExpressionParser::ParseUnary, {{"**", Operator::kPower}});
}

StatusOr<ExprPtr> ExpressionParser::ParseSigned(bool with_filters) {
  ExprPtr out;
  if (Peek().Is("-") || Peek().Is("+")) {
    const Kind kind = Take().Is("-") ? Kind::kNegate : Kind::kPositive;
    const Nesting nesting(&depth);
    RETURN_IF_ERROR(CheckDepth(depth));
    ASSIGN_OR_RETURN(ExprPtr kid, ParseSigned(false));
    ASSIGN_OR_RETURN(out, Wrap(kind, std::move(kid)));
  } else {
    ASSIGN_OR_RETURN(out, ParsePrimary());
  }
  ASSIGN_OR_RETURN(out, ParsePostfix(std::move(out)));
  if (!with_filters) return out;
  return ParseFiltersAndTests(std::move(out));
}

}  // namespace millrace::models::jinja
