// The library xgrammar, opened while the program runs, and grammars made with
// it. It is reached by the C interface of TVM-FFI (tvm/ffi/c_api.h): objects
// are made and called through their tables of methods.
//
//   ASSIGN_OR_RETURN(auto xgrammar, Xgrammar::Open());
//   ASSIGN_OR_RETURN(auto vocabulary, xgrammar->MakeVocabulary(tokens));
//   ASSIGN_OR_RETURN(std::string compiled, vocabulary->Compile(source));
//   ASSIGN_OR_RETURN(auto grammar, vocabulary->Load(compiled));
//
// Source: XGrammar, Dong et al. 2024; https://github.com/mlc-ai/xgrammar.
#pragma once

#include <memory>
#include <string>

#include "config/base/status.h"
#include "models/grammar/grammar_compiler.h"
#include "models/grammar/grammar_source.h"
#include "models/grammar/token_grammar.h"

namespace millrace::models {

// White space between two parts of a JSON value, at most: a new line and some
// levels of indentation. Without a bound a model may write blanks for ever.
inline constexpr int64_t kMaxJsonWhiteSpace = 16;

// One vocabulary; thread-safe.
class XgrammarVocabulary {
 public:
  virtual ~XgrammarVocabulary() = default;
  // The grammar as bytes that Load reads. INVALID_ARGUMENT with the library's
  // words for a source that it does not take. Needs time and memory without a
  // bound: call it in a child process.
  virtual StatusOr<std::string> Compile(const GrammarSource& source) const = 0;
  // INVALID_ARGUMENT if no text fits.
  virtual StatusOr<std::shared_ptr<const TokenGrammar>> Load(
      const std::string& compiled) const = 0;
};

// Stays open until the program ends; thread-safe.
class Xgrammar {
 public:
  // Looks beside the program (../lib/millrace), then where this program was
  // built. FAILED_PRECONDITION: it is not there, cannot be opened, or the
  // program was built without it.
  static StatusOr<std::shared_ptr<const Xgrammar>> Open();
  virtual ~Xgrammar() = default;
  virtual StatusOr<std::shared_ptr<const XgrammarVocabulary>> MakeVocabulary(
      const TokenTexts& tokens) const = 0;
};

}  // namespace millrace::models
