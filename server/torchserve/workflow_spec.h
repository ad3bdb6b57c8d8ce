// What a workflow of TorchServe says of itself: the manifest of its archive and
// its specification, a graph of models and of functions of its handler.
//
//   ASSIGN_OR_RETURN(WorkflowSpec spec, ParseWorkflowSpec(yaml));
//   for (const WorkflowNode& node : spec.nodes) ...   // inputs come first
//
// Nothing in it is trusted. Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "config/base/status.h"

namespace millrace::server::torchserve {

inline constexpr size_t kMaxWorkflowNodes = 64;
inline constexpr size_t kMaxWorkflowEdges = 1024;

// WAR-INF/MANIFEST.json. Names of files are names in the archive, without a
// folder.
struct WorkflowManifest {
  std::string name;
  std::string spec_file;
  std::string handler;  // Python; may be empty
};
// INVALID_ARGUMENT names the field.
StatusOr<WorkflowManifest> ParseWorkflowManifest(std::string_view json);

// As the specification says for all nodes or for one; else TorchServe's.
struct WorkflowLimits {
  int64_t min_workers = 1;
  int64_t max_workers = 1;
  int64_t batch_size = 1;
  int64_t max_batch_delay_ms = 50;
  int64_t retry_attempts = 1;   // of a node that fails by no fault of its input
  int64_t timeout_ms = 10'000;  // of one attempt
};

struct WorkflowNode {
  std::string name;
  std::string url;  // of its model's archive; empty: a function of the handler
  WorkflowLimits limits = {};
  std::vector<size_t> inputs = {};   // nodes whose answers it takes, by name
  std::vector<size_t> outputs = {};  // nodes that take its answer
};

struct WorkflowSpec {
  WorkflowLimits limits;  // of nodes that say nothing else
  // Each stands behind its inputs. The first is the only one without inputs:
  // it takes the request.
  std::vector<WorkflowNode> nodes;
  std::string dag;  // JSON: {"pre": ["model"]}, as written
};
// INVALID_ARGUMENT: no such graph (a cycle, several starts), an unknown word,
// a number that is none, too many nodes.
StatusOr<WorkflowSpec> ParseWorkflowSpec(const std::string& yaml);

}  // namespace millrace::server::torchserve
