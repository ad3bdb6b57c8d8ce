// Expressions, with the oddities that templates rely on: "-x | abs" filters
// the negated x, "**" binds to the left, and a test takes one argument without
// brackets ("x is divisibleby 3").
#include "models/text/jinja/expression_parser.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>

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

StatusOr<ExprPtr> ExpressionParser::ParsePrimary() {
  ExprPtr out = Make(Kind::kConst);
  const Token& token = Peek();
  switch (token.kind) {
    case Token::Kind::kName: {
      const std::string name = Take().text;
      if (name == "true" || name == "True") {
        out->value = Value::Bool(true);
      } else if (name == "false" || name == "False") {
        out->value = Value::Bool(false);
      } else if (name == "none" || name == "None") {
        out->value = Value::None();
      } else {
        out->kind = Kind::kName;
        out->name = name;
      }
      return out;
    }
    case Token::Kind::kString: {
      std::string text;
      while (Peek().kind == Token::Kind::kString) text += Take().text;
      out->value = Value::String(text);
      return out;
    }
    case Token::Kind::kInteger:
    case Token::Kind::kFloat:
      return ParseNumber();
    default:
      break;
  }
  if (SkipOp("(")) {
    if (SkipOp(")")) {
      out->kind = Kind::kTuple;
      return out;
    }
    ASSIGN_OR_RETURN(out, ParseTuple(true));
    RETURN_IF_ERROR(ExpectOp(")"));
    return out;
  }
  if (SkipOp("[")) {
    out->kind = Kind::kList;
    while (!SkipOp("]")) {
      if (!out->kids.empty()) {
        RETURN_IF_ERROR(ExpectOp(","));
        if (SkipOp("]")) break;
      }
      ASSIGN_OR_RETURN(ExprPtr item, ParseExpression());
      out->kids.push_back(std::move(item));
    }
    return Finish(std::move(out));
  }
  if (token.Is("{")) return ParseDict();
  return Unexpected("an expression");
}

StatusOr<ExprPtr> ExpressionParser::ParseNumber() {
  ExprPtr out = Make(Kind::kConst);
  const Token token = Take();
  if (token.kind == Token::Kind::kFloat) {
    out->value = Value::Float(std::strtod(token.text.c_str(), nullptr));
    return out;
  }
  std::string_view digits = token.text;
  int base = 10;
  if (digits.size() > 2 && digits[0] == '0' && digits[1] > '9') {
    const char letter = static_cast<char>(digits[1] | 0x20);
    base = letter == 'x' ? 16 : letter == 'o' ? 8 : 2;
    digits.remove_prefix(2);
  }
  int64_t value = 0;
  const auto read = std::from_chars(digits.data(),
                                    digits.data() + digits.size(), value, base);
  if (read.ec != std::errc()) {
    return TemplateError(token.line,
                         "the number " + token.text + " is too large");
  }
  out->value = Value::Int(value);
  return out;
}

StatusOr<ExprPtr> ExpressionParser::ParseDict() {
  ExprPtr out = Make(Kind::kDict);
  RETURN_IF_ERROR(ExpectOp("{"));
  while (!SkipOp("}")) {
    if (!out->kids.empty()) {
      RETURN_IF_ERROR(ExpectOp(","));
      if (SkipOp("}")) break;
    }
    ASSIGN_OR_RETURN(ExprPtr key, ParseExpression());
    RETURN_IF_ERROR(ExpectOp(":"));
    ASSIGN_OR_RETURN(ExprPtr value, ParseExpression());
    out->kids.push_back(std::move(key));
    out->kids.push_back(std::move(value));
  }
  return Finish(std::move(out));
}

StatusOr<ExprPtr> ExpressionParser::ParsePostfix(ExprPtr expr) {
  for (;;) {
    if (Peek().Is(".")) {
      ExprPtr out = Make(Kind::kAttribute);
      Take();
      out->kids.push_back(std::move(expr));
      if (Peek().kind == Token::Kind::kInteger) {  // "items.0"
        out->kind = Kind::kItem;
        ASSIGN_OR_RETURN(ExprPtr index, ParseNumber());
        out->kids.push_back(std::move(index));
      } else {
        ASSIGN_OR_RETURN(out->name, TakeName("an attribute's name"));
      }
      ASSIGN_OR_RETURN(expr, Finish(std::move(out)));
    } else if (Peek().Is("[")) {
      ASSIGN_OR_RETURN(expr, ParseSubscript(std::move(expr)));
    } else if (Peek().Is("(")) {
      ASSIGN_OR_RETURN(expr, ParseCall(std::move(expr)));
    } else {
      return expr;
    }
  }
}

StatusOr<ExprPtr> ExpressionParser::ParseSubscript(ExprPtr expr) {
  ExprPtr out = Make(Kind::kItem);
  RETURN_IF_ERROR(ExpectOp("["));
  out->kids.push_back(std::move(expr));
  ExprPtr bounds[3];
  size_t bound = 0;
  for (; bound < 3; ++bound) {
    if (!Peek().Is(":") && !Peek().Is("]")) {
      ASSIGN_OR_RETURN(bounds[bound],
                       bound == 0 ? ParseTuple(true) : ParseExpression());
    }
    if (!SkipOp(":")) break;
    out->kind = Kind::kSlice;
  }
  RETURN_IF_ERROR(ExpectOp("]"));
  if (out->kind == Kind::kItem) {
    if (bounds[0] == nullptr) return Unexpected("an index before ']'");
    out->kids.push_back(std::move(bounds[0]));
  } else {
    for (ExprPtr& kid : bounds) out->kids.push_back(std::move(kid));
  }
  return Finish(std::move(out));
}

StatusOr<ExprPtr> ExpressionParser::ParseFiltersAndTests(ExprPtr expr) {
  for (;;) {
    if (SkipOp("|")) {
      ASSIGN_OR_RETURN(expr, ParseFilter(std::move(expr)));
    } else if (SkipName("is")) {
      ASSIGN_OR_RETURN(expr, ParseTest(std::move(expr)));
    } else if (Peek().Is("(")) {
      ASSIGN_OR_RETURN(expr, ParseCall(std::move(expr)));
    } else {
      return expr;
    }
  }
}

StatusOr<ExprPtr> ExpressionParser::ParseFilter(ExprPtr expr) {
  ExprPtr out = Make(Kind::kFilter);
  ASSIGN_OR_RETURN(out->name, TakeName("a filter's name"));
  out->builtin = FindFilter(out->name);
  if (out->builtin == nullptr && unknown.ok()) {
    unknown = TemplateError(out->line, "no filter named '" + out->name + "'");
  }
  out->kids.push_back(std::move(expr));
  if (Peek().Is("(")) {
    ASSIGN_OR_RETURN(out->args, ParseArgs());
  }
  return Finish(std::move(out));
}

StatusOr<ExprPtr> ExpressionParser::ParseFilterChain() {
  ExprPtr out = Make(Kind::kBlockText);
  do {
    ASSIGN_OR_RETURN(out, ParseFilter(std::move(out)));
  } while (SkipOp("|"));
  return out;
}

StatusOr<ExprPtr> ExpressionParser::ParseTest(ExprPtr expr) {
  ExprPtr out = Make(Kind::kTest);
  const bool negated = SkipName("not");
  ASSIGN_OR_RETURN(out->name, TakeName("a test's name"));
  out->builtin = FindTest(out->name);
  if (out->builtin == nullptr && unknown.ok()) {
    unknown = TemplateError(out->line, "no test named '" + out->name + "'");
  }
  out->kids.push_back(std::move(expr));
  const Token& next = Peek();
  const bool operand =
      next.kind == Token::Kind::kString || next.kind == Token::Kind::kInteger ||
      next.kind == Token::Kind::kFloat || next.Is("[") || next.Is("{") ||
      (next.kind == Token::Kind::kName && next.text != "else" &&
       next.text != "or" && next.text != "and" && next.text != "is" &&
       next.text != "if" && next.text != "in" && next.text != "not" &&
       next.text != "recursive");
  if (next.Is("(")) {
    ASSIGN_OR_RETURN(out->args, ParseArgs());
  } else if (operand) {
    ASSIGN_OR_RETURN(ExprPtr arg, ParsePrimary());
    ASSIGN_OR_RETURN(arg, ParsePostfix(std::move(arg)));
    out->args.positional.push_back(std::move(arg));
  }
  ASSIGN_OR_RETURN(out, Finish(std::move(out)));
  if (!negated) return out;
  return Wrap(Kind::kNot, std::move(out));
}

StatusOr<ExprPtr> ExpressionParser::ParseCall(ExprPtr expr) {
  ExprPtr out = Make(Kind::kCall);
  out->kids.push_back(std::move(expr));
  ASSIGN_OR_RETURN(out->args, ParseArgs());
  return Finish(std::move(out));
}

StatusOr<CallArgs> ExpressionParser::ParseArgs() {
  CallArgs out;
  RETURN_IF_ERROR(ExpectOp("("));
  bool first = true;
  while (!SkipOp(")")) {
    if (!first) {
      RETURN_IF_ERROR(ExpectOp(","));
      if (SkipOp(")")) break;
    }
    first = false;
    if (SkipOp("**")) {
      ASSIGN_OR_RETURN(out.double_star, ParseExpression());
    } else if (SkipOp("*")) {
      ASSIGN_OR_RETURN(out.star, ParseExpression());
    } else if (Peek().kind == Token::Kind::kName && Peek(1).Is("=")) {
      std::string name = Take().text;
      Take();
      ASSIGN_OR_RETURN(ExprPtr value, ParseExpression());
      out.named.emplace_back(std::move(name), std::move(value));
    } else {
      if (!out.named.empty() || out.star || out.double_star) {
        return Unexpected("an argument with its name");
      }
      ASSIGN_OR_RETURN(ExprPtr value, ParseExpression());
      out.positional.push_back(std::move(value));
    }
  }
  return out;
}

}  // namespace millrace::models::jinja
