#include "models/graph/import.h"

namespace millrace::models::graph {

Status UnsupportedStatus(const ImportReport& report) {
  if (report.unsupported.empty()) return OkStatus();
  const UnsupportedNode& first = report.unsupported.front();
  std::string text = "operator " + first.op + " of node '" + first.node +
                     "' is not supported (" + first.why +
                     "; inputs: " + first.inputs + ")";
  if (const size_t more = report.unsupported.size() - 1; more > 0) {
    text += ", and " + std::to_string(more) +
            " more nodes; `millrace inspect` lists them all";
  }
  return Unimplemented(text);
}

}  // namespace millrace::models::graph
