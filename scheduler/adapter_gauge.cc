#include "scheduler/adapter_gauge.h"

#include <chrono>

#include "scheduler/load_metrics.h"

namespace millrace::scheduler {

void AdapterGauge::Show(const EngineStats& stats) {
  if (!stats.adapters.known) return;
  MetricLabels labels =
      With(of_model_, "running_lora_adapters", stats.adapters.running);
  labels = With(labels, "waiting_lora_adapters", stats.adapters.waiting);
  labels = With(labels, "max_lora", std::to_string(max_adapters_));
  const Gauge gauge = registry_->AddGauge(
      "millrace_lora_requests_info",
      "LoRA adapters of requests that run and that wait, by commas; the value "
      "is the Unix time of the scrape.",
      labels);
  gauge.Set(std::chrono::duration<double>(
                std::chrono::system_clock::now().time_since_epoch())
                .count());
  MutexLock lock(mu_);
  gauge_ = gauge;
}

}  // namespace millrace::scheduler
