// The plans of a graph, one for each set of input sizes that was asked for
// lately, shared by all contexts of the graph. Making one is what the first
// request of new sizes pays for.
//
// The cache has a limit of bytes. Beyond it, plans that were not used for the
// longest time are dropped; the newest one always stays. No request fails by
// that: sizes whose plan was dropped pay for a new one. A run under way keeps
// its plan alive.
//
// Thread-safe. Two threads make plans at the same time; when both want the same
// new sizes, the plan that is ready first stays.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "config/base/mutex.h"
#include "config/base/status.h"
#include "models/cpu/compute_pool.h"
#include "models/graph/device.h"
#include "models/graph/ir.h"
#include "models/graph/plan/cut_plans.h"
#include "models/graph/plan/kernels.h"
#include "models/graph/plan/packed_weights.h"
#include "models/graph/plan/plan.h"
#include "models/graph/plan/row_plans.h"
#include "models/memory/warm_buffer.h"

namespace millrace::models::graph {

// One of four: the whole batch at once, its rows apart, first the one and then
// the other, or on a device. Immutable.
struct Prepared {
  std::unique_ptr<const Plan> whole;
  std::shared_ptr<const RowPlans> rows;  // shared by batches of the same rows
  std::unique_ptr<const CutPlans> cut;
  std::unique_ptr<const DevicePlan> device;
  int64_t batch = 0;  // rows
  bool tiny = false;  // `whole` runs on one thread, in a moment

  // Of the host.
  int64_t arena_bytes() const {
    if (device != nullptr) return device->arena_bytes();
    if (cut != nullptr) return cut->arena_bytes();
    return rows != nullptr ? rows->arena_bytes() : whole->arena_bytes();
  }
  std::string Text() const {
    if (device != nullptr) return device->Text();
    if (cut != nullptr) return cut->Text();
    return rows != nullptr ? rows->Text() : whole->Text();
  }
  // Of all results together: sizes are foreign, their sum could overflow.
  double ResultBytes() const;
};

struct PlanCacheOptions {
  int64_t max_plan_bytes = int64_t{1} << 30;
  bool rows_apart = true;   // where it pays
  bool tiny_alone = false;  // no team for graphs that touch little
  bool keep_bf16 = true;    // between products of it
  bool joins = true;        // what a Concat would copy
  // Plans are for it, if there is one; it outlives the cache.
  GraphDevice* device = nullptr;
};

class PlanCache {
 public:
  // `graph` has had shape inference at load; it outlives the cache. Packed
  // weights go to `weights` first.
  PlanCache(const Graph& graph, const Kernels& kernels,
            const PlanCacheOptions& options, WarmBuffer weights);

  // A plan for a team as large as the pool, which is that of the calling thread
  // and packs weights. Null when shapes depend on data, so that the graph can
  // only be interpreted, for these inputs and all others. `whole`: the batch at
  // once, whatever pays. A plan must not outlive the cache.
  StatusOr<std::shared_ptr<const Prepared>> For(
      const std::vector<Tensor>& inputs, bool whole, ComputePool& pool)
      EXCLUDES(mu_);
  // The plan that For would give where it is tiny and kept already, else null.
  std::shared_ptr<const Prepared> KeptTiny(const std::vector<Tensor>& inputs,
                                           ComputePool& pool) EXCLUDES(mu_);

  int64_t packed_bytes() const { return packed_.bytes(); }
  // Of the plans that are kept now, and how many they are.
  int64_t plan_bytes() const EXCLUDES(mu_);
  int64_t num_plans() const EXCLUDES(mu_);

 private:
  using Key = std::vector<int64_t>;
  struct Kept {
    Key key;
    Key row_key;  // of one row, where rows go apart, at first maybe
    std::shared_ptr<const Prepared> prepared;
    int64_t bytes = 0;
  };
  // What a plan is made for.
  struct Request {
    const std::vector<Tensor>& inputs;
    bool whole;
    bool by_value;
    ComputePool& pool;
  };

  Key KeyOf(const Request& request) const;
  // That input i of a plan has: of values of jagged features more than the
  // request's, so that few plans serve them all.
  Shape PlannedShape(size_t i, const Tensor& input) const;
  bool MayDecideShapes(size_t i, const Tensor& input) const;
  // Null when there is none.
  std::shared_ptr<const Prepared> Find(const Key& key) REQUIRES(mu_);
  // Takes plans out until the others fit, for the caller to drop.
  std::vector<std::shared_ptr<const Prepared>> TakeOldest() REQUIRES(mu_);
  int64_t HeldBytes(const Prepared& prepared) const;
  // For inputs of these types; `values` as of InferAndFold.
  StatusOr<Graph> OptimisedFor(const std::vector<ValueType>& types,
                               const std::vector<const Tensor*>& values) const;
  StatusOr<Prepared> Prepare(const Request& request, Key& row_key);
  // Makes `rows` or `cut`; neither where rows stay together.
  Status PrepareRows(const Graph& optimised, std::vector<ValueType> types,
                     ComputePool& pool, Key& row_key, Prepared& prepared);
  // Plans for rows of these sizes that are kept already, or null.
  std::shared_ptr<const RowPlans> KeptRows(const Key& row_key, bool cut)
      EXCLUDES(mu_);

  const Graph& graph_;
  const Kernels kernels_;
  const PlanCacheOptions options_;
  const std::set<const Tensor*> graph_constants_;
  // Of each input: a plan takes fewer values than it was made for.
  const std::vector<bool> is_jagged_;
  PackedWeights packed_;  // outlives the plans
  mutable Mutex mu_;      // not held while a plan is made
  // Plans depend on the values of small inputs.
  bool by_value_ GUARDED_BY(mu_) = false;
  bool interprets_ GUARDED_BY(mu_) = false;
  std::list<Kept> kept_ GUARDED_BY(mu_);  // the last used first
  std::map<Key, std::list<Kept>::iterator> by_key_ GUARDED_BY(mu_);
  int64_t kept_bytes_ GUARDED_BY(mu_) = 0;
};

}  // namespace millrace::models::graph
