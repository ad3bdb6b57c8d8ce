#include "server/torchserve/workflows.h"

#include <algorithm>
#include <future>
#include <nlohmann/json.hpp>
#include <utility>

#include "config/base/json.h"
#include "config/base/log.h"
#include "config/base/utf8.h"
#include "server/torchserve/archive_download.h"
#include "server/torchserve/store_path.h"

namespace millrace::server::torchserve {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kMostListed = 100;

Status NoWorkflow(const std::string& name) {
  return NotFound("Workflow not found: " + Shortened(name, 300))
      .Because("workflow_not_found");
}

// Waits for a change of models.
StatusOr<Change> Await(const std::function<void(Management::Done)>& start) {
  auto ended = std::make_shared<std::promise<StatusOr<Change>>>();
  std::future<StatusOr<Change>> result = ended->get_future();
  start([ended](const StatusOr<Change>& change) { ended->set_value(change); });
  return result.get();
}

}  // namespace

Workflows::Workflows(Registry* registry, Management* management,
                     const Repository* repository, handlers::Pool* pool)
    : registry_(*registry),
      management_(*management),
      parts_{.registry = registry, .repository = repository, .pool = pool},
      changes_(OperationQueue::Options{}, true) {}

Workflows::~Workflows() {
  stop_.request_stop();
  changes_.Stop();
}

StatusOr<std::shared_ptr<const Workflow>> Workflows::Find(
    const std::string& name) const {
  MutexLock lock(mu_);
  const auto at = workflows_.find(name);
  if (at == workflows_.end()) return NoWorkflow(name);
  return at->second;
}

std::string Workflows::List(int64_t limit, int64_t first,
                            const Management::MayUse& may_use) const {
  if (limit < 0 || limit > kMostListed) limit = kMostListed;
  std::vector<std::shared_ptr<const Workflow>> all;
  {
    MutexLock lock(mu_);
    for (const auto& [name, workflow] : workflows_) all.push_back(workflow);
  }
  std::erase_if(all, [&](const auto& each) { return !may_use(each->name); });
  const auto size = static_cast<int64_t>(all.size());
  const int64_t begin = std::clamp<int64_t>(first, 0, size);
  const int64_t end = std::min(begin + limit, size);
  Json body = Json::object();
  if (end < size) body["nextPageToken"] = std::to_string(end);
  body["workflows"] = Json::array();
  for (int64_t i = begin; i < end; ++i) {
    const Workflow& workflow = *all[static_cast<size_t>(i)];
    body["workflows"].push_back(
        {{"workflowName", workflow.name}, {"workflowUrl", workflow.url}});
  }
  return DumpJson(body);
}

StatusOr<std::string> Workflows::Describe(const std::string& name) const {
  ASSIGN_OR_RETURN(const auto workflow, Find(name));
  const WorkflowLimits& limits = workflow->spec.limits;
  return DumpJson(Json::array({{{"workflowName", workflow->name},
                                {"workflowUrl", workflow->url},
                                {"minWorkers", limits.min_workers},
                                {"maxWorkers", limits.max_workers},
                                {"batchSize", limits.batch_size},
                                {"maxBatchDelay", limits.max_batch_delay_ms},
                                {"workflowDag", workflow->spec.dag}}}));
}

void Workflows::Register(WorkflowRequest request, Management::Done done) {
  if (const Status enabled = management_.CheckEnabled(); !enabled.ok()) {
    return done(enabled);
  }
  auto text = std::make_shared<std::string>();
  changes_.Post([this, request = std::move(request),
                 text] { return DoRegister(request, *text); },
                [text, done](const Status& status) {
                  done(status.ok() ? StatusOr<Change>(Change{.text = *text})
                                   : StatusOr<Change>(status));
                });
}

void Workflows::Unregister(const std::string& name, Management::Done done) {
  if (const Status enabled = management_.CheckEnabled(); !enabled.ok()) {
    return done(enabled);
  }
  changes_.Post(
      [this, name] { return DoUnregister(name); },
      [name, done](const Status& status) {
        done(status.ok()
                 ? StatusOr<Change>(
                       Change{.text = "Workflow \"" + name + "\" unregistered"})
                 : StatusOr<Change>(status));
      });
}

StatusOr<std::string> Workflows::PathOf(
    const WorkflowRequest& request,
    std::shared_ptr<const DownloadedArchive>& fetched) const {
  const RegistryOptions& options = registry_.options();
  if (IsArchiveAddress(request.url)) {
    ASSIGN_OR_RETURN(
        fetched,
        DownloadedArchive::Of(request.url, {.allowed = options.allowed_urls,
                                            .sign_for_s3 = request.sign_for_s3,
                                            .stop = stop_.get_token()}));
    return fetched->path();
  }
  auto path =
      PathInStore(options.workflow_store.empty() ? options.model_store
                                                 : options.workflow_store,
                  request.url);
  if (path.has_value()) return *std::move(path);
  return NotFound("Workflow not found in workflow store: " +
                  Shortened(request.url, 300))
      .Because("workflow_not_found");
}

Status Workflows::DoRegister(const WorkflowRequest& request,
                             std::string& text) {
  std::shared_ptr<const DownloadedArchive> fetched;  // until it is unpacked
  ASSIGN_OR_RETURN(const std::string path, PathOf(request, fetched));
  ASSIGN_OR_RETURN(const auto workflow,
                   OpenWorkflow(path, ShownAddress(request.url), request.name));
  const std::string& name = workflow->name;
  {
    MutexLock lock(mu_);
    if (workflows_.count(name) > 0) {
      return AsOfAddress(request.url, AlreadyExists("Workflow " + name +
                                                    " is already registered."));
    }
    if (workflows_.size() >= kMaxWorkflows) {
      return ResourceExhausted(std::to_string(kMaxWorkflows) +
                               " workflows are registered, which is the limit; "
                               "unregister some");
    }
  }
  RETURN_IF_ERROR(RegisterNodes(workflow, request));
  MutexLock lock(mu_);
  workflows_.emplace(name, workflow);
  text = "Workflow " + name + " has been registered and scaled successfully.";
  return OkStatus();
}

Status Workflows::RegisterNodes(const std::shared_ptr<const Workflow>& workflow,
                                const WorkflowRequest& request) {
  std::vector<std::string> registered;
  for (const WorkflowNode& node : workflow->spec.nodes) {
    const std::string model = workflow->ModelOf(node);
    const Status status =
        changes_.stopping()
            ? Unavailable("the server is shutting down").Because("draining")
            : RegisterNode(workflow, node, request);
    if (status.ok()) {
      registered.push_back(model);
      continue;
    }
    UnregisterModels(registered);
    const std::string message =
        "Workflow " + workflow->name +
        " has failed to register. Failures: [Workflow Node " + model +
        " failed to register. Details: " + std::string(status.message()) + "]";
    LogError("workflow not registered",
             {{"workflow", workflow->name}, {"error", message}});
    if (status.reason() == "draining") return Unavailable(message);
    return Internal(message).Because("workflow_failed");
  }
  return OkStatus();
}

Status Workflows::RegisterNode(std::shared_ptr<const Workflow> workflow,
                               const WorkflowNode& node,
                               const WorkflowRequest& request) {
  const std::string model = workflow->ModelOf(node);
  if (node.url.empty()) {
    if (registry_.options().python.empty()) {
      return FailedPrecondition(
          "it is no model of the specification, so it is a Python function of "
          "the workflow's handler, and Python is run only where "
          "config.properties names an interpreter (python=/path/of/python3)");
    }
    if (workflow->manifest.handler.empty()) {
      return InvalidArgument(
          "it is no model of the specification, and the archive has no handler "
          "that could have a function of its name");
    }
  }
  // Another version of that name could answer in its place.
  if (registry_.FindAll(model).ok()) {
    return AlreadyExists("the model " + model +
                         " is already registered; unregister it first");
  }
  std::optional<HandlerFunction> function;
  if (node.url.empty()) {
    function = {.folder = workflow->folder,
                .file = workflow->manifest.handler,
                .name = node.name,
                .files = workflow};
  }
  return Await([&](Management::Done done) {
           management_.Register(
               {.url = node.url,
                .model_name = model,
                .batch_size = node.limits.batch_size,
                .max_batch_delay_ms = node.limits.max_batch_delay_ms,
                .initial_workers = node.limits.min_workers,
                .max_workers =
                    std::max(node.limits.min_workers, node.limits.max_workers),
                .response_timeout_s = request.response_timeout_s,
                .startup_timeout_s = request.startup_timeout_s,
                .function = std::move(function)},
               true, std::move(done));
         })
      .status();
}

void Workflows::UnregisterModels(const std::vector<std::string>& models) {
  for (const std::string& model : models) {
    const Status status = Await([&](Management::Done done) {
                            management_.Unregister(model, "", std::move(done));
                          }).status();
    // It may have been unregistered as a model meanwhile.
    if (!status.ok() && status.code() != StatusCode::kNotFound) {
      LogWarning("a workflow's model is left behind",
                 {{"model", model}, {"error", status.message()}});
    }
  }
}

Status Workflows::DoUnregister(const std::string& name) {
  std::vector<std::string> models;
  {
    MutexLock lock(mu_);
    const auto at = workflows_.find(name);
    if (at == workflows_.end()) return NoWorkflow(name);
    for (const WorkflowNode& node : at->second->spec.nodes) {
      models.push_back(at->second->ModelOf(node));
    }
    workflows_.erase(at);
  }
  UnregisterModels(models);
  return OkStatus();
}

}  // namespace millrace::server::torchserve
