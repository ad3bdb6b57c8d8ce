// Kahn's algorithm, with the smallest index first among the ready.
#include "models/graph/onnx/order.h"

#include <onnx/onnx_pb.h>

#include <functional>
#include <queue>
#include <string>
#include <string_view>
#include <unordered_map>

#include "models/graph/onnx/text.h"

namespace millrace::models::graph {
namespace {

// Every name that a node or the graphs inside of it read. A name of a body's
// own may be among them: it costs a needless edge at most.
template <typename Visit>
void ForNamesRead(const onnx::NodeProto& node, const Visit& visit) {
  for (const std::string& name : node.input()) visit(name);
  const auto inside = [&](const onnx::GraphProto& body) {
    for (const onnx::NodeProto& inner : body.node()) {
      ForNamesRead(inner, visit);
    }
    for (const auto& output : body.output()) visit(output.name());
  };
  for (const onnx::AttributeProto& attribute : node.attribute()) {
    if (attribute.has_g()) inside(attribute.g());
    for (const onnx::GraphProto& body : attribute.graphs()) inside(body);
  }
}

}  // namespace

StatusOr<std::vector<int>> RunningOrder(const onnx::GraphProto& graph) {
  std::unordered_map<std::string_view, int> maker;
  for (int i = 0; i < graph.node_size(); ++i) {
    for (const std::string& name : graph.node(i).output()) {
      if (!name.empty()) maker.emplace(name, i);
    }
  }
  const auto count = static_cast<size_t>(graph.node_size());
  std::vector<std::vector<int>> readers(count);
  std::vector<int> waits_for(count);
  for (int i = 0; i < graph.node_size(); ++i) {
    ForNamesRead(graph.node(i), [&](std::string_view name) {
      const auto made = maker.find(name);
      if (made == maker.end()) return;
      readers[static_cast<size_t>(made->second)].push_back(i);
      ++waits_for[static_cast<size_t>(i)];
    });
  }
  std::priority_queue<int, std::vector<int>, std::greater<>> ready;
  for (size_t i = 0; i < count; ++i) {
    if (waits_for[i] == 0) ready.push(static_cast<int>(i));
  }
  std::vector<int> order;
  while (!ready.empty()) {
    const int node = ready.top();
    ready.pop();
    order.push_back(node);
    for (const int reader : readers[static_cast<size_t>(node)]) {
      if (--waits_for[static_cast<size_t>(reader)] == 0) ready.push(reader);
    }
  }
  if (order.size() == count) return order;
  size_t stuck = 0;
  while (waits_for[stuck] == 0) ++stuck;
  return InvalidArgument("node " +
                         Quoted(graph.node(static_cast<int>(stuck)).name()) +
                         " waits for its own result: the graph has a cycle");
}

}  // namespace millrace::models::graph
