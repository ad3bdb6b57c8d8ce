#include "server/torchserve/workflow.h"

#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

namespace millrace::server::torchserve {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kManifest = "WAR-INF/MANIFEST.json";
constexpr std::string_view kArchiver = "torch-workflow-archiver";
// A specification and some Python: models have archives of their own.
constexpr UnpackLimits kLimits = {.max_entries = 1000,
                                  .max_bytes = int64_t{1} << 30};

StatusOr<std::string> FileOf(const Workflow& workflow, std::string_view name) {
  std::error_code error;
  const fs::path path = fs::path(workflow.folder) / name;
  if (!fs::is_regular_file(path, error)) {
    return InvalidArgument("the workflow's archive has no " +
                           std::string(name) + "; make it with " +
                           std::string(kArchiver));
  }
  return ReadTextFile(path);
}

Status Fill(const std::string& path, Workflow& workflow) {
  std::error_code error;
  if (fs::is_directory(path, error)) {
    workflow.folder = path;
  } else {
    ASSIGN_OR_RETURN(workflow.unpacked,
                     UnpackedFolder::Of(path, kManifest, kArchiver, kLimits,
                                        [](std::string_view) {
                                          return false;  // all is written
                                        }));
    workflow.folder = workflow.unpacked->path();
  }
  ASSIGN_OR_RETURN(const std::string json, FileOf(workflow, kManifest));
  ASSIGN_OR_RETURN(workflow.manifest, ParseWorkflowManifest(json));
  ASSIGN_OR_RETURN(const std::string yaml,
                   FileOf(workflow, workflow.manifest.spec_file));
  ASSIGN_OR_RETURN(workflow.spec, ParseWorkflowSpec(yaml));
  return OkStatus();
}

}  // namespace

StatusOr<std::shared_ptr<const Workflow>> OpenWorkflow(
    const std::string& path, const std::string& url, const std::string& name) {
  auto workflow = std::make_shared<Workflow>();
  workflow->url = url;
  if (const Status filled = Fill(path, *workflow); !filled.ok()) {
    return filled.reason().empty() ? filled.Because("invalid_workflow")
                                   : filled;
  }
  workflow->name = name.empty() ? workflow->manifest.name : name;
  return std::shared_ptr<const Workflow>(std::move(workflow));
}

}  // namespace millrace::server::torchserve
