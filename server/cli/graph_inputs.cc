#include "server/cli/graph_inputs.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "models/files/npz.h"
#include "models/graph/sample_inputs.h"

namespace millrace::server {
namespace {

namespace graph = models::graph;
using models::NamedTensor;
using models::Tensor;

// "in0_x" → "x": how the tools that write such files keep the order.
std::string_view WithoutOrder(std::string_view name) {
  const size_t end = name.find('_');
  if (!name.starts_with("in") || end == name.npos || end == 2) return name;
  const std::string_view digits = name.substr(2, end - 2);
  const bool counted = digits.find_first_not_of("0123456789") == digits.npos;
  return counted ? name.substr(end + 1) : name;
}

// By name when every port finds its own, else in order.
StatusOr<std::vector<Tensor>> Arrange(std::vector<NamedTensor> arrays,
                                      const std::vector<graph::Port>& ports) {
  if (arrays.size() != ports.size()) {
    return InvalidArgument("the file has " + std::to_string(arrays.size()) +
                           " arrays, the model has " +
                           std::to_string(ports.size()) + " inputs");
  }
  std::map<std::string_view, size_t> by_name;
  for (size_t i = 0; i < arrays.size(); ++i) {
    by_name[arrays[i].name] = i;
    by_name.emplace(WithoutOrder(arrays[i].name), i);
  }
  const bool named = std::all_of(
      ports.begin(), ports.end(),
      [&](const graph::Port& port) { return by_name.contains(port.name); });
  std::vector<Tensor> inputs;
  for (size_t i = 0; i < ports.size(); ++i) {
    const size_t at = named ? by_name.find(ports[i].name)->second : i;
    inputs.push_back(arrays[at].tensor.Share());
  }
  return inputs;
}

// "batch=8,length=128"
StatusOr<std::map<std::string, int64_t>> ReadSizes(const std::string& text) {
  std::map<std::string, int64_t> sizes;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    const std::string_view item = std::string_view(text).substr(at, end - at);
    const size_t equals = item.find('=');
    int64_t size = 0;
    if (equals != item.npos) {
      const char* last = item.data() + item.size();
      const auto read = std::from_chars(item.data() + equals + 1, last, size);
      if (read.ec != std::errc() || read.ptr != last) size = 0;
    }
    if (size <= 0) {
      return UsageError("--sizes wants NAME=N with N from 1 on, not '" +
                        std::string(item) + "'");
    }
    sizes[std::string(item.substr(0, equals))] = size;
    at = end + 1;
  }
  return sizes;
}

}  // namespace

StatusOr<std::vector<Tensor>> GraphInputsOf(const std::string& path,
                                            const graph::Executor& executor) {
  ASSIGN_OR_RETURN(std::vector<NamedTensor> arrays, models::ReadNpz(path));
  return Arrange(std::move(arrays), executor.inputs());
}

StatusOr<std::vector<Tensor>> GraphInputs(const ParsedArgs& args,
                                          const graph::Executor& executor) {
  if (args.Has("input")) {
    if (args.Has("sizes")) {
      return UsageError(
          "--sizes is for made-up inputs, --input brings its own");
    }
    return GraphInputsOf(args.Text("input", ""), executor);
  }
  ASSIGN_OR_RETURN(auto sizes, ReadSizes(args.Text("sizes", "")));
  return graph::SampleInputs(executor.inputs(), executor.symbols(),
                             {.sizes = std::move(sizes)});
}

}  // namespace millrace::server
