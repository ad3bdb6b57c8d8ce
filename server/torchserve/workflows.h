// The workflows that TorchServe's workflow API knows. A workflow registers its
// nodes as models, serves when all of them do, and takes them along when it
// leaves; one that cannot be registered leaves nothing behind.
//
// Changes run one at a time on a thread of their own. Thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "config/base/mutex.h"
#include "config/base/status.h"
#include "server/lifecycle/operation_queue.h"
#include "server/torchserve/archive_download.h"
#include "server/torchserve/management.h"
#include "server/torchserve/registry.h"
#include "server/torchserve/workflow.h"
#include "server/torchserve/workflow_run.h"

namespace millrace::server::torchserve {

inline constexpr size_t kMaxWorkflows = 100;

struct WorkflowRequest {
  std::string url;
  std::string name = {};  // empty: as the archive says
  std::optional<int64_t> response_timeout_s = {}, startup_timeout_s = {};
  bool sign_for_s3 = false;  // an https address of S3
};

class Workflows {
 public:
  // All outlive it.
  Workflows(Registry* registry, Management* management,
            const Repository* repository, handlers::Pool* pool);
  ~Workflows();  // waits for the change that runs

  // NOT_FOUND with reason "workflow_not_found".
  StatusOr<std::shared_ptr<const Workflow>> Find(const std::string& name) const;
  // {"nextPageToken": "…", "workflows": […]}, as Management::List.
  std::string List(int64_t limit, int64_t first,
                   const Management::MayUse& may_use) const;
  // A list of one. NOT_FOUND as Find.
  StatusOr<std::string> Describe(const std::string& name) const;

  // `done` is called once, when all nodes serve or nothing is left of them.
  // Wants that models may be registered.
  void Register(WorkflowRequest request, Management::Done done);
  void Unregister(const std::string& name, Management::Done done);

  // Ends that of a workflow's archive, and refuses others.
  void StopDownloads() { stop_.request_stop(); }

  // A request; see RunWorkflow.
  const WorkflowParts& parts() const { return parts_; }

 private:
  // The thread of changes.
  // In the store, or of what was fetched.
  StatusOr<std::string> PathOf(
      const WorkflowRequest& request,
      std::shared_ptr<const DownloadedArchive>& fetched) const;
  Status DoRegister(const WorkflowRequest& request, std::string& text);
  Status DoUnregister(const std::string& name);
  Status RegisterNodes(const std::shared_ptr<const Workflow>& workflow,
                       const WorkflowRequest& request);
  Status RegisterNode(std::shared_ptr<const Workflow> workflow,
                      const WorkflowNode& node, const WorkflowRequest& request);
  void UnregisterModels(const std::vector<std::string>& models);

  Registry& registry_;
  Management& management_;
  const WorkflowParts parts_;
  mutable Mutex mu_;
  std::map<std::string, std::shared_ptr<const Workflow>> workflows_
      GUARDED_BY(mu_);
  std::stop_source stop_;   // of downloads
  OperationQueue changes_;  // last: its thread uses all of the above
};

}  // namespace millrace::server::torchserve
