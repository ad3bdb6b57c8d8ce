#include "server/cli/graph_options.h"

#include <memory>
#include <utility>

namespace millrace::server {

namespace graph = models::graph;

StatusOr<graph::InstanceOptions> GraphOptions(const ParsedArgs& args,
                                              const std::string& path) {
  graph::InstanceOptions options;
  ASSIGN_OR_RETURN(const int64_t threads, args.Int("threads", 0, 0, 1024));
  ASSIGN_OR_RETURN(options.cpus, TeamFor(threads));
  options.isa = args.Text("isa", "");
  const std::string precision = args.Text("precision", "f32");
  if (precision == "bf16") {
    options.precision = graph::Precision::kBf16;
  } else if (precision == "int8") {
    ASSIGN_OR_RETURN(graph::QuantizationTable table,
                     graph::LoadQuantization(
                         args.Text("quantization", path + ".quant.json")));
    options.quantization =
        std::make_shared<const graph::QuantizationTable>(std::move(table));
  } else if (precision != "f32") {
    return UsageError("--precision " + precision +
                      " is not known; f32, bf16 and int8 are");
  }
  return options;
}

}  // namespace millrace::server
