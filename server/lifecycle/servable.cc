#include "server/lifecycle/servable.h"

#include <algorithm>

namespace millrace::server {

bool Servable::IsNamed(std::string_view name) const {
  return facts_.id == name ||
         std::find(facts_.aliases.begin(), facts_.aliases.end(), name) !=
             facts_.aliases.end();
}

StatusOr<handlers::TaskHandler*> Servable::ForTask() const {
  if (handlers::TaskHandler* const handler = task()) return handler;
  return InvalidArgument("the model '" + id() +
                         "' has no task: it takes tensors or text alone; "
                         "declare one in its config.yaml, such as 'task: "
                         "classify'")
      .At("model")
      .Because("wrong_model_kind");
}

StatusOr<handlers::TextHandler*> Servable::ForTexts() const {
  return InvalidArgument("the model '" + id() +
                         "' has no task over texts; declare one in its "
                         "config.yaml: embed, rerank or classify_text")
      .At("model")
      .Because("wrong_model_kind");
}

Status Servable::SetInstanceCount(int64_t) {
  return Unimplemented("the model '" + id() +
                       "' generates text, whose requests share one engine");
}

Status Servable::SetAdapterScale(double) {
  return Unimplemented("the model '" + id() + "' is no LoRA adapter");
}

std::string Servable::config_json() const {
  MutexLock lock(mu_);
  return config_json_;
}

void Servable::set_config_json(std::string json) {
  MutexLock lock(mu_);
  config_json_ = std::move(json);
}

}  // namespace millrace::server
