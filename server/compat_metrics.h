// Our counts under the metric names of other servers (--metrics-compat), for
// dashboards, autoscalers and routers that ask by those names. The tables stand
// in compat_metrics.cc; what another server counts and we do not is left out,
// never shown as zero.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "config/base/metric_alias.h"
#include "config/base/status.h"

namespace millrace::server {

// `servers`: "vllm", "triton", "torchserve", "llamacpp"; repeated names count
// once. INVALID_ARGUMENT for another one. `hostname` is TorchServe's label.
StatusOr<std::vector<MetricAlias>> CompatMetrics(
    const std::vector<std::string>& servers, std::string_view hostname);

}  // namespace millrace::server
