// Operands and what follows them: literals, attributes, items, calls, filters
// and tests.
#include <cstdlib>
#include <optional>

#include "models/text/jinja/expression_parser.h"

namespace millrace::models::jinja {

using Kind = Expr::Kind;

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
        uses_varargs = uses_varargs || name == "varargs";
        uses_kwargs = uses_kwargs || name == "kwargs";
        uses_caller = uses_caller || name == "caller";
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
  const std::optional<Integer> value = IntegerFromString(digits, base);
  if (!value) {
    return TemplateError(token.line,
                         "the number " + token.text + " passes 127 bits");
  }
  out->value = Value::Int(*value);
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
