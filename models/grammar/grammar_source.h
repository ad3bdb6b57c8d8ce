// A constraint in the words of the library that compiles it. Everything that
// the library would take for something else, or would not honour, is refused
// before.
//
//   ASSIGN_OR_RETURN(GrammarSource source, SourceOf(constraint));
//
// Pure functions.
#pragma once

#include <cstdint>
#include <string>

#include "config/base/status.h"
#include "models/grammar/output_constraint.h"

namespace millrace::models {

struct GrammarSource {
  enum class Kind : uint32_t {
    kJsonSchema = 0,
    kRegex = 1,
    kEbnf = 2,
    kLark = 3,
    kStructuralTag = 4,
  };
  Kind kind = Kind::kEbnf;
  std::string text = {};
};

inline constexpr size_t kMaxConstraintBytes = size_t{256} << 10;

// INVALID_ARGUMENT says what is wrong and where, without the request's field.
StatusOr<GrammarSource> SourceOf(const OutputConstraint& constraint);

}  // namespace millrace::models
