#include "models/graph/cuda/cuda_plan.h"

#include <chrono>
#include <cstring>
#include <utility>

#include "config/base/out_of_memory.h"
#include "config/base/size_text.h"

namespace millrace::models::graph {
namespace {

size_t At(Slot slot) { return static_cast<size_t>(slot); }

}  // namespace

StatusOr<std::byte*> CudaState::Arena(int64_t bytes) {
  if (bytes <= arena_bytes_ && arena_.data() != nullptr) return arena_.data();
  arena_bytes_ = 0;
  arena_ = CudaBuffer();  // first: both may not fit
  ASSIGN_OR_RETURN(arena_,
                   context_->Allocate(std::max<int64_t>(bytes, 1),
                                      "what lies between a graph's layers"));
  arena_bytes_ = bytes;
  return arena_.data();
}

std::vector<ValueType> CudaPlan::OutputTypes() const {
  std::vector<ValueType> types;
  for (const Output& output : outputs_) types.push_back(output.type);
  return types;
}

void CudaPlan::Bind(const std::vector<Tensor>& inputs, std::byte* arena,
                    std::byte* device_arena, CudaState& state) const {
  const size_t slots = host_offset_.size();
  state.on_host.assign(slots, nullptr);
  state.on_device.assign(slots, nullptr);
  for (size_t i = 0; i < slots; ++i) {
    // Neither constants nor inputs are written by any step.
    state.on_host[i] = host_offset_[i] >= 0
                           ? arena + host_offset_[i]
                           : const_cast<std::byte*>(host_constant_[i]);
    state.on_device[i] = device_offset_[i] >= 0
                             ? device_arena + device_offset_[i]
                             : const_cast<std::byte*>(device_constant_[i]);
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    state.on_host[At(inputs_[i])] = const_cast<std::byte*>(inputs[i].bytes());
  }
}

StatusOr<std::vector<Tensor>> CudaPlan::Run(
    const std::vector<Tensor>& inputs, std::byte* arena, DeviceState& state,
    ComputePool& pool, const StopCheck& stopped, Trace* trace) const {
  CHECK(inputs.size() == inputs_.size(), "one tensor for each input");
  auto& own = static_cast<CudaState&>(state);
  ASSIGN_OR_RETURN(std::byte * device_arena, own.Arena(device_bytes_));
  Bind(inputs, arena, device_arena, own);
  const Status ran = RunActions(arena, device_arena, own, pool, stopped, trace);
  if (!ran.ok()) {
    // Nothing may read or write this run's memory behind its end.
    const Status waited = own.context().Wait();
    return waited.ok() ? ran : waited;
  }
  return TakeOutputs(device_arena, own);
}

Status CudaPlan::RunOnCpu(const Action& action, std::byte* arena,
                          CudaState& state, ComputePool& pool) const {
  const Step& step = *cpu_steps_[action.step];
  const Slots slots{state.on_host.data(), arena + action.scratch};
  if (num_members_ == 1 || !step.splits()) {
    return CatchOutOfMemory([&] { return step.Run(slots, Team{}); });
  }
  std::vector<Status> ended(static_cast<size_t>(pool.size()));
  pool.Run([&](Worker& worker) {
    ended[static_cast<size_t>(worker.index())] = CatchOutOfMemory([&] {
      return step.Run(slots, Team{worker.index(), worker.count()});
    });
  });
  for (Status& status : ended) RETURN_IF_ERROR(std::move(status));
  return OkStatus();
}

Status CudaPlan::RunActions(std::byte* arena, std::byte* device_arena,
                            CudaState& state, ComputePool& pool,
                            const StopCheck& stopped, Trace* trace) const {
  if (trace != nullptr) BeginTrace(pool, *trace);
  CudaContext& context = state.context();
  auto* found = reinterpret_cast<int64_t*>(device_arena + found_offset_);
  const auto begun = std::chrono::steady_clock::now();
  const auto elapsed_ns = [&] {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
               std::chrono::steady_clock::now() - begun)
        .count();
  };
  bool has_to_wait = false;  // something was copied to the host since the last
  for (size_t i = 0; i < actions_.size(); ++i) {
    const Action& action = actions_[i];
    if (stopped) RETURN_IF_ERROR(stopped());
    const int64_t begin_ns = trace != nullptr ? elapsed_ns() : 0;
    switch (action.kind) {
      case Kind::kToDevice:
        RETURN_IF_ERROR(context.Upload(state.on_device[At(action.slot)],
                                       state.on_host[At(action.slot)],
                                       action.bytes));
        break;
      case Kind::kToHost:
        RETURN_IF_ERROR(context.Download(state.on_host[At(action.slot)],
                                         state.on_device[At(action.slot)],
                                         action.bytes));
        has_to_wait = true;
        break;
      case Kind::kOnDevice:
        RETURN_IF_ERROR(context.Launched(device_steps_[action.step].launch(
            context.module(), context.device().stream,
            {state.on_device.data(), found + 2 * action.check,
             packed_[action.step]})));
        break;
      case Kind::kOnCpu:
        if (std::exchange(has_to_wait, false)) RETURN_IF_ERROR(context.Wait());
        RETURN_IF_ERROR(RunOnCpu(action, arena, state, pool));
        break;
    }
    if (trace == nullptr) continue;
    // So that the time of a launch is that of its work.
    RETURN_IF_ERROR(context.Wait());
    trace->spans[0][i] = {begin_ns, elapsed_ns()};
  }
  if (trace != nullptr) trace->run_ns = elapsed_ns();
  return OkStatus();
}

StatusOr<std::vector<Tensor>> CudaPlan::TakeOutputs(std::byte* device_arena,
                                                    CudaState& state) const {
  CudaContext& context = state.context();
  std::vector<Tensor> outputs;
  std::vector<int64_t> found(2 * checks_.size());
  Status status = OkStatus();
  for (const Output& output : outputs_) {
    Tensor& to = outputs.emplace_back(
        Tensor::Make(output.type.dtype, output.type.shape));
    if (to.num_bytes() == 0 || !status.ok()) continue;
    if (output.from_device) {
      status = context.Download(to.bytes(), state.on_device[At(output.slot)],
                                to.num_bytes());
    } else {
      std::memcpy(to.bytes(), state.on_host[At(output.slot)],
                  static_cast<size_t>(to.num_bytes()));
    }
  }
  if (status.ok() && !found.empty()) {
    status =
        context.Download(found.data(), device_arena + found_offset_,
                         static_cast<int64_t>(found.size() * sizeof(int64_t)));
  }
  // Whatever failed: the tensors must not go while the device writes to them.
  const Status waited = context.Wait();
  RETURN_IF_ERROR(waited);
  RETURN_IF_ERROR(status);
  for (size_t i = 0; i < checks_.size(); ++i) {
    if (found[2 * i] < 0) continue;
    return InvalidArgument("the index " + std::to_string(found[2 * i + 1]) +
                           " is outside of a dimension of " +
                           std::to_string(checks_[i].size));
  }
  return outputs;
}

DeviceCounts CudaPlan::counts() const {
  DeviceCounts counts;
  counts.on_device = static_cast<int64_t>(device_steps_.size());
  counts.on_cpu = static_cast<int64_t>(cpu_steps_.size());
  const auto add = [&](int64_t bytes) {
    ++counts.copies;
    counts.copied_bytes += bytes;
  };
  for (const Action& action : actions_) {
    if (action.slot != kNoSlot) add(action.bytes);
  }
  for (const Output& output : outputs_) {
    if (output.from_device) {
      add(output.type.shape.num_elements() * DTypeBytes(output.type.dtype));
    }
  }
  return counts;
}

std::string CudaPlan::ActionText(const Action& action) const {
  switch (action.kind) {
    case Kind::kToDevice:
      return "copy    " + SizeText(action.bytes) + " to " + device_;
    case Kind::kToHost:
      return "copy    " + SizeText(action.bytes) + " to the host";
    case Kind::kOnDevice:
      return device_ + "  " + device_steps_[action.step].text;
    case Kind::kOnCpu:
      break;
  }
  return "cpu     " + cpu_steps_[action.step]->Text();
}

std::string CudaPlan::Text() const {
  std::string text;
  for (const Action& action : actions_) text += ActionText(action) + "\n";
  for (const Output& output : outputs_) {
    if (!output.from_device) continue;
    const int64_t bytes =
        output.type.shape.num_elements() * DTypeBytes(output.type.dtype);
    text += "copy    " + SizeText(bytes) + " to the host\n";
  }
  return text;
}

void CudaPlan::BeginTrace(const ComputePool& pool, Trace& trace) const {
  trace = {};
  for (const Action& action : actions_) {
    StepInfo& step = trace.steps.emplace_back();
    step.text = ActionText(action);
    step.name = action.name;
    step.sources = action.sources;
    step.bytes = static_cast<double>(action.bytes);
    if (action.kind == Kind::kOnDevice) {
      step.macs = device_steps_[action.step].macs;
    } else if (action.kind == Kind::kOnCpu) {
      step.macs = cpu_steps_[action.step]->macs();
    }
  }
  trace.spans.assign(static_cast<size_t>(pool.size()),
                     std::vector<StepSpan>(actions_.size()));
}

}  // namespace millrace::models::graph
