// Facts that many operators have in common, for their rows.
#pragma once

#include <optional>

#include "models/graph/activation.h"
#include "models/graph/op.h"

namespace millrace::models::graph {

inline constexpr OpFacts kUnaryFact = {.elementwise = Elementwise::kUnary};
inline constexpr OpFacts kBroadcastFact = {.elementwise =
                                               Elementwise::kBroadcast};

template <Unary f>
std::optional<Activation> Always(const Call&) {
  return Activation{f};
}
// A function without parameters that the dense kernels have.
template <Unary f>
inline constexpr OpFacts kActivationFact = {.elementwise = Elementwise::kUnary,
                                            .activation = Always<f>};

}  // namespace millrace::models::graph
