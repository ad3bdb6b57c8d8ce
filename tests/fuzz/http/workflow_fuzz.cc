// The manifest of a TorchServe workflow and its specification: any bytes are
// read or refused with a sentence, and what is read is a graph that can run.
// The first byte chooses the reader.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "server/torchserve/workflow_spec.h"

namespace {

using namespace millrace::server::torchserve;

void Require(bool holds) {
  if (!holds) std::abort();
}

void Check(const millrace::Status& status) {
  Require(status.ok() || !status.message().empty());
}

void CheckManifest(std::string_view text) {
  const auto manifest = ParseWorkflowManifest(text);
  Check(manifest.status());
  if (!manifest.ok()) return;
  Require(!manifest->name.empty() && !manifest->spec_file.empty());
  for (const std::string* name :
       {&manifest->name, &manifest->spec_file, &manifest->handler}) {
    Require(name->find('/') == std::string::npos && *name != "..");
  }
}

void CheckSpec(const std::string& text) {
  const auto spec = ParseWorkflowSpec(text);
  Check(spec.status());
  if (!spec.ok()) return;
  const auto& nodes = spec->nodes;
  Require(!nodes.empty() && nodes.size() <= kMaxWorkflowNodes);
  size_t num_inputs = 0, num_outputs = 0;
  for (size_t i = 0; i < nodes.size(); ++i) {
    Require(nodes[i].inputs.empty() == (i == 0));
    for (const size_t from : nodes[i].inputs) Require(from < i);
    for (const size_t to : nodes[i].outputs)
      Require(to > i && to < nodes.size());
    num_inputs += nodes[i].inputs.size();
    num_outputs += nodes[i].outputs.size();
    Require(nodes[i].limits.retry_attempts >= 1);
  }
  Require(num_inputs == num_outputs && num_inputs <= kMaxWorkflowEdges);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1,
                              size - 1);
  if (data[0] % 2 == 0) {
    CheckManifest(text);
  } else {
    CheckSpec(std::string(text));
  }
  return 0;
}
