// How a plan on a GPU is made: each node goes to the device if there is a
// kernel for it; copies are put in where a value is needed on the other side;
// then values get places in two arenas.
#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "models/graph/cuda/cuda_plan.h"
#include "models/graph/cuda/kept_formats.h"
#include "models/graph/passes/alias.h"
#include "models/graph/plan/joined.h"
#include "models/graph/plan/lower.h"
#include "models/graph/plan/memory_plan.h"

namespace millrace::models::graph {

class CudaPlanBuilder {
 public:
  explicit CudaPlanBuilder(const CudaPlan::Parts& parts)
      : parts_(parts),
        graph_(parts.graph),
        apart_(Apart(parts.graph)),
        slot_of_(parts.graph.values.size(), kNoSlot),
        plan_(new CudaPlan) {}

  StatusOr<std::unique_ptr<const DevicePlan>> Build() {
    plan_->device_ = parts_.device;
    plan_->num_members_ = parts_.num_members;
    for (const Port& port : graph_.inputs) {
      plan_->inputs_.push_back(SlotFor(port.value));
      sides_[At(plan_->inputs_.back())].on_host = true;
      sides_[At(plan_->inputs_.back())].is_elsewhere = true;
    }
    for (const Node& node : graph_.nodes) AssignSlots(node);
    for (const Port& port : graph_.outputs) SlotFor(port.value);
    ChooseFormats();
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      if (IsAlias(graph_.nodes[i], graph_)) continue;
      RETURN_IF_ERROR(Add(i));
    }
    for (const Port& port : graph_.outputs) AddOutput(port.value);
    RETURN_IF_ERROR(UploadConstants());
    PlaceValues();
    constexpr int64_t kActionBytes = 1024;
    plan_->held_bytes_ +=
        kActionBytes * static_cast<int64_t>(plan_->actions_.size());
    return std::unique_ptr<const DevicePlan>(std::move(plan_));
  }

 private:
  using Kind = CudaPlan::Kind;
  using Action = CudaPlan::Action;
  // Of a storage.
  struct Side {
    std::shared_ptr<const Tensor> constant;
    bool is_elsewhere = false;  // on the host: a constant, or an input
    bool on_host = false;       // so far
    bool on_device = false;
    int64_t bytes = 0;
    int32_t host_action = -1;  // that put it there
    int32_t device_action = -1;
    Lifetime host_life;  // in actions
    Lifetime device_life;
  };

  static size_t At(Slot slot) { return static_cast<size_t>(slot); }
  int32_t Now() const { return static_cast<int32_t>(plan_->actions_.size()); }

  Slot SlotFor(ValueId id) {
    Slot& slot = slot_of_[static_cast<size_t>(id)];
    if (slot != kNoSlot) return slot;
    slot = static_cast<Slot>(sides_.size());
    Side& side = sides_.emplace_back();
    const Value& value = graph_.value(id);
    if (value.type) {
      side.bytes =
          value.type->shape.num_elements() * DTypeBytes(value.type->dtype);
    }
    if (value.constant != nullptr) {
      side.constant = value.constant;
      side.is_elsewhere = side.on_host = true;
      plan_->constants_.push_back(value.constant);
      if (!parts_.is_shared(value.constant.get())) {
        plan_->held_bytes_ += value.constant->num_bytes();
      }
    }
    return slot;
  }
  void AssignSlots(const Node& node) {
    for (const ValueId id : node.inputs) {
      if (id != kNoValue) SlotFor(id);
    }
    if (IsAlias(node, graph_)) {
      slot_of_[static_cast<size_t>(node.outputs[0])] = SlotFor(node.inputs[0]);
      return;
    }
    for (const ValueId id : node.outputs) {
      if (id != kNoValue) SlotFor(id);
    }
  }

  MaybeStep Lowered(const Node& node) {
    return LowerToDevice(
        node, {graph_, slot_of_, plan_->formats_, parts_.precision,
               parts_.weights.byte_sums(), parts_.blas, parts_.conv});
  }

  void ChooseFormats() {
    on_device_.resize(graph_.nodes.size());
    const cuda::GraphFormat narrow = NarrowFormatOf(parts_.precision);
    plan_->narrow_name_ = FormatName(narrow);
    for (size_t i = 0; IsNarrow(narrow) && i < on_device_.size(); ++i) {
      const Node& node = graph_.nodes[i];
      on_device_[i] = !IsAlias(node, graph_) && Lowered(node).has_value();
    }
    plan_->formats_ = KeptFormats(
        {graph_, slot_of_, sides_.size(), on_device_, parts_.precision});
    for (size_t slot = 0; slot < sides_.size(); ++slot) {
      if (IsNarrow(plan_->formats_[slot])) sides_[slot].bytes /= 2;
    }
  }
  bool IsNarrowSlot(Slot slot) const {
    return IsNarrow(plan_->formats_[At(slot)]);
  }

  // Operands that the node takes in f32 alone are read from a copy in f32.
  Status Add(size_t number) {
    const Node& node = graph_.nodes[number];
    std::vector<std::pair<ValueId, Slot>> own;
    const NarrowUse narrow =
        on_device_[number] ? NarrowUseOf(node) : NarrowUse();
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const ValueId id = node.inputs[i];
      if (id == kNoValue || narrow.Reads(i)) continue;
      const Slot slot = slot_of_[static_cast<size_t>(id)];
      if (!IsNarrowSlot(slot)) continue;
      own.emplace_back(id, slot);
      slot_of_[static_cast<size_t>(id)] = InFloats(slot, node.name);
    }
    const Status added = AddWithSlots(node);
    for (const auto& [id, slot] : own) slot_of_[static_cast<size_t>(id)] = slot;
    return added;
  }
  Status AddWithSlots(const Node& node) {
    if (auto step = Lowered(node)) {
      AddOnDevice(node, *std::move(step));
      return OkStatus();
    }
    return AddOnCpu(node);
  }

  // The storage that has in f32 what this one keeps in 16 bits.
  Slot InFloats(Slot slot, const std::string& name) {
    const auto found = in_floats_.find(slot);
    if (found != in_floats_.end()) return found->second;
    const auto to = static_cast<Slot>(sides_.size());
    in_floats_.emplace(slot, to);
    const int64_t bytes = sides_[At(slot)].bytes;
    sides_.emplace_back().bytes = 2 * bytes;
    plan_->formats_.push_back(cuda::GraphFormat::kF32);
    DeviceStep step = MakeDeviceConversion(slot, to, bytes / 2);
    step.reads = {slot};
    step.writes = {to};
    std::vector<int32_t> sources;
    AddSource(sides_[At(slot)].device_action, sources);
    AddStep(name, std::move(step), std::move(sources));
    return to;
  }

  void AddOnDevice(const Node& node, DeviceStep step) {
    std::vector<int32_t> sources;
    for (const ValueId id : node.inputs) {
      if (id == kNoValue || !IsRead(node, id)) continue;
      if (step.packed && id == step.packed->value) continue;
      if (std::find(step.known.begin(), step.known.end(), id) !=
          step.known.end()) {
        continue;
      }
      const Slot slot = slot_of_[static_cast<size_t>(id)];
      BringToDevice(slot, node.name);
      step.reads.push_back(slot);
      AddSource(sides_[At(slot)].device_action, sources);
    }
    for (const ValueId id : node.outputs) {
      if (id != kNoValue)
        step.writes.push_back(slot_of_[static_cast<size_t>(id)]);
    }
    const bool narrow =
        std::any_of(step.writes.begin(), step.writes.end(),
                    [&](Slot slot) { return IsNarrowSlot(slot); });
    if (narrow) step.text += " -> " + plan_->narrow_name_;
    AddStep(node.name, std::move(step), std::move(sources));
  }

  void AddStep(const std::string& name, DeviceStep step,
               std::vector<int32_t> sources) {
    const int32_t now = Now();
    for (const Slot slot : step.reads) sides_[At(slot)].device_life.last = now;
    for (const Slot slot : step.writes) {
      PutOnDevice(slot, now);
      plan_->made_bytes_ += sides_[At(slot)].bytes;
      if (IsNarrowSlot(slot)) plan_->narrow_bytes_ += sides_[At(slot)].bytes;
    }
    Action action = {.kind = Kind::kOnDevice,
                     .step = plan_->device_steps_.size(),
                     .name = name,
                     .sources = std::move(sources)};
    plan_->calls_library_ =
        plan_->calls_library_ || step.library != Library::kNone;
    if (step.checks_indices) {
      action.check = plan_->checks_.size();
      plan_->checks_.push_back({name, step.index_size});
    }
    plan_->actions_.push_back(std::move(action));
    plan_->device_steps_.push_back(std::move(step));
  }

  // Constants that say how, as axes and shapes do, were read already.
  bool IsRead(const Node& node, ValueId id) const {
    const Value& value = graph_.value(id);
    const bool says_how = value.constant != nullptr && id != node.inputs[0] &&
                          value.type->dtype != DType::kF32 &&
                          value.type->dtype != DType::kU8 && !node.Is("Gather");
    return !says_how;
  }

  Status AddOnCpu(const Node& node) {
    const LowerContext context{graph_,
                               slot_of_,
                               apart_,
                               parts_.num_members,
                               parts_.kernels.dense,
                               parts_.kernels.int8,
                               nullptr,
                               parts_.packed,
                               nullptr};
    ASSIGN_OR_RETURN(std::unique_ptr<Step> step, Lower(node, context));
    const std::vector<const Tensor*> packed = parts_.packed.TakeAsked();
    std::vector<int32_t> sources;
    for (const ValueId id : node.inputs) {
      if (id == kNoValue) continue;
      const Slot slot = slot_of_[static_cast<size_t>(id)];
      Side& side = sides_[At(slot)];
      if (side.constant != nullptr) {
        // Late constants are copied when their bytes are asked for.
        if (std::find(packed.begin(), packed.end(), side.constant.get()) ==
            packed.end()) {
          host_constants_.insert(slot);
        }
        continue;
      }
      BringToHost(slot, node.name);
      step->reads.push_back(slot);
      AddSource(side.host_action, sources);
    }
    for (const ValueId id : node.outputs) {
      if (id != kNoValue) step->writes.push_back(context.slot(id));
    }
    const int32_t now = Now();
    for (const Slot slot : step->reads) sides_[At(slot)].host_life.last = now;
    for (const Slot slot : step->writes) PutOnHost(slot, now);
    step->name = node.name;
    plan_->actions_.push_back({.kind = Kind::kOnCpu,
                               .step = plan_->cpu_steps_.size(),
                               .name = node.name,
                               .sources = std::move(sources)});
    plan_->cpu_steps_.push_back(std::move(step));
    return OkStatus();
  }

  static void AddSource(int32_t action, std::vector<int32_t>& sources) {
    if (action < 0) return;
    const auto at = std::lower_bound(sources.begin(), sources.end(), action);
    if (at == sources.end() || *at != action) sources.insert(at, action);
  }

  void PutOnDevice(Slot slot, int32_t now) {
    Side& side = sides_[At(slot)];
    side.on_device = true;
    side.device_action = now;
    side.device_life = {side.bytes, now, now};
  }
  void PutOnHost(Slot slot, int32_t now) {
    Side& side = sides_[At(slot)];
    side.on_host = true;
    side.host_action = now;
    side.host_life = {side.bytes, now, now};
  }

  void BringToDevice(Slot slot, const std::string& name) {
    Side& side = sides_[At(slot)];
    if (side.on_device) return;
    if (side.constant != nullptr) {
      side.on_device = true;
      return;
    }
    side.host_life.last = Now();
    std::vector<int32_t> sources;
    AddSource(side.host_action, sources);
    PutOnDevice(slot, Now());
    plan_->actions_.push_back({.kind = Kind::kToDevice,
                               .slot = slot,
                               .bytes = side.bytes,
                               .name = name,
                               .sources = std::move(sources)});
  }
  void BringToHost(Slot slot, const std::string& name) {
    Side& side = sides_[At(slot)];
    if (side.on_host) return;
    side.device_life.last = Now();
    std::vector<int32_t> sources;
    AddSource(side.device_action, sources);
    PutOnHost(slot, Now());
    plan_->actions_.push_back({.kind = Kind::kToHost,
                               .slot = slot,
                               .bytes = side.bytes,
                               .name = name,
                               .sources = std::move(sources)});
  }

  // Results are read behind the last action.
  void AddOutput(ValueId id) {
    const Slot slot = slot_of_[static_cast<size_t>(id)];
    Side& side = sides_[At(slot)];
    const bool from_device = !side.on_host;
    (from_device ? side.device_life : side.host_life).last = Now();
    if (side.constant != nullptr) host_constants_.insert(slot);
    plan_->outputs_.push_back({slot, *graph_.value(id).type, from_device});
  }

  Status UploadConstants() {
    plan_->host_constant_.assign(sides_.size(), nullptr);
    plan_->device_constant_.assign(sides_.size(), nullptr);
    for (const Slot slot : host_constants_) {
      plan_->host_constant_[At(slot)] = sides_[At(slot)].constant->bytes();
    }
    std::vector<std::shared_ptr<const Tensor>> own;
    std::vector<size_t> own_slots;
    for (size_t slot = 0; slot < sides_.size(); ++slot) {
      const Side& side = sides_[slot];
      if (side.constant == nullptr || !side.on_device) continue;
      if (parts_.is_shared(side.constant.get())) {
        ASSIGN_OR_RETURN(plan_->device_constant_[slot],
                         parts_.weights.FindOrUpload(side.constant));
        continue;
      }
      own.push_back(side.constant);
      own_slots.push_back(slot);
    }
    ASSIGN_OR_RETURN(const std::vector<const std::byte*> places,
                     parts_.weights.UploadOwn(own, plan_->own_constants_));
    for (size_t i = 0; i < places.size(); ++i) {
      plan_->device_constant_[own_slots[i]] = places[i];
    }
    return PackConstants();
  }

  Status PackConstants() {
    for (DeviceStep& step : plan_->device_steps_) {
      const std::byte*& place = plan_->packed_.emplace_back(nullptr);
      if (!step.packed) continue;
      const PackedConstant& packed = *step.packed;
      if (parts_.is_shared(graph_.value(packed.value).constant.get())) {
        ASSIGN_OR_RETURN(place, parts_.weights.FindOrPack(packed));
      } else {
        ASSIGN_OR_RETURN(CudaBuffer own, parts_.weights.PackOwn(packed));
        place = own.data();
        plan_->own_packed_.push_back(std::move(own));
      }
      step.packed->pack = nullptr;  // and what it holds
    }
    return UploadOwn();
  }

  // What steps have of their own, in one piece of memory.
  Status UploadOwn() {
    constexpr size_t kAlignment = 256;
    std::vector<std::byte> all;
    std::vector<size_t> places;
    for (DeviceStep& step : plan_->device_steps_) {
      places.push_back(all.size());
      all.insert(all.end(), step.own.begin(), step.own.end());
      all.resize((all.size() + kAlignment - 1) / kAlignment * kAlignment);
      step.own = {};
    }
    ASSIGN_OR_RETURN(plan_->step_constants_, parts_.weights.UploadBytes(all));
    for (const size_t place : places) {
      plan_->own_.push_back(
          all.empty() ? nullptr : plan_->step_constants_.data() + place);
    }
    return OkStatus();
  }

  void PlaceValues() {
    plan_->host_offset_.assign(sides_.size(), -1);
    plan_->device_offset_.assign(sides_.size(), -1);
    std::vector<Lifetime> host, device;
    std::vector<size_t> host_slots, device_slots;
    for (size_t slot = 0; slot < sides_.size(); ++slot) {
      const Side& side = sides_[slot];
      if (side.host_action >= 0) {
        host.push_back(side.host_life);
        host_slots.push_back(slot);
      }
      if (side.device_action >= 0) {
        device.push_back(side.device_life);
        device_slots.push_back(slot);
      }
    }
    for (int32_t i = 0; i < Now(); ++i) {
      const Action& action = plan_->actions_[static_cast<size_t>(i)];
      if (action.kind == Kind::kOnCpu) {
        host.push_back({plan_->cpu_steps_[action.step]->scratch_bytes(), i, i});
      } else if (action.kind == Kind::kOnDevice) {
        device.push_back(
            {plan_->device_steps_[action.step].scratch_bytes, i, i});
      }
    }
    const auto found_bytes =
        static_cast<int64_t>(plan_->checks_.size() * 2 * sizeof(int64_t));
    device.push_back({found_bytes, 0, Now()});
    const MemoryPlan on_host = PlanMemory(host);
    const MemoryPlan on_device = PlanMemory(device);
    for (size_t i = 0; i < host_slots.size(); ++i) {
      plan_->host_offset_[host_slots[i]] = on_host.offsets[i];
    }
    for (size_t i = 0; i < device_slots.size(); ++i) {
      plan_->device_offset_[device_slots[i]] = on_device.offsets[i];
    }
    size_t host_next = host_slots.size(), device_next = device_slots.size();
    for (Action& action : plan_->actions_) {
      if (action.kind == Kind::kOnCpu) {
        action.scratch = on_host.offsets[host_next++];
      } else if (action.kind == Kind::kOnDevice) {
        action.scratch = on_device.offsets[device_next++];
      }
    }
    PlaceStaging(found_bytes);
    plan_->found_offset_ = on_device.offsets.back();
    plan_->host_bytes_ = (on_host.bytes + 63) / 64 * 64;
    // What steps read behind their operands is in the arena, too.
    int64_t behind = 0;
    for (const DeviceStep& step : plan_->device_steps_) {
      behind = std::max(behind, step.reads_behind);
    }
    plan_->device_bytes_ = on_device.bytes + behind;
  }

  void PlaceStaging(int64_t found_bytes) {
    constexpr int64_t kAlignment = 256;
    int64_t& end = plan_->staging_bytes_;
    const auto place = [&](int64_t bytes) {
      const int64_t at = end;
      end += (bytes + kAlignment - 1) / kAlignment * kAlignment;
      return at;
    };
    plan_->staged_found_ = place(found_bytes);
    for (Action& action : plan_->actions_) {
      if (action.kind == Kind::kToDevice) action.staged = place(action.bytes);
      if (action.kind == Kind::kToHost) plan_->is_staged_ = false;
    }
    for (CudaPlan::Output& output : plan_->outputs_) {
      if (output.from_device)
        output.staged = place(sides_[At(output.slot)].bytes);
    }
  }

  const CudaPlan::Parts& parts_;
  const Graph& graph_;
  const std::vector<Place> apart_;
  std::vector<Slot> slot_of_;       // of each value
  std::vector<Side> sides_;         // of each storage
  std::vector<bool> on_device_;     // nodes; told apart for 16 bits alone
  std::map<Slot, Slot> in_floats_;  // copies of what is kept in 16 bits
  std::set<Slot> host_constants_;   // that steps on the cores read
  std::unique_ptr<CudaPlan> plan_;
};

StatusOr<std::unique_ptr<const DevicePlan>> CudaPlan::Create(
    const Parts& parts) {
  return CudaPlanBuilder(parts).Build();
}

}  // namespace millrace::models::graph
