// A request of a workflow: its nodes predict one after the other, and those
// that do not need each other at the same time.
//
// The first node takes the request's parts. A node with one input takes its
// answer as the part "body", one with several takes parts of their names. The
// answer of the only last node is the workflow's; several make a JSON object of
// their names.
#pragma once

#include <memory>
#include <vector>

#include "handlers/pool.h"
#include "handlers/task.h"
#include "server/lifecycle/repository.h"
#include "server/torchserve/predict.h"
#include "server/torchserve/registry.h"
#include "server/torchserve/workflow.h"

namespace millrace::server::torchserve {

// All outlive the request.
struct WorkflowParts {
  const Registry* registry = nullptr;
  const Repository* repository = nullptr;
  handlers::Pool* pool = nullptr;
};

// `done` is called once, on any thread. The first node that fails ends the
// request and stops the others; one that fails by no fault of its input is
// tried again, as the workflow says. Call it on the handler pool.
void RunWorkflow(const WorkflowParts& parts,
                 std::shared_ptr<const Workflow> workflow,
                 std::vector<handlers::TaskPart> request, PredictionCall call,
                 PredictionDone done);

}  // namespace millrace::server::torchserve
