// From settings to a servable: reads the model, starts its engine or batcher,
// makes its handler. The one place that knows how a language model is put
// together; graphs are put together beside it.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "config/base/metrics.h"
#include "config/base/status.h"
#include "config/base/timeline.h"
#include "config/topology.h"
#include "handlers/pool.h"
#include "server/lifecycle/core_allocator.h"
#include "server/lifecycle/load_progress.h"
#include "server/lifecycle/model_source.h"

namespace millrace::server {

// What a load needs beside the model; all outlive the models.
struct LoaderParts {
  CoreAllocator* cores = nullptr;
  const config::Topology* topology = nullptr;
  int64_t memory_limit_bytes = 0;
  handlers::Pool* pool = nullptr;
  MetricRegistry* metrics = nullptr;
  LoadProgress* progress = nullptr;
  Timeline* timeline = nullptr;
};

// Errors name the file.
class ServableLoader final : public ModelLoader {
 public:
  explicit ServableLoader(LoaderParts parts) : parts_(std::move(parts)) {}
  StatusOr<std::shared_ptr<Servable>> Load(const VersionPlan& plan) override;
  StatusOr<std::shared_ptr<Servable>> LoadAdapter(
      std::shared_ptr<Servable> base, const AdapterPlan& plan) override;

 private:
  const LoaderParts parts_;
};

}  // namespace millrace::server
