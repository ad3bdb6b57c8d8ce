// How many instances of a graph are fastest on its cores: one on all of them,
// many on one each, or something between. Measured when the model is loaded.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "models/graph/execution_context.h"
#include "models/tensor/tensor.h"

namespace millrace::server {

struct InstanceChoice {
  int64_t count = 1;
  // What was measured, for people: "1: 210 rows/s, 2: 260 rows/s". Empty:
  // nothing could be.
  std::string text;
};

// `samples` are inputs of the sizes that the model will be asked for; each
// counts alike (the geometric mean of their rates decides). Fewer instances
// win unless more are at least 5 % faster, since a request alone is answered
// sooner by them. Takes some 0.3 s for each number tried (1, 2, 4, ... and
// `num_cores`); one where there is a single core or nothing to compute. Blocks.
InstanceChoice ChooseInstances(
    int64_t num_cores, const std::vector<std::vector<models::Tensor>>& samples,
    const std::function<
        std::vector<std::unique_ptr<models::graph::ExecutionContext>>(
            int64_t count)>& make_contexts);

}  // namespace millrace::server
