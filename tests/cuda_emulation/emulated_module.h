// The CUDA module with the CPU as its device: the same table that
// libmillrace_cuda.so gives, over the same kernels. One device, or several.
#pragma once

#include <cstdint>

#include "models/cuda/module_api.h"

namespace millrace::cuda {

const Module* EmulatedModule();

// GPUs there are; they share one memory.
void SetEmulatedDevices(int32_t count);
// What the device has; allocations beyond it fail.
void SetEmulatedBytes(int64_t bytes);
// The call of `wait` after the next `steps` ones fails, once.
void FailWaitAfter(int steps);
// Whether each call of `wait` fails from now on as of a device that is lost; it
// also does while the file exists.
void LoseDevice(bool lost);
void LoseDeviceWhile(const char* file);
// Whether captures of graphs fail from now on.
void FailCaptures(bool fail);
// Whether events cannot be recorded from now on.
void FailEvents(bool fail);
// Whether work that a thread asks for runs as late as it may: where that thread
// waits for it. Else it runs at once. Not while any is kept.
void DeferWork(bool defer);
// Graphs that ran so far.
int GraphRuns();
// A stream that stops never ends what was asked of it, until it is let go on.
void StopStream(const void* stream, bool stop);
// What opening device 0 gives from now on.
void SetOpenOutcome(Outcome outcome);

}  // namespace millrace::cuda
