// The samples of model_warmup as tensors.
//
//   ASSIGN_OR_RETURN(auto tensors, SampleTensors(settings, sample, inputs));
//
// A sample's row stands batch_size times in its tensors. Zeros of BYTES are
// empty strings, as are random ones; random floats are spread evenly over
// [-1, 1), random integers and booleans are 0 or 1, which indices, masks and
// lengths may be. Files hold raw bytes in row-major order, each element of
// BYTES behind its length as four bytes; they have one row.
// Source: model_config.proto of Triton, ModelWarmup.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "config/base/status.h"
#include "config/pipeline_settings.h"
#include "config/warmup_settings.h"
#include "handlers/messages.h"
#include "handlers/tensor_reshapes.h"
#include "models/tensor/tensor_spec.h"
#include "scheduler/batcher.h"
#include "server/lifecycle/servable.h"

namespace millrace::server {

// For a model that takes these inputs, or any where it declares none; some may
// be left out of the sample. INVALID_ARGUMENT at "model_warmup" names sample,
// input and value: an input that the model does not have, another type or
// shape, a file that is not there or of another size, more than 2 GiB.
StatusOr<std::vector<handlers::NamedTensor>> SampleTensors(
    const config::WarmupSettings& settings, const config::WarmupSample& sample,
    const std::vector<models::TensorSpec>& inputs);

// The same for a graph, in the order of its inputs. Controls and states of
// sequences that a sample leaves out are zeros. `reshapes` may be null.
using GraphSamples =
    std::shared_ptr<const std::vector<scheduler::WarmUpSample>>;
StatusOr<GraphSamples> SamplesFor(const std::string& model,
                                  const config::PipelineSettings& pipeline,
                                  const std::vector<models::TensorSpec>& inputs,
                                  const handlers::TensorReshapes* reshapes);

// Of another model that takes tensors, or of a language model: its requests,
// one after the other. The error of the first that fails, with the sample's
// name.
Status RunSamples(const config::WarmupSettings& settings,
                  const Servable& servable);

}  // namespace millrace::server
