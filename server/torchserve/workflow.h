// A workflow of TorchServe: a .war file (ZIP) or a folder of the same files, as
// torch-workflow-archiver makes them.
//
//   ASSIGN_OR_RETURN(auto workflow, OpenWorkflow("store/w.war", "w.war", ""));
//
// Each node is a model of its own name in the registry: WORKFLOW__NODE.
#pragma once

#include <memory>
#include <string>

#include "config/base/status.h"
#include "server/torchserve/unpack.h"
#include "server/torchserve/workflow_spec.h"

namespace millrace::server::torchserve {

// Immutable. Shared by the table of workflows and the requests that run.
struct Workflow {
  std::string name;
  std::string url;
  WorkflowManifest manifest;
  WorkflowSpec spec;
  std::string folder;
  std::unique_ptr<const UnpackedFolder> unpacked;  // null: the folder is lent

  std::string ModelOf(const WorkflowNode& node) const {
    return name + "__" + node.name;
  }
};

// `name` stands for the manifest's where it is not empty. NOT_FOUND,
// INVALID_ARGUMENT, RESOURCE_EXHAUSTED: as UnpackedFolder and
// ParseWorkflowSpec.
StatusOr<std::shared_ptr<const Workflow>> OpenWorkflow(const std::string& path,
                                                       const std::string& url,
                                                       const std::string& name);

}  // namespace millrace::server::torchserve
