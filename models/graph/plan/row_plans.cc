#include "models/graph/plan/row_plans.h"

#include <algorithm>
#include <utility>

namespace millrace::models::graph {

StatusOr<std::unique_ptr<RowPlans>> RowPlans::Create(
    const Graph& one, std::vector<bool> has_rows, int num_members,
    const Kernels& kernels, bool joins, PackedWeights& packed) {
  std::unique_ptr<RowPlans> plans(new RowPlans());
  plans->has_rows_ = std::move(has_rows);
  for (int i = 0; i < num_members; ++i) {
    ASSIGN_OR_RETURN(plans->alone_.emplace_back(),
                     Plan::Create(one, 1, kernels, joins, packed));
  }
  ASSIGN_OR_RETURN(plans->together_,
                   Plan::Create(one, num_members, kernels, joins, packed));
  return plans;
}

int64_t RowPlans::arena_bytes() const {
  return std::max(
      static_cast<int64_t>(alone_.size()) * alone_[0]->arena_bytes(),
      together_->arena_bytes());
}

StatusOr<std::vector<Tensor>> RowPlans::Run(const std::vector<Tensor>& inputs,
                                            int64_t batch, std::byte* arena,
                                            ComputePool& pool,
                                            const StopCheck& stopped) {
  std::vector<Tensor> outputs;
  for (const ValueType& type : together_->OutputTypes()) {
    Shape shape = type.shape;
    shape[0] *= batch;
    outputs.push_back(Tensor::Make(type.dtype, shape));
  }
  const auto bind = [&](int64_t row, Plan& plan, std::byte* at) {
    for (size_t i = 0; i < inputs.size(); ++i) {
      const int64_t each = has_rows_[i] ? inputs[i].num_bytes() / batch : 0;
      plan.BindInput(i, inputs[i].bytes() + row * each);
    }
    for (size_t i = 0; i < outputs.size(); ++i) {
      plan.BindOutput(
          i, outputs[i].bytes() + row * (outputs[i].num_bytes() / batch));
    }
    plan.BindArena(at);
  };
  const auto count = static_cast<int64_t>(alone_.size());
  const int64_t each = batch / count;
  std::vector<Status> failures(alone_.size());
  pool.Run([&](Worker& worker) {
    const auto member = static_cast<size_t>(worker.index());
    Plan& plan = *alone_[member];
    for (int64_t i = 0; i < each && failures[member].ok(); ++i) {
      bind(worker.index() * each + i, plan,
           arena + worker.index() * plan.arena_bytes());
      failures[member] = plan.RunAlone(stopped);
    }
  });
  for (Status& failure : failures) RETURN_IF_ERROR(std::move(failure));
  for (int64_t row = each * count; row < batch; ++row) {
    bind(row, *together_, arena);
    RETURN_IF_ERROR(together_->RunTogether(pool, stopped));
  }
  return outputs;
}

}  // namespace millrace::models::graph
