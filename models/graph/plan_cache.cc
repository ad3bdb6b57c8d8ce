#include "models/graph/plan_cache.h"

#include <string>
#include <utility>

#include "models/graph/op.h"
#include "models/graph/passes/batch_rows.h"
#include "models/graph/passes/passes.h"
#include "models/graph/plan/keep_bf16.h"
#include "models/graph/settle.h"

namespace millrace::models::graph {
namespace {

// Inputs of so few integers may decide the course of a graph (a sampling rate,
// a length): where shapes depend on data, plans are made for their values.
constexpr int64_t kMostKeyIntegers = 16;

// The symbol that counts the rows of a batch: that of the first dimension of
// the first input that has one, or -1.
int32_t BatchSymbol(const std::vector<Port>& ports) {
  for (const Port& port : ports) {
    if (!port.dims.empty()) return port.dims[0].symbol;
  }
  return -1;
}

bool HasRows(const Port& port, int32_t symbol) {
  return !port.dims.empty() && port.dims[0].symbol == symbol;
}

}  // namespace

bool PlanCache::IsKeyed(const Tensor& tensor) const {
  return by_value_ && tensor.dtype() == DType::kI64 &&
         tensor.num_elements() <= kMostKeyIntegers;
}

PlanCache::Key PlanCache::KeyOf(const std::vector<Tensor>& inputs,
                                bool whole) const {
  Key key = {whole};
  for (const Tensor& input : inputs) {
    key.push_back(input.shape().rank());
    key.insert(key.end(), input.shape().begin(), input.shape().end());
    if (!IsKeyed(input)) continue;
    const auto* values = input.data<int64_t>();
    key.insert(key.end(), values, values + input.num_elements());
  }
  return key;
}

StatusOr<const Prepared*> PlanCache::For(const std::vector<Tensor>& inputs,
                                         bool whole) {
  if (interprets_) return nullptr;
  const Key key = KeyOf(inputs, whole);
  for (auto kept = kept_.begin(); kept != kept_.end(); ++kept) {
    if (kept->key != key) continue;
    kept_.splice(kept_.begin(), kept_, kept);
    return &kept_.front().prepared;
  }
  Key row_key;
  auto prepared = Prepare(inputs, whole, row_key);
  if (!prepared.ok() && IsNeedsBytes(prepared.status())) {
    kept_.clear();
    if (by_value_) {
      interprets_ = true;
      return nullptr;
    }
    by_value_ = true;
    return For(inputs, whole);
  }
  RETURN_IF_ERROR(prepared.status());
  while (static_cast<int32_t>(kept_.size()) >= options_.max_plans) {
    kept_.pop_back();
  }
  kept_.push_front({key, std::move(row_key), *std::move(prepared)});
  return &kept_.front().prepared;
}

StatusOr<Graph> PlanCache::OptimisedFor(
    const std::vector<ValueType>& types,
    const std::vector<const Tensor*>& values) const {
  ASSIGN_OR_RETURN(Graph settled, Settle(graph_, types, values));
  ASSIGN_OR_RETURN(Graph optimised, Optimise(std::move(settled)));
  if (kernels_.bf16 != nullptr) {
    options_.keep_bf16 ? KeepBf16(optimised) : RoundAsKept(optimised);
  }
  return optimised;
}

StatusOr<Prepared> PlanCache::Prepare(const std::vector<Tensor>& inputs,
                                      bool whole, Key& row_key) {
  std::vector<ValueType> types;
  std::vector<const Tensor*> known;
  for (const Tensor& input : inputs) {
    types.push_back({input.dtype(), input.shape()});
    known.push_back(IsKeyed(input) ? &input : nullptr);
  }
  // A plan outlives the request that it was made for.
  std::vector<Tensor> copies;
  copies.reserve(known.size());
  for (const Tensor*& value : known) {
    if (value != nullptr) value = &copies.emplace_back(value->Copy());
  }
  ASSIGN_OR_RETURN(const Graph optimised, OptimisedFor(types, known));
  Prepared prepared;
  if (!whole && options_.rows_apart && !by_value_) {
    const int32_t symbol = BatchSymbol(graph_.inputs);
    for (size_t i = 0; i < types.size() && symbol >= 0; ++i) {
      if (HasRows(graph_.inputs[i], symbol)) {
        prepared.batch = types[i].shape[0];
      }
    }
    ASSIGN_OR_RETURN(prepared.rows,
                     RowsFor(optimised, types, prepared.batch, row_key));
    if (prepared.rows != nullptr) {
      RETURN_IF_ERROR(CheckBytes(prepared.rows->one(),
                                 prepared.rows->arena_bytes(), prepared.batch));
      return prepared;
    }
  }
  ASSIGN_OR_RETURN(prepared.whole,
                   Plan::Create(optimised, options_.num_members, kernels_,
                                options_.joins, packed_));
  RETURN_IF_ERROR(
      CheckBytes(*prepared.whole, prepared.whole->arena_bytes(), 1));
  return prepared;
}

Status PlanCache::CheckBytes(const Plan& plan, int64_t arena_bytes,
                             int64_t batch) const {
  if (options_.max_bytes == 0) return OkStatus();
  // Sizes are foreign: each is below 2^51 bytes, their sum is cut before it
  // could overflow.
  int64_t results = 0;
  for (const ValueType& type : plan.OutputTypes()) {
    results += type.shape.num_elements() * DTypeBytes(type.dtype);
    if (results > options_.max_bytes / batch) break;
  }
  if (arena_bytes <= options_.max_bytes &&
      results <= (options_.max_bytes - arena_bytes) / batch) {
    return OkStatus();
  }
  return ResourceExhausted(
      "inputs of these sizes need " + std::to_string(arena_bytes >> 20) +
      " MiB between layers and " + std::to_string((results >> 20) * batch) +
      " MiB or more for results; the limit is " +
      std::to_string(options_.max_bytes >> 20) +
      " MiB, half of the memory limit: send fewer rows or smaller ones");
}

StatusOr<std::shared_ptr<RowPlans>> PlanCache::RowsFor(
    const Graph& optimised, std::vector<ValueType> types, int64_t batch,
    Key& row_key) {
  if (batch < 2 || batch < options_.num_members) return nullptr;
  const int32_t symbol = BatchSymbol(graph_.inputs);
  const Symbol& range = graph_.symbols[static_cast<size_t>(symbol)];
  if (range.min > 1 || range.max <= batch) return nullptr;
  std::vector<bool> has_rows;
  for (const Port& port : graph_.inputs) {
    has_rows.push_back(HasRows(port, symbol));
  }
  const auto of_rows = [&](int64_t rows) {
    for (size_t i = 0; i < types.size(); ++i) {
      if (has_rows[i]) types[i].shape[0] = rows;
    }
    return OptimisedFor(types, {});
  };
  const auto more = of_rows(batch + 1);
  if (!more.ok() || !RowsAreIndependent(optimised, *more, batch, has_rows)) {
    return nullptr;
  }
  const auto one = of_rows(1);
  if (!one.ok()) return nullptr;
  for (const ValueType& type : types) {
    row_key.push_back(type.shape.rank());
    row_key.insert(row_key.end(), type.shape.begin(), type.shape.end());
  }
  for (const Kept& kept : kept_) {
    if (kept.row_key == row_key) return kept.prepared.rows;
  }
  ASSIGN_OR_RETURN(
      std::unique_ptr<RowPlans> rows,
      RowPlans::Create(*one, std::move(has_rows), options_.num_members,
                       kernels_, options_.joins, packed_));
  if (!rows->MovesMoreThanWeights()) return nullptr;
  return std::shared_ptr<RowPlans>(std::move(rows));
}

}  // namespace millrace::models::graph
