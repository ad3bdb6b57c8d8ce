// What a completion must look like, as a request asks for it: the text of a
// schema, of a pattern or of a grammar, not checked yet. It is checked and
// compiled by GrammarCompiler (grammar_compiler.h) before the request runs.
//
//   request.options.constraint = {.kind = ConstraintKind::kJsonSchema,
//                                 .text = R"({"type": "object"})",
//                                 .field = "tools[0].function.parameters"};
//
// A value.
#pragma once

#include <string>

namespace millrace::models {

// What `text` holds.
enum class ConstraintKind {
  kNone,           // nothing: any text may come
  kJsonObject,     // nothing: the completion is any JSON object
  kJsonSchema,     // a JSON Schema; the completion is a JSON value that fits
  kRegex,          // a regular expression that the whole completion matches
  kChoice,         // a JSON array of strings; the completion is one of them
  kGrammar,        // EBNF as llama.cpp writes it (GBNF), or Lark
  kStructuralTag,  // a structural tag of xgrammar, as JSON
};

struct OutputConstraint {
  ConstraintKind kind = ConstraintKind::kNone;
  std::string text = {};
  // The request's field that it came in, for errors: "response_format".
  std::string field = {};

  explicit operator bool() const { return kind != ConstraintKind::kNone; }
  friend bool operator==(const OutputConstraint&,
                         const OutputConstraint&) = default;
};

}  // namespace millrace::models
