// Makes token grammars of constraints. A request waits for its grammar outside
// the threads of handlers and engine:
//
//   compiler->Compile(constraint, {.deadline = deadline, .stop = stop},
//                     [](auto grammar) { ... });
//
// What comes from a client is checked and compiled in a child process with
// limits of time and memory (compile_child.h), so that no schema can harm the
// server. Results are cached by content.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "config/base/clock.h"
#include "config/base/status.h"
#include "models/grammar/output_constraint.h"
#include "models/grammar/token_grammar.h"

namespace millrace::models {

using CompiledGrammar = StatusOr<std::shared_ptr<const TokenGrammar>>;

// How long a request waits for its grammar.
struct CompileWait {
  Clock::Time deadline = kNever;  // of the real clock
  std::stop_token stop = {};
};

// Thread-safe.
class GrammarCompiler {
 public:
  using Done = std::function<void(CompiledGrammar)>;
  // Calls what still waits with UNAVAILABLE.
  virtual ~GrammarCompiler() = default;

  // Calls `done` once, at once or later from a thread of its own, where it must
  // be short. INVALID_ARGUMENT at the constraint's field names what is wrong
  // with it; RESOURCE_EXHAUSTED: too many wait to be compiled;
  // DEADLINE_EXCEEDED and CANCELLED: `wait` ended before.
  virtual void Compile(const OutputConstraint& constraint, CompileWait wait,
                       Done done) = 0;
};

// What a grammar must know of a model's tokens.
struct TokenTexts {
  // Bytes of each token by id; empty: it never stands for text.
  std::vector<std::string> texts;
  int32_t vocab_size = 0;         // of the model's logits, texts.size() or more
  std::vector<int32_t> stop_ids;  // that end a completion; at least one
};

// Grammars of a model by xgrammar. The library is opened, and `tokens` called,
// with the first request; where it is missing, or this program was built
// without it, every request is refused in a sentence. The child is this
// program, called with the verb `compile-grammar`.
std::unique_ptr<GrammarCompiler> MakeGrammarCompiler(
    std::function<TokenTexts()> tokens);

}  // namespace millrace::models
