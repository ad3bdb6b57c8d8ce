// What passes between the server and the child that compiles a grammar, and the
// child itself.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "config/base/status.h"
#include "models/grammar/grammar_compiler.h"
#include "models/grammar/output_constraint.h"

namespace millrace::models {

// What the program must be called with to be the child.
inline constexpr const char* kCompileVerb = "compile-grammar";

// Limits of the child, which it sets for itself before it reads anything.
inline constexpr int64_t kChildMemoryBytes = int64_t{1} << 30;
inline constexpr int64_t kChildCpuSeconds = 10;  // then SIGXCPU ends it

// All that the child needs, in one piece; the field of the constraint is not.
std::string EncodeJob(const OutputConstraint& constraint,
                      const TokenTexts& tokens);

struct CompileJob {
  OutputConstraint constraint;
  TokenTexts tokens;
};
// INVALID_ARGUMENT for bytes that EncodeJob did not write.
StatusOr<CompileJob> DecodeJob(std::string_view bytes);

// The child's main: reads a job from standard input, checks and translates the
// constraint, compiles it, and writes 'K' and the serialised grammar, or 'E'
// and a sentence, to standard output. Its exit code; kOutOfMemoryExit when it
// met the limit of memory.
int RunCompileChild();

}  // namespace millrace::models
