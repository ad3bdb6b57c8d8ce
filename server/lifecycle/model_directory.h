// A folder of models as the source of the repository:
//
//   DIR/NAME/config.yaml             settings (config/model_file.h), or
//   DIR/NAME/config.pbtxt            those of Triton; both may be missing
//   DIR/NAME/VERSION/model.onnx      or .pt2, .gguf, or what the configuration
//                                    calls default_model_filename, or the files
//                                    of a Hugging Face folder
//   DIR/NAME.onnx                    a model of one version, "1"
//
// Versions are whole numbers above 0. Names that begin with a dot are left out.
// Looks at the disk at every call; thread-safe.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "config/base/mutex.h"
#include "config/base/status.h"
#include "config/schema.h"
#include "server/lifecycle/model_source.h"
#include "server/lifecycle/pipeline_source.h"

namespace millrace::server {

class ModelDirectory final : public ModelSource, public PipelineSource {
 public:
  // `defaults` are the settings of models that their configuration leaves
  // alone.
  ModelDirectory(std::string root, config::ModelSettings defaults);

  // NOT_FOUND when the root is no folder.
  Status CheckRoot() const;
  // Ensembles behind the models they are made of, else by name.
  StatusOr<std::vector<std::string>> Names() override;
  StatusOr<std::vector<VersionPlan>> Find(const std::string& name,
                                          const std::string& config) override;
  config::PipelineSettings PipelineOf(const std::string& name) const override;

 private:
  void TellWithoutEffect(const std::string& name, std::string what);

  const std::string root_;
  const config::ModelSettings defaults_;
  mutable Mutex mu_;
  std::map<std::string, config::PipelineSettings> pipelines_ GUARDED_BY(mu_);
  // What of a model's configuration is without effect, as the log has it.
  std::map<std::string, std::string> without_effect_ GUARDED_BY(mu_);
};

}  // namespace millrace::server
