#include "models/graph/plan/row_plans.h"

#include <algorithm>
#include <utility>

namespace millrace::models::graph {

StatusOr<std::unique_ptr<RowPlans>> RowPlans::Create(
    const Graph& one, std::vector<bool> has_rows, int num_members,
    const Kernels& kernels, bool joins, WeightPacker& packed) {
  std::unique_ptr<RowPlans> plans(new RowPlans());
  plans->has_rows_ = std::move(has_rows);
  plans->num_members_ = num_members;
  ASSIGN_OR_RETURN(plans->alone_, Plan::Create(one, 1, kernels, joins, packed));
  ASSIGN_OR_RETURN(plans->together_,
                   Plan::Create(one, num_members, kernels, joins, packed));
  return plans;
}

int64_t RowPlans::arena_bytes() const {
  return std::max(num_members_ * alone_->arena_bytes(),
                  together_->arena_bytes());
}

StatusOr<std::vector<Tensor>> RowPlans::Run(const std::vector<Tensor>& inputs,
                                            int64_t batch, std::byte* arena,
                                            std::vector<Bindings>& bindings,
                                            ComputePool& pool,
                                            const StopCheck& stopped) const {
  std::vector<Tensor> outputs;
  std::vector<std::byte*> to;
  for (const ValueType& type : together_->OutputTypes()) {
    Shape shape = type.shape;
    shape[0] *= batch;
    outputs.push_back(Tensor::Make(type.dtype, shape));
    to.push_back(outputs.back().bytes());
  }
  RETURN_IF_ERROR(RunInto(inputs, batch, to, arena, bindings, pool, stopped));
  return outputs;
}

Status RowPlans::RunInto(const std::vector<Tensor>& inputs, int64_t batch,
                         const std::vector<std::byte*>& outputs,
                         std::byte* arena, std::vector<Bindings>& bindings,
                         ComputePool& pool, const StopCheck& stopped) const {
  std::vector<int64_t> output_bytes;  // of a row
  for (const ValueType& type : together_->OutputTypes()) {
    output_bytes.push_back(type.shape.num_elements() * DTypeBytes(type.dtype));
  }
  const auto bind = [&](int64_t row, const Plan& plan, Bindings& at) {
    for (size_t i = 0; i < inputs.size(); ++i) {
      const int64_t each = has_rows_[i] ? inputs[i].num_bytes() / batch : 0;
      plan.BindInput(i, inputs[i].bytes() + row * each, at);
    }
    for (size_t i = 0; i < outputs.size(); ++i) {
      plan.BindOutput(i, outputs[i] + row * output_bytes[i], at);
    }
  };
  const int64_t each = batch / num_members_;
  bindings.resize(static_cast<size_t>(num_members_));
  std::vector<Status> failures(static_cast<size_t>(num_members_));
  pool.Run([&](Worker& worker) {
    const auto member = static_cast<size_t>(worker.index());
    Bindings& at = bindings[member];
    alone_->Begin(arena + worker.index() * alone_->arena_bytes(), at);
    for (int64_t i = 0; i < each && failures[member].ok(); ++i) {
      bind(worker.index() * each + i, *alone_, at);
      failures[member] = alone_->RunAlone(at, stopped);
    }
  });
  for (Status& failure : failures) RETURN_IF_ERROR(std::move(failure));
  together_->Begin(arena, bindings[0]);
  for (int64_t row = each * num_members_; row < batch; ++row) {
    bind(row, *together_, bindings[0]);
    RETURN_IF_ERROR(together_->RunTogether(bindings[0], pool, stopped));
  }
  return OkStatus();
}

}  // namespace millrace::models::graph
