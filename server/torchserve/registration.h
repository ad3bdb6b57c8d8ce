// A request to register a model as what would be registered: its archive
// opened, its numbers put together and checked.
//
// Pure functions but for the files that they read.
#pragma once

#include <filesystem>

#include "config/base/status.h"
#include "config/schema.h"
#include "server/torchserve/metric_log.h"
#include "server/torchserve/registry.h"

namespace millrace::server::torchserve {

// A file that is served as it is, without an archive.
bool IsServableFile(const std::filesystem::path& path);

// Of the plan of a registered version.
config::ModelSettings SettingsOf(const RegistryOptions& options,
                                 const Registered& model);

// Whether a registered version can have workers: its handler is there and has
// time to start. INTERNAL, as TorchServe says it.
Status CheckCanWork(const Registered& model);

// A handler in Python that is not there is no error of a version without
// workers, as with TorchServe: CheckCanWork refuses to scale it.
//
// `metric_log` may be null. NOT_FOUND (no such archive in the store),
// INVALID_ARGUMENT, FAILED_PRECONDITION (it cannot be served).
StatusOr<Registered> OpenRegistration(const RegistryOptions& options,
                                      MetricLog* metric_log,
                                      const RegisterRequest& request);

}  // namespace millrace::server::torchserve
