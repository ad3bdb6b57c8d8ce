// Which values are written in place into the result of a Concat, which then
// copies nothing.
//
//   a  [pixels][64] ┐               storage of y: each row  aaaaaaaabbbb
//   b  [pixels][32] ┴ Concat ── y   a's rows lie 96 values apart, and so do
//                                   b's, which begin 64 values on
//
// The steps that make a and b write there, and whatever else reads them reads
// there: both must know of distances between rows. Of pieces with nothing but
// ones before the axis any step will do: their rows stay dense. A Concat of
// values that lie side by side anyhow, as those of a dense block do, is another
// name of that part of the storage. What cannot lie in its place is copied
// there, and the rest of the Concat still is not.
#pragma once

#include <cstdint>
#include <vector>

#include "models/graph/ir.h"
#include "models/graph/plan/kernels.h"

namespace millrace::models::graph {

// Where a value lies.
struct Place {
  // The value whose storage it is part of; kNoValue: it has one of its own.
  ValueId storage = kNoValue;
  int64_t offset = 0;    // in it, in values
  int64_t distance = 0;  // of rows of the last axis, in values

  bool operator==(const Place&) const = default;
};

// Of each value of a graph that was typed and optimised. A storage's own
// value is dense.
std::vector<Place> JoinValues(const Graph& graph, const Kernels& kernels);
// Where every value has a storage of its own.
std::vector<Place> Apart(const Graph& graph);

// Of each operand of a Concat: where it would have to lie so that it need not
// be copied. Empty where parts of the result are no rows of a distance.
std::vector<Place> WantedPlaces(const Node& node, const Graph& graph,
                                const std::vector<Place>& places);
// Whether the value lies there, or is nothing.
bool LiesAt(ValueId id, const Place& wanted, const Graph& graph,
            const std::vector<Place>& places);
// Whether a node is a Concat of which nothing is left to be done.
bool IsJoined(const Node& node, const Graph& graph,
              const std::vector<Place>& places);

}  // namespace millrace::models::graph
