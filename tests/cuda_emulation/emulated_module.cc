#include "tests/cuda_emulation/emulated_module.h"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>

#include "tests/cuda_emulation/cuda_emulation.h"

namespace millrace::cuda {
namespace {

int32_t device_count = 1;
int64_t device_bytes = int64_t{1} << 30;
std::atomic<int> waits_until_failure = -1;
Outcome open_outcome = Outcome::kFine;
std::atomic<bool> device_lost = false;
std::string lost_while;  // a file; empty: none
std::atomic<bool> captures_fail = false;
std::atomic<bool> events_fail = false;
std::atomic<int> graph_runs = 0;
std::mutex stopping;
std::set<const void*> stopped;  // streams that no longer get on
// What this thread captures.
thread_local std::unique_ptr<cuda_emulation::Recording> capturing;

// What this thread asked of its streams and has not run; see DeferWork.
struct Deferred {
  cuda_emulation::Recording work;
  size_t num_run = 0;                   // before it
  std::map<Event, size_t> work_before;  // a mark
};
std::atomic<bool> defers = false;
thread_local Deferred deferred;

void KeepOrRun() { cuda_emulation::Record(defers ? &deferred.work : nullptr); }

// Until `count` pieces of work have run in all.
void RunDeferred(size_t count) {
  cuda_emulation::Record(nullptr);
  size_t i = 0;
  for (; i < deferred.work.size() && deferred.num_run < count; ++i) {
    deferred.work[i]();
    ++deferred.num_run;
  }
  deferred.work.erase(deferred.work.begin(),
                      deferred.work.begin() + static_cast<ptrdiff_t>(i));
  KeepOrRun();
}

Outcome Open(int32_t ordinal, Device* device) {
  *device = Device{};
  device->ordinal = ordinal;
  device->count = device_count;
  if (ordinal >= device_count) return Outcome::kNoSuchDevice;
  device->major = 9;
  device->multiprocessors = 4;
  device->total_bytes = device_bytes;
  device->free_bytes = device_bytes - cuda_emulation::AllocatedBytes(ordinal);
  std::snprintf(device->name, sizeof device->name, "emulated");
  device->stream = device;
  device->driver_version = 12040;
  device->needed_version = 13000;
  std::snprintf(device->text, sizeof device->text, "an emulated fault");
  return open_outcome;
}

// The next device may have the same address, and with it the same stream.
void Close(Device* device) {
  const std::lock_guard lock(stopping);
  stopped.erase(device->stream);
  device->stream = nullptr;
}

Outcome Allocate(Device* device, int64_t bytes, void** memory) {
  if (bytes > device_bytes - cuda_emulation::AllocatedBytes(device->ordinal)) {
    std::snprintf(device->text, sizeof device->text, "out of memory");
    return Outcome::kNoMemory;
  }
  *memory = cuda_emulation::AllocateDevice(bytes, device->ordinal);
  return *memory == nullptr ? Outcome::kNoMemory : Outcome::kFine;
}

void Release(Device*, void* memory) { cuda_emulation::FreeDevice(memory); }

Outcome AllocateHost(Device*, int64_t bytes, void** memory) {
  *memory = std::calloc(1, static_cast<size_t>(bytes));
  return *memory == nullptr ? Outcome::kNoMemory : Outcome::kFine;
}

void ReleaseHost(Device*, void* memory) { std::free(memory); }

Outcome Copy(Device*, void* to, const void* from, int64_t bytes) {
  if (capturing == nullptr) KeepOrRun();
  if (bytes > 0) {
    cuda_emulation::Do(
        [=] { std::memcpy(to, from, static_cast<size_t>(bytes)); });
  }
  return Outcome::kFine;
}

bool IsStopped(const Device* device) {
  const std::lock_guard lock(stopping);
  return stopped.contains(device->stream);
}

// Of what was waited for.
Outcome TellFault(Device* device) {
  if (device_lost ||
      (!lost_while.empty() && access(lost_while.c_str(), F_OK) == 0)) {
    std::snprintf(device->text, sizeof device->text, "an emulated loss");
    return Outcome::kLost;
  }
  if (waits_until_failure < 0 || waits_until_failure-- > 0) {
    return Outcome::kFine;
  }
  std::snprintf(device->text, sizeof device->text, "an emulated fault");
  return Outcome::kFault;
}

Outcome Wait(Device* device) {
  while (IsStopped(device)) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  RunDeferred(SIZE_MAX);
  return TellFault(device);
}

Outcome Ask(Device* device) {
  if (IsStopped(device)) return Outcome::kNotYet;
  return Wait(device);
}

Outcome MakeCurrent(Device*) { return Outcome::kFine; }

Outcome BeginCapture(Device*) {
  capturing = std::make_unique<cuda_emulation::Recording>();
  cuda_emulation::Record(capturing.get());
  return Outcome::kFine;
}

Outcome EndCapture(Device* device, Graph* graph) {
  KeepOrRun();
  *graph = nullptr;
  if (captures_fail) {
    capturing.reset();
    std::snprintf(device->text, sizeof device->text, "an emulated fault");
    return Outcome::kFault;
  }
  *graph = capturing.release();
  return Outcome::kFine;
}

Outcome RunGraph(Device*, Graph graph) {
  ++graph_runs;
  for (const auto& work : *static_cast<cuda_emulation::Recording*>(graph)) {
    cuda_emulation::Do(work);
  }
  return Outcome::kFine;
}

void ReleaseGraph(Device*, Graph graph) {
  delete static_cast<cuda_emulation::Recording*>(graph);
}

// Of the host's clock, when the stream gets there.
using EventTime = std::chrono::steady_clock::time_point;

Outcome CreateEvent(Device*, Event* event) {
  *event = new EventTime;
  return Outcome::kFine;
}

Outcome RecordEvent(Device* device, Event event) {
  if (events_fail) {
    std::snprintf(device->text, sizeof device->text, "an emulated fault");
    return Outcome::kFault;
  }
  cuda_emulation::Do([=] {
    *static_cast<EventTime*>(event) = std::chrono::steady_clock::now();
  });
  if (defers && capturing == nullptr) {
    deferred.work_before[event] = deferred.num_run + deferred.work.size();
  }
  return Outcome::kFine;
}

Outcome Elapsed(Device*, Event from, Event to, double* seconds) {
  const std::chrono::duration<double> between =
      *static_cast<EventTime*>(to) - *static_cast<EventTime*>(from);
  *seconds = between.count();
  return Outcome::kFine;
}

Outcome AwaitEvent(Device* device, Event event) {
  if (!defers) return Wait(device);
  RunDeferred(deferred.work_before[event]);
  return TellFault(device);
}

void ReleaseEvent(Device*, Event event) {
  delete static_cast<EventTime*>(event);
}

const char* ErrorText(int) { return "an emulated error"; }
bool IsLost(int) { return false; }

Module MakeModule() {
  Module table{};
  table.version = kModuleVersion;
  table.open = Open;
  table.close = Close;
  table.allocate = Allocate;
  table.release = Release;
  table.allocate_host = AllocateHost;
  table.release_host = ReleaseHost;
  table.upload = Copy;
  table.download = Copy;
  table.wait = Wait;
  table.ask = Ask;
  table.make_current = MakeCurrent;
  table.begin_capture = BeginCapture;
  table.end_capture = EndCapture;
  table.run_graph = RunGraph;
  table.release_graph = ReleaseGraph;
  table.create_event = CreateEvent;
  table.record_event = RecordEvent;
  table.elapsed = Elapsed;
  table.await_event = AwaitEvent;
  table.release_event = ReleaseEvent;
  table.error_text = ErrorText;
  table.is_lost = IsLost;
  SetKernels(table);
  return table;
}

}  // namespace

const Module* EmulatedModule() {
  static const Module table = MakeModule();
  return &table;
}

void SetEmulatedDevices(int32_t count) { device_count = count; }
void SetEmulatedBytes(int64_t bytes) { device_bytes = bytes; }
void FailWaitAfter(int steps) { waits_until_failure = steps; }
void LoseDevice(bool lost) { device_lost = lost; }
void LoseDeviceWhile(const char* file) {
  if (lost_while != file) lost_while = file;  // threads may read it
}
void FailCaptures(bool fail) { captures_fail = fail; }
void FailEvents(bool fail) { events_fail = fail; }
void DeferWork(bool defer) { defers = defer; }
int GraphRuns() { return graph_runs; }
void StopStream(const void* stream, bool stop) {
  const std::lock_guard lock(stopping);
  if (stop) {
    stopped.insert(stream);
  } else {
    stopped.erase(stream);
  }
}
void SetOpenOutcome(Outcome outcome) { open_outcome = outcome; }

}  // namespace millrace::cuda
