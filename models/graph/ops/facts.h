// Facts that many operators have in common, for their rows.
#pragma once

#include <optional>

#include "models/graph/activation.h"
#include "models/graph/op.h"

namespace millrace::models::graph {

// OpFacts::is_needless of what is one whatever its attributes are.
inline bool AlwaysNeedless(const Call&) { return true; }

inline constexpr OpFacts kUnaryFact = {.elementwise = Elementwise::kUnary};
inline constexpr OpFacts kBroadcastFact = {.elementwise =
                                               Elementwise::kBroadcast};
// The same, where the elements may be strings.
inline constexpr OpFacts kBroadcastStringsFact = {
    .elementwise = Elementwise::kBroadcast, .strings = Strings::kTakes};

template <Unary f>
std::optional<Activation> Always(const Call&) {
  return Activation{f};
}
// A function without parameters that the dense kernels have.
template <Unary f>
inline constexpr OpFacts kActivationFact = {.elementwise = Elementwise::kUnary,
                                            .activation = Always<f>};

}  // namespace millrace::models::graph
