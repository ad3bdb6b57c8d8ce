// What a model's configuration says beyond names and batches: the parts
// ensemble_scheduling, sequence_batching, model_warmup and reshape become
// settings, and settings of config.yaml are shown to clients in that form.
#pragma once

#include <memory>
#include <string>

#include "config/base/status.h"
#include "config/ensemble_settings.h"
#include "config/reshape_settings.h"
#include "config/sequence_settings.h"
#include "config/warmup_settings.h"

namespace inference {
class ModelConfig;
enum DataType : int;
}  // namespace inference

namespace millrace::server {

config::EnsembleSettings EnsembleOf(const inference::ModelConfig& message);
// Leaves alone what the message has.
void DescribeEnsemble(const config::EnsembleSettings& settings,
                      inference::ModelConfig* message);

// INVALID_ARGUMENT names a control or a state that cannot be.
StatusOr<config::SequenceSettings> SequencesOf(
    const inference::ModelConfig& message);
// Triton's sequence_batching as JSON, such as a config.yaml has it.
Status SetSequences(const std::string& json, inference::ModelConfig* message);

// Null: nothing is to be computed. INVALID_ARGUMENT names the sample and the
// input. The folder of files stays empty.
StatusOr<std::shared_ptr<const config::WarmupSettings>> WarmupOf(
    const inference::ModelConfig& message);
// Samples without a batch_size, which Triton passes over, too: "model_warmup
// sample 'a' without batch_size". Empty: none.
std::string SamplesLeftOut(const inference::ModelConfig& message);

// Null: no tensor has a reshape. INVALID_ARGUMENT for an ensemble's.
StatusOr<std::shared_ptr<const config::ReshapeSettings>> ReshapeOf(
    const inference::ModelConfig& message);

// The type as the protocol names it ("BYTES"); empty: not declared.
std::string DatatypeOf(inference::DataType type);

}  // namespace millrace::server
