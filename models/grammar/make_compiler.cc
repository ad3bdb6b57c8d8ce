// Who does what for one constraint: a child translates and compiles it, this
// thread reads the result.
#include <functional>
#include <utility>

#include "models/grammar/child_process.h"
#include "models/grammar/compile_child.h"
#include "models/grammar/compile_queue.h"
#include "models/grammar/grammar_compiler.h"
#include "models/grammar/xgrammar.h"

namespace millrace::models {
namespace {

constexpr const char* kProgram = "/proc/self/exe";

class ChildCompiler {
 public:
  explicit ChildCompiler(std::function<TokenTexts()> make_tokens)
      : make_tokens_(std::move(make_tokens)) {}

  CompiledGrammar Compile(const OutputConstraint& constraint) {
    RETURN_IF_ERROR(Open());
    StatusOr<std::string> answer =
        RunChild({kProgram, kCompileVerb}, EncodeJob(constraint, tokens_), {});
    if (answer.status().code() == StatusCode::kDeadlineExceeded ||
        answer.status().code() == StatusCode::kUnavailable) {
      // The machine is busy or short of memory: the child's own limits would
      // have come before.
      return ResourceExhausted("a grammar could not be compiled because " +
                               std::string(answer.status().message()) +
                               "; try again in ten seconds")
          .RetryAfterMs(10'000);
    }
    if (answer.status().code() == StatusCode::kResourceExhausted) {
      return InvalidArgument(
          "it could not be compiled within the limits of work and memory (" +
          std::string(answer.status().message()) + "); make it smaller");
    }
    RETURN_IF_ERROR(answer.status());
    if (answer->empty())
      return Internal("the compiler of grammars said nothing");
    if (answer->front() != 'K') return InvalidArgument(answer->substr(1));
    return vocabulary_->Load(answer->substr(1));
  }

 private:
  // With the first constraint, so that a server without any needs no library.
  Status Open() {
    if (vocabulary_ != nullptr) return OkStatus();
    const auto xgrammar = Xgrammar::Open();
    if (!xgrammar.ok()) {
      return Unimplemented(
                 "structured output needs the library xgrammar, which cannot "
                 "be used here (" +
                 std::string(xgrammar.status().message()) +
                 "); leave this field out or install the library")
          .Because("unsupported_parameter");
    }
    tokens_ = make_tokens_();
    ASSIGN_OR_RETURN(vocabulary_, (*xgrammar)->MakeVocabulary(tokens_));
    return OkStatus();
  }

  const std::function<TokenTexts()> make_tokens_;
  TokenTexts tokens_;
  std::shared_ptr<const XgrammarVocabulary> vocabulary_;
};

}  // namespace

std::unique_ptr<GrammarCompiler> MakeGrammarCompiler(
    std::function<TokenTexts()> tokens) {
  auto compiler = std::make_shared<ChildCompiler>(std::move(tokens));
  return std::make_unique<CompileQueue>(
      [compiler](const OutputConstraint& constraint) {
        return compiler->Compile(constraint);
      });
}

}  // namespace millrace::models
