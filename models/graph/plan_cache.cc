#include "models/graph/plan_cache.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "models/graph/infer_and_fold.h"
#include "models/graph/jagged.h"
#include "models/graph/op.h"
#include "models/graph/passes/batch_rows.h"
#include "models/graph/passes/passes.h"
#include "models/graph/plan/cut.h"
#include "models/graph/plan/keep_bf16.h"

namespace millrace::models::graph {
namespace {

// Inputs of so few integers may decide the course of a graph (a sampling rate,
// a length): where shapes depend on data, plans are made for their values.
constexpr int64_t kMostKeyIntegers = 16;

// Plans for jagged features are for so many values, or a power of two above.
constexpr uint64_t kLeastJagged = 64;

// A device's plans, and graphs that are interpreted, take inputs as they are.
std::vector<bool> JaggedInputs(const Graph& graph,
                               const PlanCacheOptions& options) {
  return options.device == nullptr ? HoldsJaggedValues(graph)
                                   : std::vector<bool>(graph.inputs.size());
}

// The symbol that counts the rows of a batch: that of the first dimension of
// the first input that has one, or -1.
int32_t BatchSymbol(const std::vector<Port>& ports) {
  for (const Port& port : ports) {
    if (!port.dims.empty()) return port.dims[0].symbol;
  }
  return -1;
}

std::set<const Tensor*> ConstantsOf(const Graph& graph) {
  std::set<const Tensor*> constants;
  for (const Value& value : graph.values) {
    if (value.constant != nullptr) constants.insert(value.constant.get());
  }
  return constants;
}

// Whether all that the graph touches is so little that one thread is done
// before the others of a team are awake. Each byte is used by few
// multiplications then.
bool IsTiny(const Graph& typed) {
  constexpr double kTinyBytes = 32 << 10;
  double bytes = 0;
  for (const Value& value : typed.values) {
    if (value.constant != nullptr) {
      bytes += static_cast<double>(value.constant->num_bytes());
    } else if (value.type.has_value()) {
      bytes += static_cast<double>(value.type->shape.num_elements()) *
               static_cast<double>(DTypeBytes(value.type->dtype));
    }
  }
  const bool loops =
      std::any_of(typed.nodes.begin(), typed.nodes.end(),
                  [](const Node& node) { return !node.bodies.empty(); });
  return bytes <= kTinyBytes && !loops;
}

bool HasRows(const Port& port, int32_t symbol) {
  return !port.dims.empty() && port.dims[0].symbol == symbol;
}

}  // namespace

double Prepared::ResultBytes() const {
  double bytes = 0;
  for (const ValueType& type : device != nullptr ? device->OutputTypes()
                               : cut != nullptr  ? cut->tail().OutputTypes()
                               : rows != nullptr ? rows->one().OutputTypes()
                                                 : whole->OutputTypes()) {
    bytes += static_cast<double>(type.shape.num_elements()) *
             static_cast<double>(DTypeBytes(type.dtype));
  }
  return rows != nullptr ? bytes * static_cast<double>(batch) : bytes;
}

PlanCache::PlanCache(const Graph& graph, const Kernels& kernels,
                     const PlanCacheOptions& options, WarmBuffer weights)
    : graph_(graph),
      kernels_(kernels),
      options_(options),
      graph_constants_(ConstantsOf(graph)),
      is_jagged_(JaggedInputs(graph, options)),
      packed_(std::move(weights)) {}

int64_t PlanCache::plan_bytes() const {
  MutexLock lock(mu_);
  return kept_bytes_;
}

int64_t PlanCache::num_plans() const {
  MutexLock lock(mu_);
  return static_cast<int64_t>(kept_.size());
}

int64_t PlanCache::HeldBytes(const Prepared& prepared) const {
  const auto is_shared = [&](const Tensor* constant) {
    return graph_constants_.contains(constant);
  };
  if (prepared.device != nullptr) return prepared.device->held_bytes();
  // Row plans of several batches are one: each counts them, so that dropping
  // the others makes no difference.
  if (prepared.cut != nullptr) return prepared.cut->held_bytes(is_shared);
  return prepared.rows != nullptr ? prepared.rows->held_bytes(is_shared)
                                  : prepared.whole->held_bytes(is_shared);
}

std::vector<std::shared_ptr<const Prepared>> PlanCache::TakeOldest() {
  std::vector<std::shared_ptr<const Prepared>> taken;
  while (kept_bytes_ > options_.max_plan_bytes && kept_.size() > 1) {
    kept_bytes_ -= kept_.back().bytes;
    by_key_.erase(kept_.back().key);
    taken.push_back(std::move(kept_.back().prepared));
    kept_.pop_back();
  }
  return taken;
}

bool PlanCache::MayDecideShapes(size_t i, const Tensor& input) const {
  return !is_jagged_[i] && input.dtype() == DType::kI64 &&
         input.num_elements() <= kMostKeyIntegers;
}

Shape PlanCache::PlannedShape(size_t i, const Tensor& input) const {
  if (!is_jagged_[i]) return input.shape();
  const auto values = static_cast<uint64_t>(input.num_elements());
  return {static_cast<int64_t>(std::bit_ceil(std::max(values, kLeastJagged)))};
}

PlanCache::Key PlanCache::KeyOf(const Request& request) const {
  Key key = {request.whole, request.by_value, request.pool.size()};
  for (size_t i = 0; i < request.inputs.size(); ++i) {
    const Tensor& input = request.inputs[i];
    const Shape shape = PlannedShape(i, input);
    key.push_back(shape.rank());
    key.insert(key.end(), shape.begin(), shape.end());
    if (!request.by_value || !MayDecideShapes(i, input)) continue;
    const auto* values = input.data<int64_t>();
    key.insert(key.end(), values, values + input.num_elements());
  }
  return key;
}

std::shared_ptr<const Prepared> PlanCache::Find(const Key& key) {
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) return nullptr;
  kept_.splice(kept_.begin(), kept_, found->second);
  return kept_.front().prepared;
}

std::shared_ptr<const Prepared> PlanCache::KeptTiny(
    const std::vector<Tensor>& inputs, ComputePool& pool) {
  if (!options_.tiny_alone) return nullptr;
  MutexLock lock(mu_);
  if (interprets_) return nullptr;
  auto found = Find(KeyOf({inputs, false, by_value_, pool}));
  return found != nullptr && found->tiny ? found : nullptr;
}

StatusOr<std::shared_ptr<const Prepared>> PlanCache::For(
    const std::vector<Tensor>& inputs, bool whole, ComputePool& pool) {
  Request request{inputs, whole, false, pool};
  while (true) {
    Key key;
    {
      MutexLock lock(mu_);
      if (interprets_) return nullptr;
      request.by_value = by_value_;
      key = KeyOf(request);
      if (auto found = Find(key)) return found;
    }
    Key row_key;
    auto prepared = Prepare(request, row_key);
    if (!prepared.ok() && !IsNeedsBytes(prepared.status())) {
      return prepared.status();
    }
    std::vector<std::shared_ptr<const Prepared>> dropped;  // after the lock
    MutexLock lock(mu_);
    if (!prepared.ok()) {
      kept_.clear();
      by_key_.clear();
      kept_bytes_ = 0;
      (request.by_value ? interprets_ : by_value_) = true;
      continue;
    }
    if (auto found = Find(key)) return found;
    const int64_t bytes = HeldBytes(*prepared);
    kept_.push_front({key, std::move(row_key),
                      std::make_shared<const Prepared>(*std::move(prepared)),
                      bytes});
    by_key_[std::move(key)] = kept_.begin();
    kept_bytes_ += bytes;
    dropped = TakeOldest();
    return kept_.front().prepared;
  }
}

StatusOr<Graph> PlanCache::OptimisedFor(
    const std::vector<ValueType>& types,
    const std::vector<const Tensor*>& values) const {
  ASSIGN_OR_RETURN(Graph typed, InferAndFold(graph_, types, values));
  ASSIGN_OR_RETURN(Graph optimised, Optimise(std::move(typed)));
  if (kernels_.bf16 != nullptr) {
    options_.keep_bf16 ? KeepBf16(optimised) : RoundAsKept(optimised);
  }
  return optimised;
}

StatusOr<Prepared> PlanCache::Prepare(const Request& request, Key& row_key) {
  std::vector<ValueType> types;
  std::vector<const Tensor*> known;
  for (size_t i = 0; i < request.inputs.size(); ++i) {
    const Tensor& input = request.inputs[i];
    types.push_back({input.dtype(), PlannedShape(i, input)});
    const bool keyed = request.by_value && MayDecideShapes(i, input);
    known.push_back(keyed ? &input : nullptr);
  }
  // A plan outlives the request that it was made for.
  std::vector<Tensor> copies;
  copies.reserve(known.size());
  for (const Tensor*& value : known) {
    if (value != nullptr) value = &copies.emplace_back(value->Copy());
  }
  ASSIGN_OR_RETURN(const Graph optimised, OptimisedFor(types, known));
  Prepared prepared;
  if (options_.device != nullptr) {
    WeightPacker packer(packed_, &request.pool);
    ASSIGN_OR_RETURN(
        prepared.device,
        options_.device->NewPlan(optimised, request.pool.size(), kernels_,
                                 packer, [this](const Tensor* constant) {
                                   return graph_constants_.contains(constant);
                                 }));
    return prepared;
  }
  const bool tiny = options_.tiny_alone && IsTiny(optimised);
  if (!request.whole && options_.rows_apart && !request.by_value && !tiny) {
    const int32_t symbol = BatchSymbol(graph_.inputs);
    for (size_t i = 0; i < types.size() && symbol >= 0; ++i) {
      if (HasRows(graph_.inputs[i], symbol)) {
        prepared.batch = types[i].shape[0];
      }
    }
    RETURN_IF_ERROR(
        PrepareRows(optimised, types, request.pool, row_key, prepared));
    if (prepared.rows != nullptr || prepared.cut != nullptr) return prepared;
  }
  prepared.tiny = tiny;
  WeightPacker packer(packed_, &request.pool);
  ASSIGN_OR_RETURN(prepared.whole,
                   Plan::Create(optimised, tiny ? 1 : request.pool.size(),
                                kernels_, options_.joins, packer));
  return prepared;
}

Status PlanCache::PrepareRows(const Graph& optimised,
                              std::vector<ValueType> types, ComputePool& pool,
                              Key& row_key, Prepared& prepared) {
  const int64_t batch = prepared.batch;
  if (batch < 2 || batch < pool.size()) return OkStatus();
  const int32_t symbol = BatchSymbol(graph_.inputs);
  const Symbol& range = graph_.symbols[static_cast<size_t>(symbol)];
  if (range.min > 1 || range.max <= batch) return OkStatus();
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
  if (!more.ok() || !RowsMayGoApart(optimised, *more, batch, has_rows)) {
    return OkStatus();
  }
  const auto one = of_rows(1);
  if (!one.ok()) return OkStatus();
  row_key.push_back(pool.size());
  for (const ValueType& type : types) {
    row_key.push_back(type.shape.rank());
    row_key.insert(row_key.end(), type.shape.begin(), type.shape.end());
  }
  const Cut of_one = ChooseCut(*one, kernels_.bf16 != nullptr);
  const Cut cut = SameCut(*one, of_one, optimised, batch);
  const bool is_cut = cut.nodes > 0;
  WeightPacker packer(packed_, &pool);
  std::shared_ptr<const RowPlans> rows = KeptRows(row_key, is_cut);
  if (rows == nullptr) {
    ASSIGN_OR_RETURN(
        rows, RowPlans::Create(is_cut ? HeadOf(*one, of_one) : one->Copy(),
                               std::move(has_rows), pool.size(), kernels_,
                               options_.joins, packer));
  }
  if (is_cut) {
    ASSIGN_OR_RETURN(
        prepared.cut,
        CutPlans::Create(std::move(rows), optimised, cut, batch, pool.size(),
                         kernels_, options_.joins, packer));
  } else if (rows->MovesMoreThanWeights()) {
    prepared.rows = std::move(rows);
  }
  return OkStatus();
}

std::shared_ptr<const RowPlans> PlanCache::KeptRows(const Key& row_key,
                                                    bool cut) {
  MutexLock lock(mu_);
  for (const Kept& kept : kept_) {
    if (kept.row_key != row_key) continue;
    const Prepared& prepared = *kept.prepared;
    if (!cut && prepared.rows != nullptr) return prepared.rows;
    if (cut && prepared.cut != nullptr) return prepared.cut->head();
  }
  return nullptr;
}

}  // namespace millrace::models::graph
