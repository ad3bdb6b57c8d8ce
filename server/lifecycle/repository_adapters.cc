// LoRA adapters in the table of models. They are loaded and unloaded on the
// repository's thread, as models are.
#include <algorithm>
#include <exception>
#include <string>
#include <utility>

#include "server/lifecycle/repository.h"

namespace millrace::server {

Status Repository::CheckAdapterUpdates() const {
  if (allow_adapter_updates_ && loader_ != nullptr) return OkStatus();
  return Unavailable(
             "adapters are loaded and unloaded by request only with "
             "--allow-runtime-lora-updating; --lora-modules NAME=PATH loads "
             "them at the start")
      .Because("model_control_disabled");
}

void Repository::RequestLoadAdapter(const AdapterPlan& plan, Done done) {
  if (Status refused = CheckAdapterUpdates(); !refused.ok()) {
    return done(refused);
  }
  operations_.Post([=, this] { return DoLoadAdapter(plan); }, std::move(done));
}

void Repository::RequestUnloadAdapter(const std::string& name, Done done) {
  if (Status refused = CheckAdapterUpdates(); !refused.ok()) {
    return done(refused);
  }
  operations_.Post([=, this] { return DoUnloadAdapter(name); },
                   std::move(done));
}

StatusOr<std::shared_ptr<Servable>> Repository::BaseOf(
    const AdapterPlan& plan) const {
  if (!plan.base.empty()) return Choose(plan.base, {});
  const Model* only = nullptr;
  for (const Model& model : models_) {
    const bool is_base =
        std::ranges::any_of(model.versions, [](const Version& version) {
          return version.servable != nullptr &&
                 version.servable->kind() == ModelKind::kText &&
                 version.servable->facts().parent.empty();
        });
    if (!is_base) continue;
    if (only != nullptr) {
      return InvalidArgument(
                 "there are several language models; say with base_model_name "
                 "which of them the adapter '" +
                 plan.name + "' is for")
          .At("base_model_name");
    }
    only = &model;
  }
  if (only == nullptr) {
    return InvalidArgument("there is no language model for the adapter '" +
                           plan.name + "'");
  }
  return Choose(only->name, {});
}

Status Repository::DoLoadAdapter(const AdapterPlan& plan) {
  std::shared_ptr<Servable> base;
  {
    MutexLock lock(mu_);
    ASSIGN_OR_RETURN(base, BaseOf(plan));
    const auto taken = FindModel(plan.name) == nullptr
                           ? StatusOr<std::shared_ptr<Servable>>(nullptr)
                           : Choose(plan.name, {});
    if (taken.ok() && *taken != nullptr) {
      if ((*taken)->facts().parent.empty()) {
        return InvalidArgument("a model is called '" + plan.name +
                               "'; give the adapter another name")
            .At("lora_name");
      }
      if (!plan.in_place) {
        return InvalidArgument("the adapter '" + plan.name +
                               "' is loaded already; unload it first, or "
                               "send load_inplace: true")
            .At("lora_name");
      }
    }
  }
  StatusOr<std::shared_ptr<Servable>> loaded = [&]() {
    try {
      return loader_->LoadAdapter(std::move(base), plan);
    } catch (const std::exception& error) {  // out of memory, most likely
      return StatusOr<std::shared_ptr<Servable>>(
          ResourceExhausted(std::string("cannot load: ") + error.what()));
    }
  }();
  RETURN_IF_ERROR(loaded.status());
  Add(*std::move(loaded));
  return OkStatus();
}

Status Repository::DoUnloadAdapter(const std::string& name) {
  {
    MutexLock lock(mu_);
    const auto found = FindModel(name) == nullptr
                           ? StatusOr<std::shared_ptr<Servable>>(nullptr)
                           : Choose(name, {});
    if (!found.ok() || *found == nullptr || (*found)->facts().parent.empty()) {
      return NotFound("the adapter '" + name + "' is not loaded")
          .At("lora_name");
    }
  }
  TakeOut(name, {});
  return OkStatus();
}

Status Repository::LoadAdaptersOf(const std::string& name,
                                  const VersionPlan& plan) {
  for (const std::string& module : plan.settings.llm.lora_modules) {
    const size_t cut = module.find('=');
    if (cut == std::string::npos || cut == 0 || cut + 1 == module.size()) {
      return InvalidArgument("lora_modules has '" + module +
                             "' but takes NAME=PATH, such as sql=adapters/sql")
          .At("lora_modules");
    }
    const AdapterPlan adapter = {.name = module.substr(0, cut),
                                 .path = module.substr(cut + 1),
                                 .base = name,
                                 .in_place = true};
    const Status loaded = DoLoadAdapter(adapter);
    if (!loaded.ok()) {
      return loaded.Prefixed("lora_modules '" + module + "'")
          .At("lora_modules");
    }
  }
  return OkStatus();
}

void Repository::TakeOutAdaptersOf(const std::string& base) {
  for (Model& model : models_) {
    for (Version& each : model.versions) {
      if (each.state != VersionState::kReady ||
          each.servable->facts().parent != base) {
        continue;
      }
      each.state = VersionState::kUnloading;
      retired_.push_back({std::move(each.servable), model.name});
    }
  }
}

}  // namespace millrace::server
