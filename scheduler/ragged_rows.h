// Requests whose inputs differ in length, joined to one batch: shorter rows are
// padded behind their values, and what the outputs have for the padding is cut
// off again.
//
//   tokens  [rows, length]      request 1: [1, 5]   request 2: [2, 7]
//   batch   [3, 8]              5 tokens and 3 times the padding, 7 and 1, …
//   hidden  [rows, length, 64]  [1, 5, 64] and [2, 7, 64] of [3, 8, 64]
//
// A length is a dimension that the graph names (not the batch's) of an input
// that is declared ragged; wherever outputs have that name, they are cut. The
// model must not let padding reach the values, by a mask for instance; this is
// not checked. A mask may be made here: ones where a
// request has values, zeros where it is padded.
//
// Lengths of one batch are within a factor of two, so that at most half of what
// is computed is padding. Immutable; thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "config/base/status.h"
#include "config/ragged_settings.h"
#include "models/graph/ports.h"
#include "models/tensor/tensor.h"

namespace millrace::scheduler {

class RaggedRows {
 public:
  // Of no ragged input: batch_tensors.h does all.
  RaggedRows() = default;
  // INVALID_ARGUMENT names the input that the graph has not, that has no length
  // or cannot hold its padding, or the output whose padding could not be cut
  // off.
  static StatusOr<RaggedRows> Create(
      const config::RaggedSettings& declared,
      const std::vector<models::graph::Port>& inputs,
      const std::vector<models::graph::Port>& outputs,
      const std::vector<models::graph::Symbol>& symbols);

  bool any() const { return !paddings_.empty(); }

  // Whether requests may leave the input out: a mask, which is made here.
  bool IsMade(size_t input) const;
  // Makes the masks that were left out: their tensors are default ones. Their
  // sizes are those of the other inputs, which are held against the graph
  // first: INVALID_ARGUMENT where one does not fit it or another one, or tells
  // sizes without having elements.
  Status MakeMasks(std::vector<models::Tensor>& inputs) const;

  // Equal for inputs that can be joined.
  std::string KindOf(const std::vector<models::Tensor>& inputs) const;
  std::vector<models::Tensor> Join(
      const std::vector<const std::vector<models::Tensor>*>& parts) const;
  // The outputs of each part. FAILED_PRECONDITION where an output has not the
  // length that it has by its declaration: the padding cannot be found.
  StatusOr<std::vector<std::vector<models::Tensor>>> Part(
      std::vector<models::Tensor> outputs,
      const std::vector<const std::vector<models::Tensor>*>& parts) const;

 private:
  // Each dimension behind the first of a port: the number of its length, or -1
  // where it has none.
  using Lengths = std::vector<std::vector<int32_t>>;
  // The value of each length in these inputs.
  std::vector<int64_t> LengthsOf(
      const std::vector<models::Tensor>& inputs) const;
  // One output of one part of that batch.
  StatusOr<models::Tensor> Cut(models::Tensor output, size_t index,
                               const std::vector<int64_t>& longest,
                               const std::vector<int64_t>& lengths) const;
  // Of the batch; empty where the parts are alike and nothing is padded.
  std::vector<int64_t> PaddedLengths(
      const std::vector<const std::vector<models::Tensor>*>& parts) const;

  // By input; those that are not ragged have no name.
  std::vector<config::RaggedInput> paddings_;
  std::vector<models::graph::Port> ports_;  // of the inputs
  std::vector<models::graph::Symbol> symbols_;
  // Of each mask: an input that has all its sizes that vary.
  std::vector<size_t> told_by_;
  std::vector<std::string> output_names_;
  Lengths inputs_, outputs_;
  std::vector<int64_t> most_;  // of each length
};

}  // namespace millrace::scheduler
