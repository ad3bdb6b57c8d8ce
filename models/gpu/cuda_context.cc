#include "models/gpu/cuda_context.h"

#include <dlfcn.h>
#include <unistd.h>

#include <charconv>
#include <filesystem>

#include "config/base/module_places.h"
#include "config/base/size_text.h"
#include "config/base/utf8.h"
#include "models/gpu/lost_device.h"

namespace millrace::models {
namespace {

using cuda::Outcome;

// 13000: "13.0".
std::string VersionText(int32_t version) {
  return std::to_string(version / 1000) + "." +
         std::to_string(version % 1000 / 10);
}

Status WhyNot(Outcome outcome, int32_t ordinal, const cuda::Device& device) {
  const std::string name = "cuda:" + std::to_string(ordinal);
  switch (outcome) {
    case Outcome::kFine:
      return OkStatus();
    case Outcome::kNoDriver:
      return FailedPrecondition(name +
                                " cannot serve: there is no NVIDIA driver; "
                                "install one, or set device to cpu");
    case Outcome::kDriverTooOld:
      return FailedPrecondition(name +
                                " cannot serve: the NVIDIA driver knows CUDA " +
                                VersionText(device.driver_version) + ", and " +
                                VersionText(device.needed_version) +
                                " is needed; update it, or set device to cpu");
    case Outcome::kNoDevice:
      return FailedPrecondition(name +
                                " cannot serve: the NVIDIA driver sees no GPU; "
                                "set device to cpu");
    case Outcome::kNoSuchDevice:
      return FailedPrecondition(
          name + " cannot serve: there are " + std::to_string(device.count) +
          " GPUs, numbered from 0; set device to one of them, or to cpu");
    case Outcome::kDeviceTooOld:
      return FailedPrecondition(name + " cannot serve: '" + device.name +
                                "' has compute capability " +
                                std::to_string(device.major) + "." +
                                std::to_string(device.minor) + ", and " +
                                std::to_string(cuda::kOldestMajor) +
                                ".0 is needed; set device to cpu");
    case Outcome::kNoMemory:
      return FailedPrecondition(
          name + " cannot serve: it has no memory left (" + device.text +
          "); end what else runs on it, or set device to cpu");
    case Outcome::kFault:
    case Outcome::kLost:
    case Outcome::kNotYet:
      break;
  }
  return FailedPrecondition(name + " cannot serve: " + device.text);
}

}  // namespace

StatusOr<int32_t> CudaOrdinal(std::string_view name) {
  const Status unknown =
      InvalidArgument("device is '" + Shortened(name, 64) +
                      "'; cpu, cuda:0 (or another number) and auto exist")
          .At("device");
  if (!name.starts_with("cuda")) return unknown;
  const std::string_view number = name.substr(4);
  if (number.empty()) return 0;
  int32_t ordinal = 0;
  const char* last = number.data() + number.size();
  const auto [end, error] = std::from_chars(number.data() + 1, last, ordinal);
  if (number[0] != ':' || error != std::errc() || ordinal < 0 || end != last) {
    return unknown;
  }
  return ordinal;
}

StatusOr<const cuda::Module*> OpenCudaModule() {
  std::string tried;
  for (const std::string& place :
       ModulePlaces("MILLRACE_CUDA_MODULE", cuda::kModuleFile)) {
    if (!tried.empty()) tried += " and ";
    std::error_code error;
    if (!std::filesystem::exists(place, error)) {
      tried += "'" + place + "'";
      continue;
    }
    void* handle = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
      return FailedPrecondition(
                 std::string("the CUDA module cannot be opened: ") + dlerror())
          .At("device");
    }
    const auto entry = reinterpret_cast<cuda::ModuleEntry>(
        dlsym(handle, cuda::kModuleEntryName));
    const cuda::Module* module =
        entry == nullptr ? nullptr : entry(cuda::kModuleVersion);
    if (module == nullptr) {
      return FailedPrecondition("the CUDA module '" + place +
                                "' is of another version of this program; "
                                "install both from one package")
          .At("device");
    }
    return module;
  }
  return FailedPrecondition("there is no CUDA module, looked for " + tried +
                            "; install it, or set device to cpu")
      .At("device");
}

CudaBuffer::~CudaBuffer() {
  if (data_ == nullptr) return;
  cuda::Device device = context_->device();
  const cuda::Module& module = context_->module();
  (on_host_ ? module.release_host : module.release)(&device, data_);
}

StatusOr<std::shared_ptr<CudaContext>> CudaContext::Open(
    const cuda::Module* module, int32_t ordinal, NoMemoryAdvice advice) {
  std::shared_ptr<CudaContext> context(
      new CudaContext(module, std::move(advice)));
  const Outcome outcome = module->open(ordinal, &context->device_);
  const Status status = WhyNot(outcome, ordinal, context->device_);
  if (!status.ok()) return status.At("device");
  return context;
}

CudaContext::~CudaContext() { module_->close(&device_); }

StatusOr<CudaBuffer> CudaContext::Own(Outcome outcome, void* memory,
                                      bool on_host, int64_t bytes,
                                      const std::string& what) {
  if (outcome == Outcome::kNoMemory) {
    return ResourceExhausted("cuda:" + std::to_string(device_.ordinal) +
                             " has no memory for " + what + ", " +
                             SizeText(bytes) + "; " + advice_.remedy)
        .At(advice_.setting);
  }
  RETURN_IF_ERROR(Judge(outcome));
  CudaBuffer buffer;
  buffer.context_ = shared_from_this();
  buffer.data_ = static_cast<std::byte*>(memory);
  buffer.on_host_ = on_host;
  return buffer;
}

StatusOr<CudaBuffer> CudaContext::Allocate(int64_t bytes,
                                           const std::string& what) {
  void* memory = nullptr;
  const Outcome outcome = module_->allocate(&device_, bytes, &memory);
  return Own(outcome, memory, false, bytes, what);
}

StatusOr<CudaBuffer> CudaContext::AllocateHost(int64_t bytes,
                                               const std::string& what) {
  void* memory = nullptr;
  const Outcome outcome = module_->allocate_host(&device_, bytes, &memory);
  return Own(outcome, memory, true, bytes, what);
}

Status CudaContext::Upload(void* to, const void* from, int64_t bytes) {
  return Judge(module_->upload(&device_, to, from, bytes));
}

Status CudaContext::Download(void* to, const void* from, int64_t bytes) {
  return Judge(module_->download(&device_, to, from, bytes));
}

Status CudaContext::Wait() { return Judge(module_->wait(&device_)); }

StatusOr<bool> CudaContext::HasEnded() {
  const Outcome outcome = module_->ask(&device_);
  if (outcome == Outcome::kNotYet) return false;
  RETURN_IF_ERROR(Judge(outcome));
  return true;
}

Status CudaContext::Await(const CudaEvent& event) {
  return Judge(module_->await_event(&device_, event.event_));
}

Status CudaContext::MakeCurrent() {
  return Judge(module_->make_current(&device_));
}

CudaGraph::~CudaGraph() {
  if (graph_ == nullptr) return;
  cuda::Device device = context_->device();
  context_->module().release_graph(&device, graph_);
}

CudaEvent::~CudaEvent() {
  if (event_ == nullptr) return;
  cuda::Device device = context_->device();
  context_->module().release_event(&device, event_);
}

StatusOr<CudaEvent> CudaContext::NewEvent() {
  CudaEvent event;
  const Outcome outcome = module_->create_event(&device_, &event.event_);
  if (event.event_ != nullptr) event.context_ = shared_from_this();
  RETURN_IF_ERROR(Judge(outcome));
  return event;
}

Status CudaContext::Record(const CudaEvent& event) {
  return Judge(module_->record_event(&device_, event.event_));
}

StatusOr<double> CudaContext::SecondsBetween(const CudaEvent& from,
                                             const CudaEvent& to) {
  double seconds = 0;
  RETURN_IF_ERROR(
      Judge(module_->elapsed(&device_, from.event_, to.event_, &seconds)));
  return seconds;
}

StatusOr<CudaGraph> CudaContext::Capture(const std::function<Status()>& work) {
  RETURN_IF_ERROR(Judge(module_->begin_capture(&device_)));
  capturing_ = true;
  const Status asked = work();
  capturing_ = false;
  CudaGraph graph;
  const Outcome ended = module_->end_capture(&device_, &graph.graph_);
  if (graph.graph_ != nullptr) graph.context_ = shared_from_this();
  RETURN_IF_ERROR(asked);
  RETURN_IF_ERROR(Judge(ended));
  return graph;
}

Status CudaContext::Run(const CudaGraph& graph) {
  return Judge(module_->run_graph(&device_, graph.graph_));
}

Status CudaContext::Lost(const std::string& why) const {
  const Status status = Internal(
      "cuda:" + std::to_string(device_.ordinal) +
      " is lost to this process, which has to be started again: " + why);
  TellDeviceLost(status);
  return status;
}

Status CudaContext::Launched(int error) const {
  if (error == 0) return OkStatus();
  if (module_->is_lost(error)) return Lost(module_->error_text(error));
  return Internal("cuda:" + std::to_string(device_.ordinal) +
                  " did not start a kernel: " + module_->error_text(error));
}

Status CudaContext::Judge(Outcome outcome) const {
  if (outcome == Outcome::kFine) return OkStatus();
  if (outcome == Outcome::kLost) return Lost(device_.text);
  return Internal("cuda:" + std::to_string(device_.ordinal) +
                  " failed: " + device_.text);
}

}  // namespace millrace::models
