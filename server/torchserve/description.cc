#include "server/torchserve/description.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "config/base/json.h"

namespace millrace::server::torchserve {
namespace {

using Json = nlohmann::ordered_json;

// The description of one version with what its handler tells: a JSON object, or
// any other text for none.
std::string WithMetadata(const std::string& described,
                         const std::string& metadata) {
  StatusOr<Json> list = ParseJson(described);
  if (!list.ok() || !list->is_array() || list->empty()) return described;
  StatusOr<Json> told = ParseJson(metadata);
  list->front()["customizedMetadata"] =
      told.ok() && told->is_object() ? *std::move(told) : Json::object();
  return DumpJson(*list);
}

}  // namespace

Status StartDescription(const Management& management, const Registry& registry,
                        const DescriptionRequest& request, const Borrow& borrow,
                        PredictionCall call, DescriptionDone done) {
  ASSIGN_OR_RETURN(
      std::string described,
      management.Describe(request.name, request.version, request.customized));
  if (request.customized && request.version != "all") {
    auto prediction =
        FindPrediction(registry, request.name, request.version, borrow);
    if (prediction.ok() && prediction->model.python != nullptr) {
      call.describe = true;
      return StartPrediction(
          *std::move(prediction), {}, std::move(call),
          [described = std::move(described),
           done = std::move(done)](StatusOr<PredictionBody> told) {
            done(told.ok() ? WithMetadata(described, told->text)
                           : StatusOr<std::string>(told.status()));
          });
    }
  }
  done(std::move(described));
  return OkStatus();
}

}  // namespace millrace::server::torchserve
