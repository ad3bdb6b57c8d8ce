// The names that nodes of one graph of the file can see: its own, and those of
// the graphs around it. Taking a name from around makes it an input of this
// graph ("captured"); constants are shared instead.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "config/base/status.h"
#include "models/graph/ir.h"

namespace millrace::models::graph {

class Scope {
 public:
  // `around` is null for the main graph; both live longer.
  Scope(Graph* graph, Scope* around) : graph_(graph), around_(around) {}
  // The same graph under other names: the body of an inlined function.
  static Scope OfFunction(Graph* graph) { return Scope(graph, nullptr); }

  // Null when the name is not known.
  std::optional<ValueId> Find(const std::string& name);
  // INVALID_ARGUMENT when the name is taken.
  Status Define(const std::string& name, ValueId value);

  struct Capture {
    std::string name;
    ValueId outside = kNoValue;
    ValueId inside = kNoValue;
  };
  const std::vector<Capture>& captures() const { return captures_; }
  Graph* graph() const { return graph_; }

 private:
  Graph* graph_;
  Scope* around_;
  std::unordered_map<std::string, ValueId> own_;
  std::vector<Capture> captures_;
};

}  // namespace millrace::models::graph
