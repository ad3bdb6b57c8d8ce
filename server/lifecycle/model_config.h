// A model's configuration in the form that Triton's users write (config.pbtxt,
// or JSON in a load request): read, checked, turned into settings, and shown to
// clients.
//
//   ASSIGN_OR_RETURN(ModelConfig config, ModelConfig::FromText(text, path));
//   RETURN_IF_ERROR(config.ApplyTo(&settings));
//
// Immutable after its factory but for Complete. Protocol buffers stay in the
// source.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "config/base/status.h"
#include "config/model_file.h"
#include "config/schema.h"
#include "models/tensor/tensor_spec.h"

namespace inference {
class ModelConfig;
}

namespace millrace::server {

class ModelConfig {
 public:
  // An empty one: everything is as the model's file says.
  ModelConfig();
  // Protocol buffers as text. INVALID_ARGUMENT names `where`, the line and the
  // field: unknown, not supported, of another type. Hints for other runtimes,
  // such as "optimization", are passed over.
  static StatusOr<ModelConfig> FromText(const std::string& text,
                                        const std::string& where);
  static StatusOr<ModelConfig> FromJson(const std::string& json);
  // What clients see of a model that is configured otherwise.
  static ModelConfig FromSettings(const config::ModelSettings& settings,
                                  const config::VersionPolicy& policy);

  // As GET /v2/models/NAME/config answers: every field, 64-bit numbers as
  // numbers.
  std::string ToJson() const;

  // Changes with all but the number of instances.
  std::string StampText() const;

  const std::string& name() const;
  const std::string& default_model_filename() const;

  // Those of the given versions, ascending, that the version policy selects.
  // INVALID_ARGUMENT when that is none, or one is asked for that is missing.
  StatusOr<std::vector<std::string>> ChooseVersions(
      const std::vector<std::string>& available) const;

  // Writes what the configuration decides over the settings. INVALID_ARGUMENT
  // names the field: a backend or kind of instance that does not exist here.
  // Parameters that are settings of ours (threads, precision) are set.
  Status ApplyTo(config::ModelSettings* settings) const;

  // What is set and means nothing here, such as "optimization" or
  // "parameters intra_op_thread_count", separated by commas.
  std::string WithoutEffect() const;

  // What the configuration says of its scheduling beyond batches.
  StatusOr<config::PipelineSettings> Pipeline() const;

  // Triton's sequence_batching as JSON, beside settings of a config.yaml.
  StatusOr<std::shared_ptr<const config::SequenceSettings>> AddSequences(
      const std::string& json, const config::ModelSettings& settings);

  // model_warmup as JSON, beside settings of a config.yaml: dims have the
  // batch's size there.
  StatusOr<std::shared_ptr<const config::WarmupSettings>> AddWarmup(
      const std::string& json);

  // Holds the inputs and outputs that are declared against the model's own:
  // name, type and sizes. INVALID_ARGUMENT names the tensor.
  Status Check(const std::vector<models::TensorSpec>& inputs,
               const std::vector<models::TensorSpec>& outputs) const;

  // Fills in what is not declared, for clients that ask. The pipeline first.
  void DescribePipeline(const config::PipelineSettings& pipeline);
  void Complete(const std::string& name, const std::string& platform,
                const std::vector<models::TensorSpec>& inputs,
                const std::vector<models::TensorSpec>& outputs,
                const config::ModelSettings& settings);
  // The same for a language model, which takes and gives text.
  void CompleteText(const std::string& name, const std::string& platform,
                    const config::ModelSettings& settings);

 private:
  explicit ModelConfig(inference::ModelConfig message);

  std::shared_ptr<inference::ModelConfig> message_;  // never null
  std::set<std::string> hints_;  // fields without effect that were left out
};

}  // namespace millrace::server
