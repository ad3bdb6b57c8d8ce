#include "models/graph/plan/plan.h"
#include "models/graph/passes/fused.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "config/base/out_of_memory.h"
#include "models/graph/passes/alias.h"
#include "models/graph/plan/joined.h"
#include "models/graph/plan/lower.h"
#include "models/graph/plan/memory_plan.h"
#include "models/graph/plan/node_bytes.h"
#include "models/graph/plan/stages.h"

namespace millrace::models::graph {
namespace {

// Copies a value to the caller's place, when it lies elsewhere.
class CopyStep : public Step {
 public:
  CopyStep(Slot from, Slot to, int64_t bytes)
      : from_(from), to_(to), bytes_(bytes) {}

  Status Run(const Slots& slots, const Team& team) const override {
    const auto [begin, end] = team.Share(bytes_, 64);
    std::memcpy(slots.at[to_] + begin, slots.at[from_] + begin,
                static_cast<size_t>(end - begin));
    return OkStatus();
  }
  std::string Text() const override {
    return "Copy " + std::to_string(bytes_) + " bytes";
  }

 private:
  const Slot from_;
  const Slot to_;
  const int64_t bytes_;
};

// Steps may allocate, on any member of the team.
Status RunStep(const Step& step, const Slots& slots, const Team& team) {
  return CatchOutOfMemory([&] { return step.Run(slots, team); });
}

}  // namespace

class PlanBuilder {
 public:
  PlanBuilder(const Graph& graph, int num_members, const Kernels& kernels,
              bool joins)
      : graph_(graph),
        // oneDNN needs dense rows, and whether rows are joined may depend on
        // the batch, on which no choice of kernels may.
        places_(joins && kernels.onednn == nullptr ? JoinValues(graph, kernels)
                                                   : Apart(graph)),
        has_bf16_(kernels.bf16 != nullptr),
        num_members_(num_members),
        slot_of_(graph.values.size(), kNoSlot),
        plan_(new Plan(num_members)) {}

  StatusOr<std::unique_ptr<Plan>> Build(const Kernels& kernels,
                                        WeightPacker& packed) {
    for (const Port& port : graph_.inputs) {
      plan_->inputs_.push_back(SlotFor(port.value));
      SetElsewhere(plan_->inputs_.back());
    }
    for (const Node& node : graph_.nodes) AssignSlots(node);
    FindParts();
    const LowerContext context{graph_,       slot_of_,      places_,
                               num_members_, kernels.dense, kernels.int8,
                               kernels.bf16, packed,        kernels.onednn};
    for (const Node& node : graph_.nodes) {
      if (node.Is("Concat")) MakeOf(node);
      if (IsAlias(node, graph_) || IsJoined(node, graph_, places_)) {
        BindLate(node, {});
        continue;
      }
      ASSIGN_OR_RETURN(std::unique_ptr<Step> step, Lower(node, context));
      BindLate(node, packed.TakeAsked());
      for (const ValueId id : node.inputs) {
        if (id != kNoValue) step->reads.push_back(context.slot(id));
      }
      for (const ValueId id : node.outputs) {
        step->writes.push_back(context.slot(id));
      }
      const double constants = NodeBytes(graph_, node, true, has_bf16_);
      const double values = NodeBytes(graph_, node, false, has_bf16_);
      step->name = node.name;
      step->constant_bytes = std::min(constants, ReadAtMost(node));
      step->bytes = step->constant_bytes + values;
      plan_->constant_bytes_ += constants;
      plan_->value_bytes_ += values;
      plan_->steps_.push_back(std::move(step));
    }
    for (const Port& port : graph_.outputs) BindOutput(port.value);
    for (const auto& step : plan_->steps_) ReadParts(*step);
    plan_->places_ = PlanStages(plan_->steps_, num_members_);
    plan_->one_member_ =
        std::all_of(plan_->places_.begin(), plan_->places_.end(),
                    [](const StepPlace& place) { return place.member == 0; });
    PlaceInArena();
    return std::move(plan_);
  }

 private:
  // Late constants are copied when their bytes are asked for: by steps that
  // read them, but not by those that read what they are packed to.
  void BindLate(const Node& node, const std::vector<const Tensor*>& packed) {
    for (const ValueId id : node.inputs) {
      if (id == kNoValue) continue;
      const Tensor* constant = graph_.value(id).constant.get();
      if (constant == nullptr ||
          std::find(packed.begin(), packed.end(), constant) != packed.end()) {
        continue;
      }
      Bind(SlotFor(id), *constant);
    }
  }
  void Bind(Slot slot, const Tensor& constant) {
    plan_->constant_at_[static_cast<size_t>(slot)] =
        const_cast<std::byte*>(constant.bytes());
  }

  // A constant's slot is made when the constant is first read.
  Slot SlotFor(ValueId id) {
    Slot& slot = slot_of_[static_cast<size_t>(id)];
    if (slot != kNoSlot) return slot;
    slot = NewSlot();
    if (const auto& constant = graph_.value(id).constant) {
      if (!constant->is_late()) Bind(slot, *constant);
      plan_->constants_.push_back(constant);
      SetElsewhere(slot);
    }
    return slot;
  }

  Slot NewSlot() {
    plan_->constant_at_.push_back(nullptr);
    elsewhere_.push_back(false);
    return static_cast<Slot>(plan_->constant_at_.size() - 1);
  }

  void AssignSlots(const Node& node) {
    for (const ValueId id : node.inputs) {
      if (id != kNoValue) SlotFor(id);
    }
    if (IsAlias(node, graph_)) {
      slot_of_[static_cast<size_t>(node.outputs[0])] = SlotFor(node.inputs[0]);
      return;
    }
    for (const ValueId id : node.outputs) SlotFor(id);
  }

  // ---- values that are parts of others ----
  void FindParts() {
    storage_of_.resize(plan_->constant_at_.size());
    std::iota(storage_of_.begin(), storage_of_.end(), Slot{0});
    for (size_t id = 0; id < places_.size(); ++id) {
      const Place& place = places_[id];
      if (place.storage == kNoValue || slot_of_[id] == kNoSlot) continue;
      const Slot slot = slot_of_[id];
      const Slot storage = slot_of_[static_cast<size_t>(place.storage)];
      if (StorageOf(slot) == storage) continue;  // another name of it
      storage_of_[static_cast<size_t>(slot)] = storage;
      const int64_t each = DTypeBytes(graph_.values[id].type->dtype);
      plan_->parts_.push_back({slot, storage, place.offset * each});
    }
  }
  // Slots that are made later are no parts.
  Slot StorageOf(Slot slot) const {
    const auto at = static_cast<size_t>(slot);
    return at < storage_of_.size() ? storage_of_[at] : slot;
  }
  // What is read of a Concat's result was written, in part, as its operands.
  void MakeOf(const Node& node) {
    const Slot y = SlotFor(node.outputs[0]);
    for (const ValueId id : node.inputs) {
      const Slot x = SlotFor(id);
      if (StorageOf(x) != StorageOf(y)) continue;
      std::set<Slot>& made_of = made_of_[y];
      made_of.insert(x);
      const auto found = made_of_.find(x);
      if (found == made_of_.end()) continue;
      made_of.insert(found->second.begin(), found->second.end());
    }
  }
  void ReadParts(Step& step) const {
    std::set<Slot> reads(step.reads.begin(), step.reads.end());
    for (const Slot slot : step.reads) {
      const auto found = made_of_.find(slot);
      if (found == made_of_.end()) continue;
      reads.insert(found->second.begin(), found->second.end());
    }
    step.reads.assign(reads.begin(), reads.end());
  }

  // Of constants.
  double ReadAtMost(const Node& node) const {
    if (node.Is("EmbeddingBag")) {
      const Shape& table = graph_.value(node.inputs[0]).type->shape;
      const Shape& indices = graph_.value(node.inputs[1]).type->shape;
      return static_cast<double>(BytesOf(node.inputs[0])) /
             static_cast<double>(std::max<int64_t>(table[0], 1)) *
             static_cast<double>(indices.num_elements());
    }
    if (!node.op->facts.looks_up) {
      return std::numeric_limits<double>::infinity();
    }
    return static_cast<double>(BytesOf(node.outputs[0]));
  }
  int64_t BytesOf(ValueId id) const { return ValueBytes(graph_, id); }

  void BindOutput(ValueId id) {
    const ValueType& type = *graph_.value(id).type;
    Slot slot = SlotFor(id);
    // Inputs and constants stay where they are, and two results are never one
    // storage.
    if (IsElsewhere(slot)) {
      if (const auto& constant = graph_.value(id).constant) {
        Bind(slot, *constant);
      }
      const Slot copy = NewSlot();
      const int64_t bytes = BytesOf(id);
      auto step = std::make_unique<CopyStep>(slot, copy, bytes);
      step->reads = {slot};
      step->writes = {copy};
      plan_->steps_.push_back(std::move(step));
      slot = copy;
    }
    SetElsewhere(slot);
    plan_->outputs_.push_back({slot, type});
  }

  bool IsElsewhere(Slot slot) const {
    return elsewhere_[static_cast<size_t>(slot)];
  }
  void SetElsewhere(Slot slot) { elsewhere_[static_cast<size_t>(slot)] = true; }

  void PlaceInArena() {
    const size_t num_slots = plan_->constant_at_.size();
    std::vector<Lifetime> lives(num_slots);
    for (size_t id = 0; id < graph_.values.size(); ++id) {
      const Slot slot = slot_of_[id];
      if (slot == kNoSlot || !graph_.values[id].type) continue;
      lives[static_cast<size_t>(slot)].bytes =
          BytesOf(static_cast<ValueId>(id));
    }
    // Steps of one stage run at the same time.
    std::vector<bool> seen(num_slots);
    for (size_t i = 0; i < plan_->steps_.size(); ++i) {
      const int32_t stage = plan_->places_[i].stage;
      const auto touch = [&](Slot part) {
        const Slot slot = StorageOf(part);
        Lifetime& life = lives[static_cast<size_t>(slot)];
        if (!seen[static_cast<size_t>(slot)]) {
          life.first = stage;
          seen[static_cast<size_t>(slot)] = true;
        }
        life.last = stage;
      };
      for (const Slot slot : plan_->steps_[i]->reads) touch(slot);
      for (const Slot slot : plan_->steps_[i]->writes) touch(slot);
    }
    std::vector<Lifetime> placed;
    std::vector<size_t> slots;
    for (size_t slot = 0; slot < num_slots; ++slot) {
      if (!seen[slot] || IsElsewhere(static_cast<Slot>(slot))) continue;
      placed.push_back(lives[slot]);
      slots.push_back(slot);
    }
    for (size_t i = 0; i < plan_->steps_.size(); ++i) {
      const int32_t stage = plan_->places_[i].stage;
      placed.push_back({plan_->steps_[i]->scratch_bytes(), stage, stage});
    }
    const MemoryPlan memory = PlanMemory(placed);
    plan_->arena_bytes_ = (memory.bytes + 63) / 64 * 64;
    plan_->offsets_.assign(num_slots, -1);
    for (size_t i = 0; i < slots.size(); ++i) {
      plan_->offsets_[slots[i]] = memory.offsets[i];
    }
    plan_->scratch_offsets_.assign(
        memory.offsets.begin() + static_cast<int64_t>(slots.size()),
        memory.offsets.end());
  }

  const Graph& graph_;
  const std::vector<Place> places_;  // of each value
  const bool has_bf16_;
  const int num_members_;
  std::vector<Slot> slot_of_;     // of each value
  std::vector<bool> elsewhere_;   // of each storage: not in the arena
  std::vector<Slot> storage_of_;  // of each slot: itself, or what it is part of
  std::map<Slot, std::set<Slot>> made_of_;  // of results of Concats: parts
  std::unique_ptr<Plan> plan_;
};

StatusOr<std::unique_ptr<Plan>> Plan::Create(const Graph& graph,
                                             int num_members,
                                             const Kernels& kernels, bool joins,
                                             WeightPacker& packed) {
  return PlanBuilder(graph, num_members, kernels, joins).Build(kernels, packed);
}

StatusOr<std::vector<Tensor>> Plan::Run(const std::vector<Tensor>& inputs,
                                        std::byte* arena, Bindings& at,
                                        ComputePool& pool,
                                        const StopCheck& stopped,
                                        Trace* trace) const {
  CHECK(inputs.size() == inputs_.size(), "one tensor for each input");
  Begin(arena, at);
  at.elements.assign(at.at.size(), -1);
  for (size_t i = 0; i < inputs.size(); ++i) {
    BindInput(i, inputs[i].bytes(), at);
    at.elements[static_cast<size_t>(inputs_[i])] = inputs[i].num_elements();
  }
  std::vector<Tensor> outputs;
  for (const Binding& output : outputs_) {
    outputs.push_back(Tensor::Make(output.type.dtype, output.type.shape));
    BindOutput(outputs.size() - 1, outputs.back().bytes(), at);
  }
  RETURN_IF_ERROR(RunTogether(at, pool, stopped, trace));
  return outputs;
}

std::vector<ValueType> Plan::OutputTypes() const {
  std::vector<ValueType> types;
  for (const Binding& output : outputs_) types.push_back(output.type);
  return types;
}

void Plan::Begin(std::byte* arena, Bindings& at) const {
  at.at = constant_at_;
  at.elements.clear();
  at.arena = arena;
  for (size_t slot = 0; slot < offsets_.size(); ++slot) {
    if (offsets_[slot] >= 0) at.at[slot] = arena + offsets_[slot];
  }
}

void Plan::BindInput(size_t i, const std::byte* bytes, Bindings& at) const {
  // No step writes to the slot of an input.
  at.at[static_cast<size_t>(inputs_[i])] = const_cast<std::byte*>(bytes);
}

void Plan::BindOutput(size_t i, std::byte* bytes, Bindings& at) const {
  at.at[static_cast<size_t>(outputs_[i].slot)] = bytes;
}

void Plan::BindParts(Bindings& at) const {
  for (const Part& part : parts_) {
    at.at[static_cast<size_t>(part.slot)] =
        at.at[static_cast<size_t>(part.storage)] + part.offset;
  }
}

Status Plan::RunAlone(Bindings& at, const StopCheck& stopped) const {
  BindParts(at);
  for (size_t i = 0; i < steps_.size(); ++i) {
    if (stopped) RETURN_IF_ERROR(stopped());
    RETURN_IF_ERROR(RunStep(
        *steps_[i], {at.at.data(), at.arena + scratch_offsets_[i]}, Team{}));
  }
  return OkStatus();
}

void Plan::BeginTrace(const ComputePool& pool, Trace& trace) const {
  trace = {};
  std::vector<int32_t> writer(constant_at_.size(), -1);
  for (size_t i = 0; i < steps_.size(); ++i) {
    const Step& step = *steps_[i];
    std::set<int32_t> sources;
    for (const Slot slot : step.reads) {
      if (const int32_t by = writer[static_cast<size_t>(slot)]; by >= 0) {
        sources.insert(by);
      }
    }
    for (const Slot slot : step.writes) {
      writer[static_cast<size_t>(slot)] = static_cast<int32_t>(i);
    }
    trace.steps.push_back({step.Text(),
                           step.name,
                           step.macs(),
                           step.bytes,
                           step.constant_bytes,
                           {sources.begin(), sources.end()},
                           step.factors(),
                           step.onednn_shape()});
  }
  trace.spans.assign(static_cast<size_t>(pool.size()),
                     std::vector<StepSpan>(steps_.size()));
}

Status Plan::RunTogether(Bindings& at, ComputePool& pool,
                         const StopCheck& stopped, Trace* trace) const {
  BindParts(at);
  if (trace != nullptr) BeginTrace(pool, *trace);
  const auto begun = std::chrono::steady_clock::now();
  const auto elapsed_ns = [&] {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
               std::chrono::steady_clock::now() - begun)
        .count();
  };
  // The stage at which the work ends early. A member that is ahead may already
  // fail in the stage behind a barrier: so all compare stages. Relaxed: the
  // barrier orders it.
  constexpr int32_t kNever = std::numeric_limits<int32_t>::max();
  std::atomic<int32_t> failed_at{kNever};
  std::vector<Status> failures(static_cast<size_t>(pool.size()));
  const auto run = [&](const Team& team, Worker* worker) {
    Status& failure = failures[static_cast<size_t>(team.index)];
    for (size_t i = 0; i < steps_.size(); ++i) {
      const StepPlace place = places_[i];
      if (stopped && team.index == 0 && failure.ok()) failure = stopped();
      if (failure.ok() &&
          (place.member == StepPlace::kTeam || place.member == team.index)) {
        const Slots slots{at.at.data(), at.arena + scratch_offsets_[i],
                          at.elements.empty() ? nullptr : at.elements.data()};
        const int64_t begin_ns = trace != nullptr ? elapsed_ns() : 0;
        failure = RunStep(*steps_[i], slots, team);
        if (trace != nullptr) {
          trace->spans[static_cast<size_t>(team.index)][i] = {begin_ns,
                                                              elapsed_ns()};
        }
      }
      if (!failure.ok()) {
        failed_at.store(place.stage, std::memory_order_relaxed);
      }
      const bool last = i + 1 == steps_.size();
      if (last || places_[i + 1].stage == place.stage) continue;
      if (worker != nullptr) worker->Barrier();
      if (failed_at.load(std::memory_order_relaxed) <= place.stage) return;
    }
  };
  if (num_members_ == 1 || one_member_) {
    run(Team{}, nullptr);
  } else {
    pool.Run([&](Worker& worker) {
      run(Team{worker.index(), worker.count()}, &worker);
    });
  }
  if (trace != nullptr) trace->run_ns = elapsed_ns();
  for (Status& failure : failures) RETURN_IF_ERROR(std::move(failure));
  return OkStatus();
}

int64_t Plan::held_bytes(
    const std::function<bool(const Tensor*)>& is_shared) const {
  // A step with its attributes, slots and text, as most are.
  constexpr int64_t kStepBytes = 1024;
  const auto num_slots = static_cast<int64_t>(constant_at_.size());
  int64_t bytes = num_slots * static_cast<int64_t>(2 * sizeof(int64_t));
  for (const auto& step : steps_) bytes += kStepBytes + step->held_bytes();
  for (const auto& constant : constants_) {
    if (!is_shared(constant.get())) bytes += constant->num_bytes();
  }
  return bytes;
}

std::string Plan::Text() const {
  std::string text;
  for (const auto& step : steps_) text += step->Text() + "\n";
  return text;
}

}  // namespace millrace::models::graph
