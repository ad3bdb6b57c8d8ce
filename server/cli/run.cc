// millrace run: a graph on arrays of a file, checked and timed. The last line
// is a JSON object for programs.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "config/base/json.h"
#include "models/files/npz.h"
#include "models/graph/execution_context.h"
#include "models/graph/import.h"
#include "models/tensor/float16.h"
#include "models/tensor/strings.h"
#include "server/cli/args.h"
#include "server/cli/graph_inputs.h"
#include "server/cli/graph_options.h"
#include "server/cli/model_kind.h"

namespace millrace::server {
namespace {

namespace graph = models::graph;
using models::DType;
using models::NamedTensor;
using models::Tensor;

constexpr FlagSpec kFlags[] = {
    kInputFlag,
    kSizesFlag,
    {"expect", "OUT.npz", "what should come out, in order"},
    {"tol", "E", "allowed |got - want| / max |want| (default 1e-4)"},
    {"output", "OUT.npz", "writes what comes out"},
    {"iters", "N", "timed runs, after one that is not (default 1)"},
    kDeviceFlag,
    kPrecisionFlag,
    kGemmFlag,
    kConvFlag,
    kGraphBackendFlag,
    kQuantizationFlag,
    {"interpret", "", "by the plain functions of the operators"},
    {"plan", "", "prints the steps of the plan"},
    kThreadsFlag,
    kIsaFlag,
};
constexpr VerbSpec kVerb = {
    "run",
    "MODEL",
    "Runs an ONNX or PyTorch (.pt2) graph on arrays of an .npz file, compares, "
    "and times.\nThe last line is JSON: median_ms, max_rel_err, arena_bytes, "
    "threads, batch.",
    kFlags,
    1,
    1};

double At(const Tensor& tensor, int64_t i) {
  switch (tensor.dtype()) {
    case DType::kBool:
    case DType::kU8:
      return tensor.data<uint8_t>()[i];
    case DType::kU16:
      return tensor.data<uint16_t>()[i];
    case DType::kU32:
      return tensor.data<uint32_t>()[i];
    case DType::kU64:
      return static_cast<double>(tensor.data<uint64_t>()[i]);
    case DType::kI8:
      return tensor.data<int8_t>()[i];
    case DType::kI16:
      return tensor.data<int16_t>()[i];
    case DType::kI32:
      return tensor.data<int32_t>()[i];
    case DType::kI64:
      return static_cast<double>(tensor.data<int64_t>()[i]);
    case DType::kF16:
      return models::HalfToFloat(tensor.data<uint16_t>()[i]);
    case DType::kBF16:
      return models::BFloat16ToFloat(tensor.data<uint16_t>()[i]);
    case DType::kF32:
      return tensor.data<float>()[i];
    case DType::kF64:
      break;
  }
  return tensor.data<double>()[i];
}

struct Difference {
  double most = 0;  // the largest |got - want|
  double size = 0;  // the largest |want|

  double relative() const {
    return most == 0 ? 0 : most / std::max(size, 1e-30);
  }
};

// What is not finite must be the same in both.
Difference DifferenceOf(const Tensor& got, const Tensor& want) {
  Difference difference;
  if (got.dtype() == models::kString || want.dtype() == models::kString) {
    const bool same =
        got.dtype() == want.dtype() &&
        std::equal(got.data<std::string_view>(),
                   got.data<std::string_view>() + got.num_elements(),
                   want.data<std::string_view>());
    return {same ? 0 : std::numeric_limits<double>::infinity(), 1};
  }
  for (int64_t i = 0; i < want.num_elements(); ++i) {
    const double a = At(got, i);
    const double b = At(want, i);
    if (!std::isfinite(b) || !std::isfinite(a)) {
      const bool same = a == b || (std::isnan(a) && std::isnan(b));
      if (!same) return {std::numeric_limits<double>::infinity(), 1};
      continue;
    }
    difference.most = std::max(difference.most, std::abs(a - b));
    difference.size = std::max(difference.size, std::abs(b));
  }
  return difference;
}

StatusOr<double> Compare(const std::vector<Tensor>& got,
                         const std::vector<graph::Port>& ports,
                         const std::vector<NamedTensor>& want) {
  if (got.size() != want.size()) {
    return FailedPrecondition("the model gives " + std::to_string(got.size()) +
                              " outputs, " + std::to_string(want.size()) +
                              " are expected");
  }
  double worst = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const Tensor& expected = want[i].tensor;
    if (got[i].shape() != expected.shape()) {
      return FailedPrecondition("output '" + ports[i].name + "' is " +
                                got[i].shape().ToString() + ", expected is " +
                                expected.shape().ToString());
    }
    const Difference difference = DifferenceOf(got[i], expected);
    std::printf("output '%s' %s: error %.3g, differences up to %.3g of %.3g\n",
                ports[i].name.c_str(),
                models::TypeText(got[i].dtype(), got[i].shape()).c_str(),
                difference.relative(), difference.most, difference.size);
    worst = std::max(worst, difference.relative());
  }
  return worst;
}

void PrintOutputs(const std::vector<graph::Port>& ports,
                  const std::vector<Tensor>& outputs) {
  std::printf("outputs\n");
  for (size_t i = 0; i < outputs.size(); ++i) {
    std::printf(
        "  %s %s\n", ports[i].name.c_str(),
        models::TypeText(outputs[i].dtype(), outputs[i].shape()).c_str());
  }
}

struct Timed {
  std::vector<Tensor> outputs;
  double first_ms = 0;
  double median_ms = 0;
};

StatusOr<Timed> Time(graph::ExecutionContext& context,
                     const std::vector<Tensor>& inputs, int64_t iters) {
  using Clock = std::chrono::steady_clock;
  Timed timed;
  std::vector<double> times;
  for (int64_t i = 0; i <= iters; ++i) {
    const auto begin = Clock::now();
    ASSIGN_OR_RETURN(timed.outputs, context.Run(inputs));
    const std::chrono::duration<double, std::milli> took = Clock::now() - begin;
    if (i == 0) {
      timed.first_ms = took.count();
    } else {
      times.push_back(took.count());
    }
  }
  std::sort(times.begin(), times.end());
  timed.median_ms = times.empty() ? timed.first_ms : times[times.size() / 2];
  return timed;
}

StatusOr<double> ReadTolerance(const ParsedArgs& args) {
  const std::string text = args.Text("tol", "1e-4");
  char* end = nullptr;
  const double tolerance = std::strtod(text.c_str(), &end);
  if (end != text.c_str() + text.size() || !(tolerance >= 0)) {
    return UsageError("--tol must be a number from 0 on, not '" + text + "'");
  }
  return tolerance;
}

Status Run(const ParsedArgs& args) {
  ASSIGN_OR_RETURN(const int64_t iters, args.Int("iters", 1, 0, 1 << 20));
  ASSIGN_OR_RETURN(const double tolerance, ReadTolerance(args));
  const std::string& path = args.positional()[0];
  RETURN_IF_ERROR(ExpectKind(path, FileKind::kGraph, "run"));
  ASSIGN_OR_RETURN(graph::Graph graph, graph::ImportGraph(path, nullptr));
  ASSIGN_OR_RETURN(graph::InstanceOptions options, GraphOptions(args, path));
  options.interpret = args.Has("interpret");
  const size_t team = std::max<size_t>(options.cpus.size(), 1);
  ASSIGN_OR_RETURN(const GraphRun run,
                   PrepareGraphRun(args, std::move(graph), options));
  const auto& [context, inputs] = run;
  ASSIGN_OR_RETURN(const Timed timed, Time(*context, inputs, iters));
  if (args.Has("plan")) std::fputs(context->PlanText().c_str(), stdout);

  nlohmann::ordered_json line = {{"median_ms", timed.median_ms},
                                 {"first_ms", timed.first_ms}};
  bool agrees = true;
  if (args.Has("expect")) {
    ASSIGN_OR_RETURN(const auto want, models::ReadNpz(args.Text("expect", "")));
    ASSIGN_OR_RETURN(const double error,
                     Compare(timed.outputs, context->outputs(), want));
    // JSON has no infinity.
    line["max_rel_err"] = std::isfinite(error) ? error : 1e30;
    agrees = error <= tolerance;
  } else {
    PrintOutputs(context->outputs(), timed.outputs);
  }
  if (args.Has("output")) {
    std::vector<NamedTensor> outputs;
    for (size_t i = 0; i < timed.outputs.size(); ++i) {
      outputs.push_back({context->outputs()[i].name, timed.outputs[i].Share()});
    }
    RETURN_IF_ERROR(models::WriteNpz(args.Text("output", ""), outputs));
  }
  line["arena_bytes"] = context->ArenaBytes();
  line["threads"] = team;
  line["batch"] = inputs.empty() || inputs[0].shape().rank() == 0
                      ? 1
                      : inputs[0].shape()[0];
  std::printf("%s\n", DumpJson(line).c_str());
  if (!agrees) {
    return FailedPrecondition(
        "the outputs differ from what is expected by "
        "more than " +
        args.Text("tol", "1e-4"));
  }
  return OkStatus();
}

}  // namespace

const VerbSpec& GraphVerb() { return kVerb; }
int RunGraph(Args args) { return RunVerb(kVerb, args, Run); }

}  // namespace millrace::server
