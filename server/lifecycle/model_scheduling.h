// How a model's requests are scheduled, beyond batches: the parts
// ensemble_scheduling and sequence_batching of its configuration become
// settings, and settings of config.yaml are shown to clients in that form.
#pragma once

#include <string>

#include "config/base/status.h"
#include "config/ensemble_settings.h"
#include "config/sequence_settings.h"

namespace inference {
class ModelConfig;
}

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

}  // namespace millrace::server
