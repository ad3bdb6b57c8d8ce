// Which LoRA adapters an engine has requests of: the gauge
// millrace_lora_requests_info, whose labels are lists of names and whose value
// is the time of the scrape, as routers of vLLM's servers read it. One series
// at a time: the one of the last scrape.
//
// Thread-safe.
// Source: vLLM, vllm/v1/metrics/loggers.py (vllm:lora_requests_info).
#pragma once

#include <cstdint>
#include <utility>

#include "config/base/metrics.h"
#include "config/base/mutex.h"
#include "scheduler/engine.h"

namespace millrace::scheduler {

class AdapterGauge {
 public:
  // `registry` outlives it. `of_model`: see ModelLabels. `max_adapters`: of one
  // step.
  AdapterGauge(MetricRegistry* registry, MetricLabels of_model,
               int32_t max_adapters)
      : registry_(registry),
        of_model_(std::move(of_model)),
        max_adapters_(max_adapters) {}

  // At each scrape. Nothing is shown until an adapter is known.
  void Show(const EngineStats& stats);

 private:
  MetricRegistry* const registry_;
  const MetricLabels of_model_;
  const int32_t max_adapters_;
  Mutex mu_;
  Gauge gauge_ GUARDED_BY(mu_);
};

}  // namespace millrace::scheduler
