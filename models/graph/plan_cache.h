// The plans of a graph, one for each set of input sizes that was asked for
// lately. Making one is what the first request of new sizes pays for.
//
// One thread at a time.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <utility>
#include <vector>

#include "config/base/status.h"
#include "models/graph/ir.h"
#include "models/graph/plan/kernels.h"
#include "models/graph/plan/packed_weights.h"
#include "models/graph/plan/plan.h"
#include "models/graph/plan/row_plans.h"
#include "models/memory/warm_buffer.h"

namespace millrace::models::graph {

// One of both: the whole batch at once, or its rows apart.
struct Prepared {
  std::unique_ptr<Plan> whole;
  std::shared_ptr<RowPlans> rows;  // shared by batches of the same rows
  int64_t batch = 0;               // rows
};

struct PlanCacheOptions {
  int num_members = 1;     // of the team
  int32_t max_plans = 32;  // the least recently used one goes
  int64_t max_bytes = 0;   // of arena and results; 0: no limit
  bool rows_apart = true;  // where it pays
  bool keep_bf16 = true;   // between products of it
  bool joins = true;       // what a Concat would copy
};

class PlanCache {
 public:
  // `graph` has met load-time Settle; it and the pool, which packs weights,
  // outlive the cache. Packed weights go to `weights` first.
  PlanCache(const Graph& graph, const Kernels& kernels,
            const PlanCacheOptions& options, WarmBuffer weights,
            ComputePool& pool)
      : graph_(graph),
        kernels_(kernels),
        options_(options),
        packed_(std::move(weights), &pool) {}

  // On the thread that runs the pool. Null when shapes depend on data, so that
  // the graph can only be interpreted, for these inputs and all others. Valid
  // until the next call. `whole`: the batch at once, whatever pays.
  StatusOr<const Prepared*> For(const std::vector<Tensor>& inputs, bool whole);

 private:
  using Key = std::vector<int64_t>;
  struct Kept {
    Key key;
    Key row_key;  // of one row, where rows go apart
    Prepared prepared;
  };

  bool IsKeyed(const Tensor& tensor) const;
  Key KeyOf(const std::vector<Tensor>& inputs, bool whole) const;
  // For inputs of these types; `values` as of Settle.
  StatusOr<Graph> OptimisedFor(const std::vector<ValueType>& types,
                               const std::vector<const Tensor*>& values) const;
  StatusOr<Prepared> Prepare(const std::vector<Tensor>& inputs, bool whole,
                             Key& row_key);
  // RESOURCE_EXHAUSTED when a run would need more than max_bytes.
  Status CheckBytes(const Plan& plan, int64_t arena_bytes, int64_t batch) const;
  // Null where rows stay together.
  StatusOr<std::shared_ptr<RowPlans>> RowsFor(const Graph& optimised,
                                              std::vector<ValueType> types,
                                              int64_t batch, Key& row_key);

  const Graph& graph_;
  const Kernels kernels_;
  const PlanCacheOptions options_;
  bool by_value_ = false;  // plans depend on the values of small inputs
  bool interprets_ = false;
  PackedWeights packed_;  // outlives the plans
  std::list<Kept> kept_;  // the last used first
};

}  // namespace millrace::models::graph
