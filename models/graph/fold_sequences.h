// Sequences while constants are folded: each becomes the list of the values
// that stand for its items, so that none is left when the graph runs.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "config/base/status.h"
#include "models/graph/ir.h"

namespace millrace::models::graph {

class FoldedSequences {
 public:
  // Adds a node of this operator to the graph, near (in name) the node that
  // it is made for; the value that stands for its only result.
  using Make = std::function<StatusOr<ValueId>(
      const Node& near, std::string_view op, std::vector<ValueId>, Attrs)>;
  // Nothing: what decides the node is not known.
  using Results = std::optional<std::vector<ValueId>>;

  // `made`: the graph whose values are read and made. Outlives this.
  FoldedSequences(Graph* made, Make make);

  bool Any(const std::vector<ValueId>& values) const;

  // What stands for the results of a node for which IsOnSequences holds.
  StatusOr<Results> Fold(const Node& node,
                         const std::vector<ValueId>& operands);

  // The values from `first` on are not there any more.
  void Forget(ValueId first);

 private:
  const Tensor* Constant(ValueId id) const;
  std::optional<int64_t> NumberAt(const std::vector<ValueId>& operands,
                                  size_t i, int64_t otherwise) const;
  ValueId List(std::string_view name, int64_t only);
  Results Made(const Node& node, std::vector<ValueId> items);
  StatusOr<Results> Edited(const Node& node,
                           const std::vector<ValueId>& operands,
                           std::vector<ValueId> items);
  StatusOr<Results> Joined(const Node& node, std::vector<ValueId> items);
  StatusOr<Results> Parts(const Node& node,
                          const std::vector<ValueId>& operands);

  Graph& made_;
  const Make make_;
  std::unordered_map<ValueId, std::vector<ValueId>> items_;
};

}  // namespace millrace::models::graph
