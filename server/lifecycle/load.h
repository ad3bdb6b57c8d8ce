// From settings to a servable: reads the model, starts its engine or batcher,
// makes its handler. Each kind of model is put together in a file of its own
// (load_language.h, load_graph.h, load_embedding.h, load_transducer.h).
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "config/base/metrics.h"
#include "config/base/status.h"
#include "config/base/timeline.h"
#include "config/ensemble_settings.h"
#include "config/topology.h"
#include "handlers/pool.h"
#include "handlers/shadow/shadow_runner.h"
#include "models/group/group.h"
#include "server/lifecycle/core_allocator.h"
#include "server/lifecycle/load_progress.h"
#include "server/lifecycle/model_source.h"
#include "server/lifecycle/pipeline_source.h"
#include "server/lifecycle/repository_lender.h"

namespace millrace::server {

// What a load needs beside the model; all outlive the models.
struct LoaderParts {
  CoreAllocator* cores = nullptr;
  const config::Topology* topology = nullptr;
  int64_t memory_limit_bytes = 0;
  handlers::Pool* pool = nullptr;
  RepositoryLender* lender = nullptr;
  handlers::ShadowRunner* shadows = nullptr;
  // Null: every model is a file of its own.
  const PipelineSource* pipelines = nullptr;
  MetricRegistry* metrics = nullptr;
  LoadProgress* progress = nullptr;
  Timeline* timeline = nullptr;
  // Of the processes that serve the only model together; null: this one alone.
  std::shared_ptr<models::Group> group = nullptr;
  // Called once, on the engine's thread, when the group has lost a rank.
  std::function<void(const Status&)> on_group_broken = {};
};

// Errors name the file.
class ServableLoader final : public ModelLoader {
 public:
  explicit ServableLoader(LoaderParts parts);
  StatusOr<std::shared_ptr<Servable>> Load(const VersionPlan& plan) override;
  StatusOr<std::shared_ptr<Servable>> LoadAdapter(
      std::shared_ptr<Servable> base, const AdapterPlan& plan) override;

 private:
  StatusOr<std::shared_ptr<Servable>> LoadOne(const VersionPlan& plan);
  // The models of an ensemble that do not serve yet.
  Status LoadMembers(const std::string& name,
                     const config::EnsembleSettings& ensemble);

  const LoaderParts parts_;
  const Counter num_loaded_, num_failed_;
  // Repository's thread: ensembles whose members are being loaded.
  std::vector<std::string> loading_;
};

}  // namespace millrace::server
