// How far a classifier's predictions are from their baseline: GET answers with
// the window of the latest ones; 404 where the model is not watched.
#include <memory>
#include <string>
#include <vector>

#include "server/http/message.h"
#include "server/http/routes.h"
#include "server/lifecycle/watched.h"

namespace millrace::server::http {
namespace {

StatusOr<std::string> DriftOf(const Site& site, const Exchange& exchange) {
  const std::vector<std::string>& params = exchange.params();
  ASSIGN_OR_RETURN(const std::shared_ptr<Servable> model,
                   site.services.repository->Find(
                       params[0], params.size() > 1 ? params[1] : ""));
  const auto* watched = dynamic_cast<const Watched*>(model.get());
  std::string json = watched == nullptr ? "" : watched->DriftJson();
  if (!json.empty()) return json;
  return NotFound("the predictions of the model '" + model->id() +
                  "' are not watched; let its config.yaml have 'task: "
                  "classify' and 'drift: {}'")
      .At("model")
      .Because("no_drift");
}

}  // namespace

void ServeModelDrift(const Site& site,
                     const std::shared_ptr<Exchange>& exchange) {
  const StatusOr<std::string> json = DriftOf(site, *exchange);
  exchange->Send(json.ok() ? JsonResponse(200, *json)
                           : OipErrorResponse(json.status()));
}

}  // namespace millrace::server::http
