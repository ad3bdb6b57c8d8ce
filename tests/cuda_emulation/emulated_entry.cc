// The entry of a module whose GPU is the CPU, to be opened as the real one is:
// tests and a server with --device cuda:0 run on it through
// MILLRACE_CUDA_MODULE.
//
//   MILLRACE_EMULATED_DEVICES  how many there are
//   MILLRACE_EMULATED_BYTES    what the device has
//   MILLRACE_EMULATED_OUTCOME  what opening it gives, a number of cuda::Outcome
//   MILLRACE_EMULATED_LOST     a file: while it exists the device is lost
#include <cstdlib>
#include <functional>
#include <utility>

#include "tests/cuda_emulation/cuda_emulation.h"
#include "tests/cuda_emulation/emulated_module.h"

using millrace::cuda::Module;

extern "C" const Module* millrace_cuda_module(uint32_t version) {
  if (version != millrace::cuda::kModuleVersion) return nullptr;
  if (const char* devices = std::getenv("MILLRACE_EMULATED_DEVICES")) {
    millrace::cuda::SetEmulatedDevices(std::atoi(devices));
  }
  if (const char* bytes = std::getenv("MILLRACE_EMULATED_BYTES")) {
    millrace::cuda::SetEmulatedBytes(std::atoll(bytes));
  }
  if (const char* outcome = std::getenv("MILLRACE_EMULATED_OUTCOME")) {
    millrace::cuda::SetOpenOutcome(
        static_cast<millrace::cuda::Outcome>(std::atoi(outcome)));
  }
  if (const char* file = std::getenv("MILLRACE_EMULATED_LOST")) {
    millrace::cuda::LoseDeviceWhile(file);
  }
  return millrace::cuda::EmulatedModule();
}

extern "C" void millrace_emulated_fail_wait(int steps) {
  millrace::cuda::FailWaitAfter(steps);
}

extern "C" void millrace_emulated_lose(bool lost) {
  millrace::cuda::LoseDevice(lost);
}

extern "C" void millrace_emulated_fail_captures(bool fail) {
  millrace::cuda::FailCaptures(fail);
}

extern "C" void millrace_emulated_fail_events(bool fail) {
  millrace::cuda::FailEvents(fail);
}

extern "C" void millrace_emulated_defer(bool defer) {
  millrace::cuda::DeferWork(defer);
}

// For libraries that give a stream work: runs it, or keeps it for a graph.
extern "C" void millrace_emulated_do(std::function<void()>* work) {
  cuda_emulation::Do(std::move(*work));
}

extern "C" void millrace_emulated_stop(const void* stream, bool stop) {
  millrace::cuda::StopStream(stream, stop);
}

extern "C" int millrace_emulated_graph_runs() {
  return millrace::cuda::GraphRuns();
}
