// The models that TorchServe's management API knows: registered, with their
// archives, versions and numbers of workers. A worker is an instance of the
// graph; a version without workers is registered and not loaded.
//
//   ASSIGN_OR_RETURN(Registered model, registry.Register({.url = "m.mar"}));
//   repository.RequestLoad(model.name, "", done);   // by registry.Source()
//
// Thread-safe. Archives are opened on the calling thread: use the handler pool.
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
#include "config/external_settings.h"
#include "config/schema.h"
#include "config/sequence_settings.h"
#include "server/lifecycle/model_source.h"
#include "server/torchserve/archive.h"
#include "server/torchserve/metric_log.h"

namespace millrace::server::torchserve {

// More instances of one version are refused.
inline constexpr int64_t kMaxWorkers = 256;
inline constexpr int64_t kMaxRegistered = 1000;  // versions of all models

// What the property `models` says of one archive.
struct ModelDefaults {
  std::string name, version;
  ArchiveConfig config = {};
  bool default_version = false;
};

struct RegistryOptions {
  std::string model_store;  // empty: nothing can be registered
  bool model_api_enabled = false;
  int64_t grpc_management_port = 7071;  // 0: a free one
  int64_t token_lifetime_s = 3600;
  // As the property says; empty: workers are added by request.
  std::optional<int64_t> default_workers;
  int64_t default_response_timeout_s = 120;
  int64_t default_startup_timeout_s = 120;
  // Regular expressions of addresses that may be fetched; empty: all.
  std::vector<std::string> allowed_urls;
  std::vector<ModelDefaults> models;
  config::ModelSettings settings = {};  // of every model
  // At the start: "m.mar" or "name=m.mar"; "all": all of the store.
  std::vector<std::string> load_models;
  std::string workflow_store;  // of .war archives; empty: the model store
  std::string python;          // interpreter of handlers; empty: none is run
  MetricLogOptions metric_log = {};
};

// A function of a workflow's handler, in place of an archive.
struct HandlerFunction {
  std::string folder, file, name;
  std::shared_ptr<const void> files;  // keeps the folder
};

struct RegisterRequest {
  std::string url;
  std::string model_name = {};  // empty: as the archive says
  std::string handler = {};     // likewise
  std::optional<int64_t> batch_size = {}, max_batch_delay_ms = {};
  std::optional<int64_t> initial_workers = {};
  std::optional<int64_t> max_workers = {};  // empty: the initial ones
  std::optional<int64_t> response_timeout_s = {}, startup_timeout_s = {};
  std::optional<HandlerFunction> function = {};
  bool sign_for_s3 = false;   // an https address of S3
  std::stop_token stop = {};  // of the download of an address
  bool at_start = false;
  // Asked for the name that the archive gives; unset: any.
  std::function<Status(const std::string& name)> may_use = {};
};

struct Registered {
  std::string name, version, url;
  int64_t batch_size = 1;
  int64_t max_batch_delay_ms = 100;
  int64_t min_workers = 0, max_workers = 0;
  int64_t response_timeout_s = 120, startup_timeout_s = 120;
  int64_t job_queue_size = 0;
  bool at_start = false;
  std::string start_time;  // of its workers, "2026-01-31T12:00:00.000Z"
  uint64_t number = 0;     // of its registration
  std::string model_path;
  std::shared_ptr<const Archive> archive;  // null: the URL is the model's file
  // A handler in Python; `model_path` is the folder that it runs in. Else null.
  std::shared_ptr<const config::ExternalSettings> python;
  // A state for each sequence of requests; null: none.
  std::shared_ptr<const config::SequenceSettings> sequences;
  // A workflow's, or the file that was fetched; may be null.
  std::shared_ptr<const void> files;
};

class Registry {
 public:
  // `metric_log` may be null: there is none; else it outlives the registry.
  explicit Registry(RegistryOptions options, MetricLog* metric_log = nullptr)
      : options_(std::move(options)), metric_log_(metric_log) {}

  const RegistryOptions& options() const { return options_; }
  MetricLog* metric_log() const { return metric_log_; }

  // Fetches it where the URL is an address: that may take minutes. NOT_FOUND
  // (no such archive in the store), ALREADY_EXISTS (name and version are
  // taken), INVALID_ARGUMENT, FAILED_PRECONDITION (it cannot be served).
  StatusOr<Registered> Register(const RegisterRequest& request);
  // Of the start. Fails with the first that cannot be registered; of "all", or
  // where `lenient`, those are logged and left out.
  Status RegisterAll(bool lenient);

  // The default version where `version` is empty. NOT_FOUND; at
  // "model_version" when the model is there.
  StatusOr<Registered> Find(const std::string& name,
                            const std::string& version) const;
  StatusOr<std::vector<Registered>> FindAll(const std::string& name) const;
  // The default versions, by name.
  std::vector<Registered> List() const;

  Status Scale(const std::string& name, const std::string& version,
               int64_t min_workers, int64_t max_workers);
  Status SetDefault(const std::string& name, const std::string& version);
  // The default version may only leave as the last one. The result keeps the
  // archive's files until it goes.
  StatusOr<Registered> Remove(const std::string& name,
                              const std::string& version);
  // Takes back a registration that cannot be served, a default version, too:
  // the oldest of the others becomes it. False: it is not there any more.
  bool Discard(const Registered& registered);
  // Forgets all, at the end of the process: the files of their archives leave,
  // also from under a load that runs or waits. What is not registered (yet, or
  // any more) and what `files` of a registration holds is left to its users.
  void Clear();
  // Held from IsWanted until what it decided is queued: else an unload could be
  // queued behind the load of a later registration.
  Mutex& deciding() { return deciding_; }
  // Whether some version of the model shall have workers.
  bool IsWanted(const std::string& name) const;

  // For a repository; the registry outlives it. It is a PipelineSource, too.
  std::unique_ptr<ModelSource> Source();

 private:
  struct Model {
    std::string default_version;
    std::vector<Registered> versions;  // in the order of their registration
  };
  class RegistrySource;

  StatusOr<const Model*> FindModel(const std::string& name) const REQUIRES(mu_);
  StatusOr<const Registered*> Choose(const std::string& name,
                                     const std::string& version) const
      REQUIRES(mu_);

  const RegistryOptions options_;
  MetricLog* const metric_log_;
  Mutex deciding_;
  mutable Mutex mu_;
  std::map<std::string, Model> models_ GUARDED_BY(mu_);
  uint64_t num_registrations_ GUARDED_BY(mu_) = 0;
};

}  // namespace millrace::server::torchserve
