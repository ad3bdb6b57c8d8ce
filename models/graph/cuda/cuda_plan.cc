#include "models/graph/cuda/cuda_plan.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "config/base/out_of_memory.h"
#include "config/base/size_text.h"
#include "models/gpu/stream_timer.h"

namespace millrace::models::graph {
namespace {

// When the actions of a run took place. Those of the device are asked for one
// behind the other, with CUDA events around each: their times are the device's,
// without those of launching and waiting. The cores wait for the device before
// an action of theirs, so that no two actions overlap.
class ActionTimer {
 public:
  explicit ActionTimer(CudaContext& context)
      : context_(context), timer_(context) {}

  Status Begin(size_t num_actions) {
    RETURN_IF_ERROR(timer_.Reserve(2 * num_actions));
    RETURN_IF_ERROR(context_.Wait());
    begun_ = Clock::now();
    return timer_.Begin();
  }
  Status BeginAction(bool on_cpu) {
    on_cpu_ = on_cpu;
    if (!on_cpu) return timer_.Mark();
    RETURN_IF_ERROR(context_.Wait());
    begin_ns_ = Ns(Clock::now());
    return OkStatus();
  }
  Status EndAction(size_t action, Trace& trace) {
    if (on_cpu_) {
      trace.spans[0][action] = {begin_ns_, Ns(Clock::now())};
      return OkStatus();
    }
    on_device_.push_back(action);
    return timer_.Mark();
  }
  Status End(Trace& trace) {
    RETURN_IF_ERROR(context_.Wait());
    trace.run_ns = Ns(Clock::now());
    ASSIGN_OR_RETURN(const auto times, timer_.Times());
    size_t next = 0;  // of on_device_
    int64_t late_ns = 0;
    int64_t at_ns = 0;  // the end of the action before
    for (size_t i = 0; i < trace.spans[0].size(); ++i) {
      StepSpan& span = trace.spans[0][i];
      if (next < on_device_.size() && on_device_[next] == i) {
        // Behind the mark of Begin. The device's times are some microseconds
        // too early, which the end of an action on the cores shows.
        const int64_t begin_ns = Ns(times[2 * next + 1]);
        late_ns = std::max(late_ns, at_ns - begin_ns);
        span = {begin_ns + late_ns, Ns(times[2 * next + 2]) + late_ns};
        ++next;
      }
      at_ns = span.end_ns;
    }
    return OkStatus();
  }

 private:
  using Clock = std::chrono::steady_clock;
  int64_t Ns(Clock::time_point time) const {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(time - begun_)
        .count();
  }

  CudaContext& context_;
  StreamTimer timer_;
  Clock::time_point begun_;
  bool on_cpu_ = false;
  int64_t begin_ns_ = 0;
  std::vector<size_t> on_device_;  // actions, in their order
};

size_t At(Slot slot) { return static_cast<size_t>(slot); }

int64_t NextNumber() {
  // Relaxed: numbers only differ.
  static std::atomic<int64_t> next = 0;
  return next.fetch_add(1, std::memory_order_relaxed);
}

struct Copy {
  std::byte* to;
  const std::byte* from;
  int64_t bytes;
};
// By all members of the team where that is worth waking them.
void DoCopies(const std::vector<Copy>& copies, ComputePool& pool) {
  constexpr int64_t kMany = 1 << 20;
  int64_t bytes = 0;
  for (const Copy& copy : copies) bytes += copy.bytes;
  if (bytes < kMany || pool.size() == 1) {
    for (const Copy& copy : copies) {
      std::memcpy(copy.to, copy.from, static_cast<size_t>(copy.bytes));
    }
    return;
  }
  pool.Run([&](Worker& worker) {
    for (const Copy& copy : copies) {
      const auto [begin, end] = worker.Share(copy.bytes, 4096);
      std::memcpy(copy.to + begin, copy.from + begin,
                  static_cast<size_t>(end - begin));
    }
  });
}

}  // namespace

CudaPlan::CudaPlan() : number_(NextNumber()) {}

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
  if (calls_library_) RETURN_IF_ERROR(own.context().MakeCurrent());
  Bind(inputs, arena, device_arena, own);
  if (is_staged_ && trace == nullptr) {
    auto outputs = RunStaged(arena, device_arena, own, pool, stopped);
    if (!outputs.ok()) RETURN_IF_ERROR(own.context().Wait());
    return outputs;
  }
  const Status ran = RunActions(arena, device_arena, own, pool, stopped, trace);
  if (!ran.ok()) {
    // Nothing may read or write this run's memory behind its end.
    const Status waited = own.context().Wait();
    return waited.ok() ? ran : waited;
  }
  return TakeOutputs(device_arena, own);
}

StatusOr<std::vector<Tensor>> CudaPlan::RunStaged(
    std::byte* arena, const std::byte* device_arena, CudaState& state,
    ComputePool& pool, const StopCheck& stopped) const {
  ASSIGN_OR_RETURN(std::byte * staging, state.Staging(staging_bytes_));
  std::vector<Copy> copies;  // of inputs; the rest may be overwritten
  for (const Action& action : actions_) {
    if (action.kind == Kind::kToDevice) {
      const bool is_input = host_offset_[At(action.slot)] < 0;
      const Copy copy = {staging + action.staged,
                         state.on_host[At(action.slot)], action.bytes};
      if (is_input) {
        copies.push_back(copy);
      } else {
        DoCopies({copy}, pool);
      }
    } else if (action.kind == Kind::kOnCpu) {
      if (stopped) RETURN_IF_ERROR(stopped());
      RETURN_IF_ERROR(RunOnCpu(action, arena, state, pool));
    }
  }
  DoCopies(copies, pool);
  if (stopped) RETURN_IF_ERROR(stopped());
  RETURN_IF_ERROR(state.RunOrReplay(
      number_, [&] { return Ask(device_arena, staging, state); }));
  RETURN_IF_ERROR(state.context().Wait());
  RETURN_IF_ERROR(
      CheckFound(reinterpret_cast<const int64_t*>(staging + staged_found_)));
  copies.clear();
  std::vector<Tensor> outputs;
  for (const Output& output : outputs_) {
    Tensor& to = outputs.emplace_back(
        Tensor::Make(output.type.dtype, output.type.shape));
    if (to.num_bytes() == 0) continue;
    copies.push_back({to.bytes(),
                      output.from_device ? staging + output.staged
                                         : state.on_host[At(output.slot)],
                      to.num_bytes()});
  }
  DoCopies(copies, pool);
  return outputs;
}

Status CudaPlan::Ask(const std::byte* device_arena, std::byte* staging,
                     CudaState& state) const {
  CudaContext& context = state.context();
  for (const Action& action : actions_) {
    if (action.kind == Kind::kToDevice) {
      RETURN_IF_ERROR(context.Upload(state.on_device[At(action.slot)],
                                     staging + action.staged, action.bytes));
    } else if (action.kind == Kind::kOnDevice) {
      RETURN_IF_ERROR(Launch(action, device_arena, state));
    }
  }
  for (const Output& output : outputs_) {
    if (!output.from_device) continue;
    RETURN_IF_ERROR(context.Download(
        staging + output.staged, state.on_device[At(output.slot)],
        output.type.shape.num_elements() * DTypeBytes(output.type.dtype)));
  }
  const auto found_bytes =
      static_cast<int64_t>(2 * checks_.size() * sizeof(int64_t));
  return found_bytes == 0
             ? OkStatus()
             : context.Download(staging + staged_found_,
                                device_arena + found_offset_, found_bytes);
}

Status CudaPlan::Launch(const Action& action, const std::byte* device_arena,
                        CudaState& state) const {
  CudaContext& context = state.context();
  auto* const arena = const_cast<std::byte*>(device_arena);
  auto* found = reinterpret_cast<int64_t*>(arena + found_offset_);
  const DeviceStep& step = device_steps_[action.step];
  const int error = step.launch(
      context.module(), context.device().stream,
      {state.on_device.data(), formats_.data(), found + 2 * action.check,
       packed_[action.step], own_[action.step], arena + action.scratch});
  if (error < 0) return step.failed(-error);
  return context.Launched(error);
}

Status CudaPlan::CheckFound(const int64_t* found) const {
  for (size_t i = 0; i < checks_.size(); ++i) {
    if (found[2 * i] < 0) continue;
    return InvalidArgument("the index " + std::to_string(found[2 * i + 1]) +
                           " is outside of a dimension of " +
                           std::to_string(checks_[i].size));
  }
  return OkStatus();
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
  CudaContext& context = state.context();
  std::optional<ActionTimer> timer;
  if (trace != nullptr) {
    BeginTrace(pool, *trace);
    timer.emplace(context);
    RETURN_IF_ERROR(timer->Begin(actions_.size()));
  }
  bool has_to_wait = false;  // something was copied to the host since the last
  for (size_t i = 0; i < actions_.size(); ++i) {
    const Action& action = actions_[i];
    if (stopped) RETURN_IF_ERROR(stopped());
    const bool on_cpu = action.kind == Kind::kOnCpu;
    if (timer.has_value()) RETURN_IF_ERROR(timer->BeginAction(on_cpu));
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
        RETURN_IF_ERROR(Launch(action, device_arena, state));
        break;
      case Kind::kOnCpu:
        if (std::exchange(has_to_wait, false)) RETURN_IF_ERROR(context.Wait());
        RETURN_IF_ERROR(RunOnCpu(action, arena, state, pool));
        break;
    }
    if (timer.has_value()) RETURN_IF_ERROR(timer->EndAction(i, *trace));
  }
  return timer.has_value() ? timer->End(*trace) : OkStatus();
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
  RETURN_IF_ERROR(CheckFound(found.data()));
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
  const auto by = [&](Library library) {
    return std::count_if(
        device_steps_.begin(), device_steps_.end(),
        [&](const DeviceStep& step) { return step.library == library; });
  };
  counts.by_cublaslt = by(Library::kCublasLt);
  counts.by_cudnn = by(Library::kCudnn);
  counts.made_bytes = made_bytes_;
  counts.narrow_bytes = narrow_bytes_;
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
  if (narrow_bytes_ > 0) {
    text += "values  " + SizeText(made_bytes_) + " made on " + device_ + ", " +
            SizeText(narrow_bytes_) + " of them in " + narrow_name_ + "\n";
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
