// Files of inputs and outputs do not say whether they hold a tensor or a
// sequence: the ports of the model do.
#include "tests/conformance/onnx/case.h"

#include <onnx/onnx-data_pb.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

#include "models/graph/import.h"
#include "models/graph/interpreter.h"
#include "models/graph/onnx/tensor.h"
#include "tests/conformance/onnx/compare.h"

namespace millrace::models::graph {
namespace {

namespace fs = std::filesystem;

Outcome FromStatus(const Status& status) {
  const bool missing = status.code() == StatusCode::kUnimplemented;
  return {missing ? Verdict::kUnsupported : Verdict::kFail,
          std::string(status.message())};
}

StatusOr<RuntimeValue> ReadValue(const fs::path& path, const Port& port) {
  std::ifstream file(path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  RuntimeValue value;
  if (port.is_sequence) {
    value.is_sequence = true;
    onnx::SequenceProto sequence;
    if (!sequence.ParseFromString(bytes)) return InvalidArgument("no sequence");
    for (auto& item : *sequence.mutable_tensor_values()) {
      ASSIGN_OR_RETURN(Tensor tensor, TakeTensor(&item, nullptr));
      value.sequence.push_back(std::move(tensor));
    }
    return value;
  }
  onnx::TensorProto proto;
  if (!proto.ParseFromString(bytes)) return InvalidArgument("no tensor");
  ASSIGN_OR_RETURN(value.tensor, TakeTensor(&proto, nullptr));
  return value;
}

Outcome RunSet(const Graph& graph, const Case& one, const fs::path& folder) {
  std::vector<RuntimeValue> inputs;
  for (size_t i = 0; i < graph.inputs.size(); ++i) {
    const auto path = folder / ("input_" + std::to_string(i) + ".pb");
    auto value = ReadValue(path, graph.inputs[i]);
    if (!value.ok()) return FromStatus(value.status());
    inputs.push_back(*std::move(value));
  }
  const auto outputs = InterpretValues(graph, inputs);
  if (!outputs.ok()) return FromStatus(outputs.status());
  for (size_t i = 0; i < graph.outputs.size(); ++i) {
    const auto path = folder / ("output_" + std::to_string(i) + ".pb");
    const auto want = ReadValue(path, graph.outputs[i]);
    if (!want.ok()) return FromStatus(want.status());
    const std::string difference = Difference((*outputs)[i], *want, one);
    if (!difference.empty()) {
      return {Verdict::kFail,
              "output " + std::to_string(i) + ": " + difference};
    }
  }
  return {};
}

}  // namespace

Outcome RunCase(const Case& one) {
  const auto graph = ImportOnnx(one.folder + "/model.onnx", nullptr, {});
  if (!graph.ok()) return FromStatus(graph.status());
  for (int set = 0;; ++set) {
    const auto folder =
        fs::path(one.folder) / ("test_data_set_" + std::to_string(set));
    if (!fs::exists(folder)) break;
    const Outcome outcome = RunSet(*graph, one, folder);
    if (outcome.verdict != Verdict::kPass) return outcome;
  }
  return {};
}

}  // namespace millrace::models::graph
