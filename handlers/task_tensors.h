// A graph of a task over pictures or recordings, or one that labels tokens,
// that takes these as tensors, too, when another model asks it: a step of an
// ensemble, or a call of an external handler.
//
//   one input of BYTES, of any name and shape: each element an item
//   "output"  BYTES [items], a JSON text each
//
// Other requests go to the graph. (Clients of REST and gRPC are answered with
// the same by their codecs, which read pictures out of base64 as well.)
#pragma once

#include <memory>

#include "handlers/handler.h"
#include "handlers/pool.h"
#include "handlers/task.h"

namespace millrace::handlers {

// `task`, which asks `graph`, and the pool outlive it.
std::unique_ptr<TensorHandler> MakeTaskTensors(
    std::unique_ptr<TensorHandler> graph, TaskHandler* task, Pool* pool);

}  // namespace millrace::handlers
