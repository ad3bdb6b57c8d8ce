// Triton's calls that manage models: what they ask of the repository, and
// its answers as messages. The service counts and finishes them.
#pragma once

#include <string>

#include "config/base/status.h"
#include "server/lifecycle/repository.h"

namespace inference {
class ModelConfigResponse;
class ModelStatisticsRequest;
class ModelStatisticsResponse;
class RepositoryIndexResponse;
class RepositoryModelLoadRequest;
class RepositoryModelUnloadRequest;
}  // namespace inference

namespace millrace::server {

Status DescribeConfig(const Servable& servable,
                      inference::ModelConfigResponse* response);
Status DescribeStatistics(const Repository& repository,
                          const inference::ModelStatisticsRequest& request,
                          inference::ModelStatisticsResponse* response);
void DescribeIndex(const Repository& repository, bool ready_only,
                   inference::RepositoryIndexResponse* response);

// `done` as the repository calls it, or before this returns when a parameter is
// wrong.
void StartLoad(Repository* repository,
               const inference::RepositoryModelLoadRequest& request,
               Repository::Done done);
void StartUnload(Repository* repository,
                 const inference::RepositoryModelUnloadRequest& request,
                 Repository::Done done);

}  // namespace millrace::server
