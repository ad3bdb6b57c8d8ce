#include "server/lifecycle/settings_source.h"

#include <string>
#include <utility>
#include <vector>

#include "server/lifecycle/model_directory.h"

namespace millrace::server {
namespace {

// The models that settings name, each of one version.
class NamedModels final : public ModelSource {
 public:
  explicit NamedModels(std::vector<config::ModelSettings> models)
      : models_(std::move(models)) {}

  StatusOr<std::vector<std::string>> Names() override {
    std::vector<std::string> names;
    for (const config::ModelSettings& model : models_) {
      names.push_back(config::ModelId(model));
    }
    return names;
  }

  StatusOr<std::vector<VersionPlan>> Find(const std::string& name,
                                          const std::string&) override {
    for (const config::ModelSettings& model : models_) {
      if (config::ModelId(model) != name) continue;
      return std::vector<VersionPlan>{{std::string(kOnlyVersion), model}};
    }
    return NotFound("no model called '" + name + "' was named at start");
  }

 private:
  const std::vector<config::ModelSettings> models_;
};

}  // namespace

StatusOr<std::unique_ptr<ModelSource>> SourceOf(
    const config::Settings& settings) {
  const std::string& root = settings.server.model_repository;
  if (root.empty()) {
    return std::unique_ptr<ModelSource>(
        std::make_unique<NamedModels>(settings.models));
  }
  if (!settings.models.empty()) {
    return InvalidArgument("model_repository is '" + root + "' but '" +
                           settings.models.front().path +
                           "' is named as a model, too; leave one of them out")
        .At("model_repository");
  }
  auto directory = std::make_unique<ModelDirectory>(
      root, config::ModelSettings{.common = settings.common,
                                  .llm = settings.llm,
                                  .graph = settings.graph});
  RETURN_IF_ERROR(directory->CheckRoot());
  return std::unique_ptr<ModelSource>(std::move(directory));
}

}  // namespace millrace::server
