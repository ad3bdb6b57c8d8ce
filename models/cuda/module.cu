// The entry of libmillrace_cuda.so: devices, memory and transfers by the CUDA
// runtime, which is linked statically and looks for the driver when called.
#include <cuda_runtime.h>

#include <cstdio>

#include "models/cuda/module_api.h"

namespace millrace::cuda {
namespace {

// Errors after which "the process must be terminated and relaunched", as
// driver_types.h has it, and those of the hardware under a running kernel.
bool IsLost(int error) {
  switch (error) {
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
    case cudaErrorMpsClientTerminated:
    case cudaErrorUnknown:
    case 226:  // cudaErrorContained, which older toolkits do not name
    case 721:  // cudaErrorTensorMemoryLeak
      return true;
    default:
      return false;
  }
}

// cudaSuccess becomes kFine; anything else leaves its text in the device.
Outcome Judge(Device* device, cudaError_t error) {
  if (error == cudaSuccess) return Outcome::kFine;
  std::snprintf(device->text, sizeof device->text, "%s (CUDA error %d)",
                cudaGetErrorString(error), static_cast<int>(error));
  // Errors of a call that did not run leave the device usable.
  cudaGetLastError();
  if (IsLost(error)) return Outcome::kLost;
  return error == cudaErrorMemoryAllocation ? Outcome::kNoMemory
                                            : Outcome::kFault;
}

cudaStream_t StreamOf(const Device* device) {
  return static_cast<cudaStream_t>(device->stream);
}

Outcome Open(int32_t ordinal, Device* device) {
  *device = Device{};
  device->ordinal = ordinal;
  device->needed_version = CUDART_VERSION;
  cudaDriverGetVersion(&device->driver_version);
  if (device->driver_version == 0) return Outcome::kNoDriver;
  const cudaError_t counted = cudaGetDeviceCount(&device->count);
  if (counted == cudaErrorInsufficientDriver) return Outcome::kDriverTooOld;
  if (counted == cudaErrorNoDevice) return Outcome::kNoDevice;
  if (counted != cudaSuccess) return Judge(device, counted);
  if (device->count == 0) return Outcome::kNoDevice;
  if (ordinal < 0 || ordinal >= device->count) return Outcome::kNoSuchDevice;
  cudaDeviceProp properties;
  const cudaError_t described = cudaGetDeviceProperties(&properties, ordinal);
  if (described != cudaSuccess) return Judge(device, described);
  std::snprintf(device->name, sizeof device->name, "%s", properties.name);
  device->major = properties.major;
  device->minor = properties.minor;
  device->multiprocessors = properties.multiProcessorCount;
  if (properties.major < kOldestMajor) return Outcome::kDeviceTooOld;
  const cudaError_t chosen = cudaSetDevice(ordinal);
  if (chosen != cudaSuccess) return Judge(device, chosen);
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  const cudaError_t told = cudaMemGetInfo(&free_bytes, &total_bytes);
  if (told != cudaSuccess) return Judge(device, told);
  device->free_bytes = static_cast<int64_t>(free_bytes);
  device->total_bytes = static_cast<int64_t>(total_bytes);
  cudaStream_t stream;
  const cudaError_t made =
      cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  device->stream = stream;
  return Judge(device, made);
}

void Close(Device* device) {
  if (device->stream != nullptr) cudaStreamDestroy(StreamOf(device));
  device->stream = nullptr;
}

Outcome Allocate(Device* device, int64_t bytes, void** memory) {
  cudaError_t error = cudaSetDevice(device->ordinal);
  if (error == cudaSuccess) {
    error = cudaMalloc(memory, static_cast<size_t>(bytes));
  }
  if (error != cudaSuccess) return Judge(device, error);
  error =
      cudaMemsetAsync(*memory, 0, static_cast<size_t>(bytes), StreamOf(device));
  return Judge(device, error);
}

void Release(Device* device, void* memory) {
  cudaSetDevice(device->ordinal);
  cudaFree(memory);
}

Outcome AllocateHost(Device* device, int64_t bytes, void** memory) {
  cudaError_t error = cudaSetDevice(device->ordinal);
  if (error == cudaSuccess) {
    error = cudaMallocHost(memory, static_cast<size_t>(bytes));
  }
  return Judge(device, error);
}

void ReleaseHost(Device*, void* memory) { cudaFreeHost(memory); }

Outcome Upload(Device* device, void* to, const void* from, int64_t bytes) {
  cudaError_t error = cudaSetDevice(device->ordinal);
  if (error == cudaSuccess) {
    error = cudaMemcpyAsync(to, from, static_cast<size_t>(bytes),
                            cudaMemcpyHostToDevice, StreamOf(device));
  }
  return Judge(device, error);
}

Outcome Download(Device* device, void* to, const void* from, int64_t bytes) {
  return Judge(device,
               cudaMemcpyAsync(to, from, static_cast<size_t>(bytes),
                               cudaMemcpyDeviceToHost, StreamOf(device)));
}

Outcome Wait(Device* device) {
  return Judge(device, cudaStreamSynchronize(StreamOf(device)));
}

Outcome Ask(Device* device) {
  const cudaError_t error = cudaStreamQuery(StreamOf(device));
  if (error != cudaErrorNotReady) return Judge(device, error);
  cudaGetLastError();  // the next launch must not read it
  return Outcome::kNotYet;
}

Outcome MakeCurrent(Device* device) {
  return Judge(device, cudaSetDevice(device->ordinal));
}

Outcome BeginCapture(Device* device) {
  return Judge(device, cudaStreamBeginCapture(
                           StreamOf(device), cudaStreamCaptureModeThreadLocal));
}

Outcome EndCapture(Device* device, Graph* graph) {
  *graph = nullptr;
  cudaGraph_t captured = nullptr;
  cudaError_t error = cudaStreamEndCapture(StreamOf(device), &captured);
  if (error != cudaSuccess) return Judge(device, error);
  cudaGraphExec_t made = nullptr;
  error = cudaGraphInstantiate(&made, captured, 0);
  cudaGraphDestroy(captured);
  *graph = made;
  return Judge(device, error);
}

Outcome RunGraph(Device* device, Graph graph) {
  cudaError_t error = cudaSetDevice(device->ordinal);
  if (error == cudaSuccess) {
    error =
        cudaGraphLaunch(static_cast<cudaGraphExec_t>(graph), StreamOf(device));
  }
  return Judge(device, error);
}

void ReleaseGraph(Device*, Graph graph) {
  cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(graph));
}

Outcome CreateEvent(Device* device, Event* event) {
  *event = nullptr;
  cudaError_t error = cudaSetDevice(device->ordinal);
  cudaEvent_t made = nullptr;
  if (error == cudaSuccess) error = cudaEventCreate(&made);
  *event = made;
  return Judge(device, error);
}

Outcome RecordEvent(Device* device, Event event) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  cudaError_t error = cudaStreamIsCapturing(StreamOf(device), &status);
  if (error == cudaSuccess) {
    // Captured as a node that sets the event, not as a dependency.
    const unsigned flags = status == cudaStreamCaptureStatusActive
                               ? cudaEventRecordExternal
                               : cudaEventRecordDefault;
    error = cudaEventRecordWithFlags(static_cast<cudaEvent_t>(event),
                                     StreamOf(device), flags);
  }
  return Judge(device, error);
}

Outcome Elapsed(Device* device, Event from, Event to, double* seconds) {
  float milliseconds = 0;
  const cudaError_t error =
      cudaEventElapsedTime(&milliseconds, static_cast<cudaEvent_t>(from),
                           static_cast<cudaEvent_t>(to));
  *seconds = 1e-3 * milliseconds;
  return Judge(device, error);
}

Outcome AwaitEvent(Device* device, Event event) {
  return Judge(device, cudaEventSynchronize(static_cast<cudaEvent_t>(event)));
}

void ReleaseEvent(Device*, Event event) {
  cudaEventDestroy(static_cast<cudaEvent_t>(event));
}

const char* ErrorText(int error) {
  return cudaGetErrorString(static_cast<cudaError_t>(error));
}

Module MakeModule() {
  Module table{};
  table.version = kModuleVersion;
  table.open = Open;
  table.close = Close;
  table.allocate = Allocate;
  table.release = Release;
  table.allocate_host = AllocateHost;
  table.release_host = ReleaseHost;
  table.upload = Upload;
  table.download = Download;
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
}  // namespace millrace::cuda

extern "C" __attribute__((visibility("default"))) const millrace::cuda::Module*
millrace_cuda_module(uint32_t version) {
  if (version != millrace::cuda::kModuleVersion) return nullptr;
  static const millrace::cuda::Module table = millrace::cuda::MakeModule();
  return &table;
}
