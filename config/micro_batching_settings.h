// How a task's requests are cut into micro-batches, whose preparation,
// computation and answers overlap. The words are TorchServe's:
//
//   task: classify
//   micro_batching:
//     micro_batch_size: 4        # pictures that the graph gets together
//     parallelism:               # micro-batches in each stage at the same time
//       preprocess: 2            # threads that read pictures
//       inference: 1             # requests to the graph
//       postprocess: 1           # threads that make answers
#pragma once

#include <cstdint>
#include <string>

#include "config/base/status.h"

namespace YAML {
class Node;
}

namespace millrace::config {

struct MicroBatchingSettings {
  static constexpr int64_t kMaxSize = 64;
  static constexpr int64_t kMaxParallelism = 64;

  int64_t micro_batch_size = 1;
  int64_t preprocess = 1;
  int64_t inference = 1;
  int64_t postprocess = 1;
};

// The value of the key `micro_batching` in config.yaml. May throw what yaml-cpp
// throws for values of another kind. INVALID_ARGUMENT names the key.
StatusOr<MicroBatchingSettings> ReadMicroBatching(const YAML::Node& node);

// "size 4, preprocess 2, inference 1, postprocess 1": for metadata.
std::string MicroBatchingText(const MicroBatchingSettings& settings);

}  // namespace millrace::config
