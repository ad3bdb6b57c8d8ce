// The equation of an Einsum, fitted to the shapes of its operands.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "models/graph/op.h"

namespace millrace::models::graph {

// Labels are letters, and characters below them for what an ellipsis stands
// for; a size of 1 gives way to another of the same label.
struct Equation {
  std::vector<std::string> inputs;  // a label for each dimension
  std::string output;
  std::map<char, int64_t> sizes;
};

// INVALID_ARGUMENT quotes the equation and says what is wrong with it.
StatusOr<Equation> ParseEquation(const Call& call);

}  // namespace millrace::models::graph
