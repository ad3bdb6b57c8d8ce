// The statement half of the parser. {% generation %}, with which templates mark
// what an assistant wrote, is a plain scope here.
#include "models/text/jinja/parser.h"

#include <string>
#include <utility>

#include "models/text/jinja/expression_parser.h"
#include "models/text/jinja/lexer.h"

namespace millrace::models::jinja {
namespace {

class TemplateParser : private ExpressionParser {
 public:
  using ExpressionParser::ExpressionParser;

  StatusOr<Body> Run() {
    ASSIGN_OR_RETURN(Body out, ParseBody({}));
    if (Peek().kind != Token::Kind::kEnd) return Unexpected("a tag");
    return out;
  }

 private:
  using Ends = std::initializer_list<std::string_view>;

  bool AtEnd(Ends ends) const {
    for (const std::string_view end : ends) {
      if (Peek(1).IsName(end)) return true;
    }
    return false;
  }

  // Statements up to a block that begins with one of the ends, which is not
  // passed; without ends, up to the end of the template.
  StatusOr<Body> ParseBody(Ends ends) {
    const Nesting nesting(&depth);
    RETURN_IF_ERROR(CheckDepth(depth));
    const int line = Peek().line;
    Body out;
    for (;;) {
      const Token& token = Peek();
      if (token.kind == Token::Kind::kEnd) {
        if (ends.size() == 0) return out;
        return TemplateError(line,
                             "the block that ends before this line has "
                             "no '" +
                                 std::string(*ends.begin()) + "'");
      }
      if (token.kind == Token::Kind::kData) {
        out.push_back(Make(Statement::Kind::kData));
        out.back().text = Take().text;
      } else if (token.kind == Token::Kind::kPrintBegin) {
        out.push_back(Make(Statement::Kind::kPrint));
        Take();
        ASSIGN_OR_RETURN(out.back().expr, ParseTuple(true));
        RETURN_IF_ERROR(CheckNames());
        RETURN_IF_ERROR(Expect(Token::Kind::kPrintEnd, "'}}'"));
      } else if (AtEnd(ends)) {
        Take();
        return out;
      } else {
        Take();
        ASSIGN_OR_RETURN(Statement statement, ParseStatement());
        out.push_back(std::move(statement));
      }
    }
  }

  // A body whose only end is this word; passes the end tag.
  StatusOr<Body> ParseWhole(std::string_view end) {
    RETURN_IF_ERROR(EndTag());
    ASSIGN_OR_RETURN(Body out, ParseBody({end}));
    Take();
    RETURN_IF_ERROR(EndTag());
    return out;
  }

  Status Expect(Token::Kind kind, std::string_view what) {
    if (Peek().kind != kind) return Unexpected(what);
    Take();
    return OkStatus();
  }
  Status EndTag() { return Expect(Token::Kind::kBlockEnd, "'%}'"); }

  // Filters and tests read so far must be known where code always runs.
  Status CheckNames() {
    const Status out = std::exchange(unknown, OkStatus());
    return conditional_ == 0 ? out : OkStatus();
  }

  Statement Make(Statement::Kind kind) const {
    Statement out;
    out.kind = kind;
    out.line = Peek().line;
    return out;
  }

  StatusOr<Statement> ParseStatement() {
    if (SkipName("for")) return ParseFor();
    if (SkipName("if")) return ParseIf();
    if (SkipName("set")) return ParseSet();
    if (SkipName("macro")) return ParseMacro();
    if (SkipName("call")) return ParseCallBlock();
    if (SkipName("filter")) return ParseFilterBlock();
    if (SkipName("with")) return ParseWith();
    if (SkipName("generation")) {
      Statement out = Make(Statement::Kind::kWith);
      ASSIGN_OR_RETURN(out.body, ParseWhole("endgeneration"));
      return out;
    }
    if (Peek().IsName("break") || Peek().IsName("continue")) {
      Statement out = Make(Peek().text == "break" ? Statement::Kind::kBreak
                                                  : Statement::Kind::kContinue);
      if (loops_ == 0) {
        return TemplateError(out.line, "'" + Peek().text + "' outside a loop");
      }
      Take();
      RETURN_IF_ERROR(EndTag());
      return out;
    }
    return TemplateError(Peek().line, "the block '" + Peek().text +
                                          "' is unknown or out of place");
  }

  StatusOr<Target> ParseTarget(bool may_be_attribute) {
    const Nesting nesting(&depth);
    RETURN_IF_ERROR(CheckDepth(depth));
    Target out;
    bool single = true;
    do {
      if (!out.items.empty() && Peek().kind != Token::Kind::kName &&
          !Peek().Is("(")) {
        single = false;  // a comma at the end
        break;
      }
      Target item;
      if (SkipOp("(")) {
        ASSIGN_OR_RETURN(item, ParseTarget(false));
        RETURN_IF_ERROR(ExpectOp(")"));
      } else {
        ASSIGN_OR_RETURN(item.name, TakeName("a name to assign to"));
        for (const char* constant :
             {"true", "false", "none", "True", "False", "None"}) {
          if (item.name == constant) {
            return TemplateError(Peek().line,
                                 "cannot assign to '" + item.name + "'");
          }
        }
        if (may_be_attribute && SkipOp(".")) {
          ASSIGN_OR_RETURN(item.attribute, TakeName("an attribute's name"));
        }
      }
      out.items.push_back(std::move(item));
    } while (SkipOp(","));
    if (out.items.size() == 1 && single) {
      Target item = std::move(out.items[0]);
      return item;
    }
    return out;
  }

  StatusOr<Statement> ParseFor() {
    Statement out = Make(Statement::Kind::kFor);
    ASSIGN_OR_RETURN(out.target, ParseTarget(false));
    RETURN_IF_ERROR(ExpectName("in"));
    ASSIGN_OR_RETURN(out.expr, ParseTuple(false));
    if (SkipName("if")) {
      ASSIGN_OR_RETURN(out.condition, ParseExpression());
    }
    out.recursive = SkipName("recursive");
    RETURN_IF_ERROR(CheckNames());
    RETURN_IF_ERROR(EndTag());
    ++loops_;
    auto body = ParseBody({"endfor", "else"});
    --loops_;
    RETURN_IF_ERROR(body.status());
    out.body = std::move(body).value();
    if (Take().text == "else") {
      ASSIGN_OR_RETURN(out.other, ParseWhole("endfor"));
      return out;
    }
    RETURN_IF_ERROR(EndTag());
    return out;
  }

  StatusOr<Statement> ParseIf() {
    Statement out = Make(Statement::Kind::kIf);
    for (;;) {
      ASSIGN_OR_RETURN(ExprPtr condition, ParseTuple(false));
      RETURN_IF_ERROR(CheckNames());
      RETURN_IF_ERROR(EndTag());
      ++conditional_;
      auto body = ParseBody({"endif", "elif", "else"});
      --conditional_;
      RETURN_IF_ERROR(body.status());
      out.branches.emplace_back(std::move(condition), std::move(body).value());
      const std::string end = Take().text;
      if (end == "elif") continue;
      if (end == "else") {
        ++conditional_;
        auto other = ParseWhole("endif");
        --conditional_;
        RETURN_IF_ERROR(other.status());
        out.other = std::move(other).value();
        return out;
      }
      RETURN_IF_ERROR(EndTag());
      return out;
    }
  }

  StatusOr<Statement> ParseSet() {
    Statement out = Make(Statement::Kind::kSet);
    ASSIGN_OR_RETURN(out.target, ParseTarget(true));
    if (SkipOp("=")) {
      ASSIGN_OR_RETURN(out.expr, ParseTuple(true));
      RETURN_IF_ERROR(CheckNames());
      RETURN_IF_ERROR(EndTag());
      return out;
    }
    out.kind = Statement::Kind::kSetBlock;
    if (SkipOp("|")) {
      ASSIGN_OR_RETURN(out.expr, ParseFilterChain());
      RETURN_IF_ERROR(CheckNames());
    }
    ASSIGN_OR_RETURN(out.body, ParseWhole("endset"));
    return out;
  }

  StatusOr<std::vector<Parameter>> ParseParameters() {
    std::vector<Parameter> out;
    RETURN_IF_ERROR(ExpectOp("("));
    while (!SkipOp(")")) {
      if (!out.empty()) {
        RETURN_IF_ERROR(ExpectOp(","));
        if (SkipOp(")")) break;
      }
      Parameter parameter;
      ASSIGN_OR_RETURN(parameter.name, TakeName("a parameter's name"));
      if (SkipOp("=")) {
        ASSIGN_OR_RETURN(parameter.otherwise, ParseExpression());
        RETURN_IF_ERROR(CheckNames());
      } else if (!out.empty() && out.back().otherwise != nullptr) {
        return TemplateError(Peek().line,
                             "'" + parameter.name + "' needs a default");
      }
      out.push_back(std::move(parameter));
    }
    return out;
  }

  // A macro's body is outside the loop that it may stand in. What it names,
  // and what macros within it name, decides which arguments it takes.
  Status ParseMacroBody(std::string_view end, Statement& macro) {
    const int loops = std::exchange(loops_, 0);
    const bool outer[] = {std::exchange(uses_varargs, false),
                          std::exchange(uses_kwargs, false),
                          std::exchange(uses_caller, false)};
    auto body = ParseWhole(end);
    loops_ = loops;
    RETURN_IF_ERROR(body.status());
    macro.body = std::move(body).value();
    macro.takes_varargs = uses_varargs;
    macro.takes_kwargs = uses_kwargs;
    macro.takes_caller = uses_caller;
    uses_varargs = uses_varargs || outer[0];
    uses_kwargs = uses_kwargs || outer[1];
    uses_caller = uses_caller || outer[2];
    return OkStatus();
  }

  StatusOr<Statement> ParseMacro() {
    Statement out = Make(Statement::Kind::kMacro);
    ASSIGN_OR_RETURN(out.target.name, TakeName("a macro's name"));
    ASSIGN_OR_RETURN(out.parameters, ParseParameters());
    RETURN_IF_ERROR(ParseMacroBody("endmacro", out));
    return out;
  }

  StatusOr<Statement> ParseCallBlock() {
    Statement out = Make(Statement::Kind::kCall);
    if (Peek().Is("(")) {
      ASSIGN_OR_RETURN(out.parameters, ParseParameters());
    }
    ASSIGN_OR_RETURN(out.expr, ParseExpression());
    RETURN_IF_ERROR(CheckNames());
    if (out.expr->kind != Expr::Kind::kCall) {
      return TemplateError(out.line, "a call block needs a call");
    }
    RETURN_IF_ERROR(ParseMacroBody("endcall", out));
    return out;
  }

  StatusOr<Statement> ParseFilterBlock() {
    Statement out = Make(Statement::Kind::kFilter);
    ASSIGN_OR_RETURN(out.expr, ParseFilterChain());
    RETURN_IF_ERROR(CheckNames());
    ASSIGN_OR_RETURN(out.body, ParseWhole("endfilter"));
    return out;
  }

  StatusOr<Statement> ParseWith() {
    Statement out = Make(Statement::Kind::kWith);
    while (Peek().kind != Token::Kind::kBlockEnd) {
      if (!out.assignments.empty()) RETURN_IF_ERROR(ExpectOp(","));
      Target target;
      ASSIGN_OR_RETURN(target.name, TakeName("a name to assign to"));
      RETURN_IF_ERROR(ExpectOp("="));
      ASSIGN_OR_RETURN(ExprPtr value, ParseExpression());
      RETURN_IF_ERROR(CheckNames());
      out.assignments.emplace_back(std::move(target), std::move(value));
    }
    ASSIGN_OR_RETURN(out.body, ParseWhole("endwith"));
    return out;
  }

  int conditional_ = 0;  // bodies of "if" around here
  int loops_ = 0;        // loops around here, within this macro
};

}  // namespace

StatusOr<Body> Parse(std::string_view source, int max_depth) {
  ASSIGN_OR_RETURN(std::vector<Token> tokens, Lex(source));
  return TemplateParser(std::move(tokens), max_depth).Run();
}

}  // namespace millrace::models::jinja
