// Inputs that fit a graph's ports, made up or from a file: to warm it up, to
// time it, to compare two ways of running it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "config/base/status.h"
#include "models/graph/ir.h"

namespace millrace::models::graph {

// What the dimensions of inputs that vary are called, each once.
std::vector<std::string> SizeNames(const std::vector<Port>& ports,
                                   const std::vector<Symbol>& symbols);

struct SampleOptions {
  // Sizes of dimensions that vary, by the name of their symbol. Those left out
  // are 1, or the least that the symbol allows.
  std::map<std::string, int64_t> sizes;
  uint64_t seed = 1;
};

// Sizes of dimensions that vary that the user has not chosen.
enum class LeftOutSizes {
  kLeast,  // the least at first: quick, for a warm-up
  kLikely  // what such inputs are like at first: 128 tokens, images of 224 x
           // 224
};

// Floats are spread evenly over [-1, 1); integers are 1, which most indices,
// masks and lengths may be; booleans are true. INVALID_ARGUMENT names a symbol
// that the graph has not, a size outside of its range or an input of more than
// 2^28 elements; UNIMPLEMENTED one of unknown rank or that is a sequence.
StatusOr<std::vector<Tensor>> SampleInputs(const std::vector<Port>& ports,
                                           const std::vector<Symbol>& symbols,
                                           const SampleOptions& options);

// The same with sizes that the graph accepts, jagged features with values of
// their tables and offsets that fit: where shape inference fails with
// the first ones, some other likely sizes are tried. One row where the first
// dimension varies. INVALID_ARGUMENT says what the graph has against the sizes
// that were tried first. `graph` may have had load-time shape inference or not.
StatusOr<std::vector<Tensor>> SampleInputs(const Graph& graph,
                                           const SampleOptions& options,
                                           LeftOutSizes left_out);

// Of an .npz file: by name when every port finds its own, others left out, else
// in order. Names may tell the order, too: "in0_x" is "x". For a port of BF16
// an array of FP32 is rounded.
StatusOr<std::vector<Tensor>> ReadInputs(const std::string& path,
                                         const std::vector<Port>& ports);
// Of several, whose names commas separate.
StatusOr<std::vector<std::vector<Tensor>>> ReadSamples(
    std::string_view paths, const std::vector<Port>& ports);

}  // namespace millrace::models::graph
