#include "server/lifecycle/lora_model.h"

#include <chrono>
#include <utility>

#include "config/base/log.h"
#include "handlers/generate.h"
#include "server/lifecycle/language_model.h"

namespace millrace::server {

LoraModel::LoraModel(ModelFacts facts, const TextFacts& text,
                     std::shared_ptr<Servable> base,
                     std::shared_ptr<models::LiveLora> adapter,
                     std::unique_ptr<handlers::GenerateHandler> handler)
    : Servable(std::move(facts)),
      text_(text),
      base_(std::move(base)),
      adapter_(std::move(adapter)),
      handler_(std::move(handler)) {}

StatusOr<handlers::TensorHandler*> LoraModel::ForTensors() const {
  return base_->ForTensors();
}

StatusOr<std::shared_ptr<Servable>> LoadLoraModel(
    std::shared_ptr<Servable> base, const std::string& name,
    const std::string& path) {
  const auto* model = dynamic_cast<const LanguageModel*>(base.get());
  if (model == nullptr || model->adapter_host().base == nullptr) {
    return InvalidArgument("the model '" + base->id() +
                           "' takes no adapters; adapters are for language "
                           "models without tensor_parallel_size")
        .At("model");
  }
  const AdapterHost& host = model->adapter_host();
  ASSIGN_OR_RETURN(const auto adapter,
                   models::LoadLora(path, *host.base, name));
  handlers::GenerateParts parts = host.parts;
  parts.model = name;
  auto live = std::make_shared<models::LiveLora>(adapter);
  parts.adapter = [live] { return live->Get(); };
  ModelFacts facts;
  facts.id = name;
  facts.version = base->version();
  facts.path = path;
  facts.parent = base->id();
  facts.created_unix = std::chrono::duration_cast<std::chrono::seconds>(
                           std::chrono::system_clock::now().time_since_epoch())
                           .count();
  facts.platform = base->facts().platform;
  LogInfo("adapter loaded", {{"model", name},
                             {"base", base->id()},
                             {"path", path},
                             {"rank", adapter->rank()},
                             {"dtype", models::NameOf(adapter->dtype())},
                             {"memory_mib", adapter->num_bytes() >> 20}});
  const TextFacts text = *base->text_facts();
  return std::shared_ptr<Servable>(std::make_shared<LoraModel>(
      std::move(facts), text, std::move(base), std::move(live),
      handlers::MakeGenerateHandler(std::move(parts))));
}

}  // namespace millrace::server
