#include "models/graph/plan/cut_plans.h"

#include <algorithm>
#include <utility>

#include "models/graph/plan/node_bytes.h"

namespace millrace::models::graph {

StatusOr<std::unique_ptr<CutPlans>> CutPlans::Create(
    std::shared_ptr<const RowPlans> head, const Graph& whole, const Cut& cut,
    int64_t batch, int num_members, const Kernels& kernels, bool joins,
    WeightPacker& packed) {
  std::unique_ptr<CutPlans> plans(new CutPlans());
  plans->head_ = std::move(head);
  plans->batch_ = batch;
  plans->between_bytes_ = (ValueBytes(whole, cut.value) + 63) / 64 * 64;
  ASSIGN_OR_RETURN(plans->tail_, Plan::Create(TailOf(whole, cut), num_members,
                                              kernels, joins, packed));
  return plans;
}

int64_t CutPlans::arena_bytes() const {
  return between_bytes_ + std::max(head_->arena_bytes(), tail_->arena_bytes());
}

StatusOr<std::vector<Tensor>> CutPlans::Run(const std::vector<Tensor>& inputs,
                                            std::byte* arena,
                                            std::vector<Bindings>& bindings,
                                            ComputePool& pool,
                                            const StopCheck& stopped) const {
  std::byte* const between = arena;
  arena += between_bytes_;
  RETURN_IF_ERROR(head_->RunInto(inputs, batch_, {between}, arena, bindings,
                                 pool, stopped));
  Bindings& at = bindings[0];
  tail_->Begin(arena, at);
  tail_->BindInput(0, between, at);
  std::vector<Tensor> outputs;
  for (const ValueType& type : tail_->OutputTypes()) {
    outputs.push_back(Tensor::Make(type.dtype, type.shape));
    tail_->BindOutput(outputs.size() - 1, outputs.back().bytes(), at);
  }
  RETURN_IF_ERROR(tail_->RunTogether(at, pool, stopped));
  return outputs;
}

}  // namespace millrace::models::graph
