#include "models/graph/executor.h"

#include <utility>

#include "models/graph/interpreter.h"

namespace millrace::models::graph {
namespace {

class GraphExecutor : public Executor {
 public:
  explicit GraphExecutor(Graph graph) : graph_(std::move(graph)) {}

  StatusOr<std::vector<Tensor>> Run(
      const std::vector<Tensor>& inputs) override {
    RETURN_IF_ERROR(CheckInputs(graph_.inputs, graph_.symbols, inputs));
    return Interpret(graph_, inputs);
  }

  const std::vector<Port>& inputs() const override { return graph_.inputs; }
  const std::vector<Port>& outputs() const override { return graph_.outputs; }
  const std::vector<Symbol>& symbols() const override { return graph_.symbols; }
  std::string PlanText() const override { return ""; }

 private:
  const Graph graph_;
};

}  // namespace

StatusOr<std::unique_ptr<Executor>> Executor::Create(
    Graph graph, const ExecutorOptions& options) {
  static_cast<void>(options);
  RETURN_IF_ERROR(graph.Validate());
  return std::unique_ptr<Executor>(new GraphExecutor(std::move(graph)));
}

}  // namespace millrace::models::graph
