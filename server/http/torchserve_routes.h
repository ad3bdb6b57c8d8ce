// The routes of `--profile torchserve` and the functions behind them.
#pragma once

#include <memory>
#include <span>

#include "server/http/exchange.h"
#include "server/http/router.h"
#include "server/http/site.h"

namespace millrace::server::http {

// Of the ports of inference, management and metrics. Where two are one, it has
// the routes of both.
std::span<const Route> TorchServeInferenceRoutes();
std::span<const Route> TorchServeManagementRoutes();
std::span<const Route> TorchServeMetricsRoutes();

// torchserve_inference.cc: predictions on the handler pool.
void ServeTorchPing(const Site&, const std::shared_ptr<Exchange>&);
void ServeTorchPredictions(const Site&, const std::shared_ptr<Exchange>&);
void ServeTorchInvocations(const Site&, const std::shared_ptr<Exchange>&);
void ServeTorchInstances(const Site&, const std::shared_ptr<Exchange>&);
void ServeTorchExplanations(const Site&, const std::shared_ptr<Exchange>&);
void ServeTorchExplainedTensors(const Site&, const std::shared_ptr<Exchange>&);

// torchserve_management.cc: on the handler pool, for archives are unpacked.
void ServeTorchModels(const Site&, const std::shared_ptr<Exchange>&);
void ServeTorchRegister(const Site&, const std::shared_ptr<Exchange>&);
void ServeTorchDescribe(const Site&, const std::shared_ptr<Exchange>&);
void ServeTorchScale(const Site&, const std::shared_ptr<Exchange>&);
void ServeTorchUnregister(const Site&, const std::shared_ptr<Exchange>&);
void ServeTorchToken(const Site&, const std::shared_ptr<Exchange>&);

// torchserve_workflows.cc: likewise.
void ServeTorchWorkflow(const Site&, const std::shared_ptr<Exchange>&);
void ServeTorchWorkflows(const Site&, const std::shared_ptr<Exchange>&);
void ServeTorchWorkflowDescribe(const Site&, const std::shared_ptr<Exchange>&);
void ServeTorchWorkflowRegister(const Site&, const std::shared_ptr<Exchange>&);
void ServeTorchWorkflowUnregister(const Site&,
                                  const std::shared_ptr<Exchange>&);

// torchserve_routes.cc: descriptions in OpenAPI 3.0.1.
void ServeTorchInferenceApi(const Site&, const std::shared_ptr<Exchange>&);
void ServeTorchManagementApi(const Site&, const std::shared_ptr<Exchange>&);
void ServeTorchModelApi(const Site&, const std::shared_ptr<Exchange>&);
void ServeTorchMetricsApi(const Site&, const std::shared_ptr<Exchange>&);

}  // namespace millrace::server::http
