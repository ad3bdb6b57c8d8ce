#include "server/lifecycle/control.h"

#include "config/base/utf8.h"
#include "server/lifecycle/composite.h"

namespace millrace::server {

Status CheckLoadParameter(const std::string& name) {
  if (name == "config") return OkStatus();
  if (name.starts_with("file:")) {
    return Unimplemented("models are not taken from requests ('" +
                         Shortened(name, 100) +
                         "'); put the file into the repository's folder")
        .At("parameters");
  }
  return InvalidArgument("unknown parameter '" + Shortened(name, 100) +
                         "' of a load; config is known")
      .At("parameters");
}

Status CheckUnloadParameter(const std::string& name) {
  if (name == "unload_dependents") return OkStatus();
  return InvalidArgument("unknown parameter '" + Shortened(name, 100) +
                         "' of an unload; unload_dependents is known")
      .At("parameters");
}

void RequestUnload(Repository* repository, const std::string& name,
                   bool with_members, Repository::Done done) {
  std::vector<std::string> members;
  if (with_members) {
    if (const auto found = repository->Find(name); found.ok()) {
      members = MembersOf(**found);
    }
  }
  // In this order: an operation runs after those before it.
  repository->RequestUnload(name, std::move(done));
  for (const std::string& member : members) {
    repository->RequestUnload(member, [](const Status&) {});
  }
}

StatusOr<std::vector<CountedModel>> CollectStatistics(
    const Repository& repository, std::string_view name,
    std::string_view version) {
  std::vector<std::shared_ptr<Servable>> models = repository.List();
  if (!name.empty()) {
    ASSIGN_OR_RETURN(std::shared_ptr<Servable> found,
                     repository.Find(name, version));
    if (found->kind() == ModelKind::kText && !found->statistics()) {
      return InvalidArgument("the model '" + std::string(name) +
                             "' is an adapter, which is counted with the model "
                             "that it was loaded for")
          .At("model")
          .Because("wrong_model_kind");
    }
    models = {std::move(found)};
  }
  std::vector<CountedModel> all;
  for (const std::shared_ptr<Servable>& model : models) {
    std::vector<std::string> versions = repository.VersionsOf(model->id());
    if (!version.empty()) versions = {std::string(version)};
    for (const std::string& each : versions) {
      // One that left meanwhile is left out.
      const auto servable = repository.Find(model->id(), each);
      if (!servable.ok()) continue;
      if (auto counts = (*servable)->statistics()) {
        all.emplace_back(*servable, *std::move(counts));
      }
    }
  }
  return all;
}

}  // namespace millrace::server
