// A GPU that was opened, through the module that drives it: its memory, and
// sentences for what goes wrong.
//
//   ASSIGN_OR_RETURN(const cuda::Module* module, OpenCudaModule());
//   ASSIGN_OR_RETURN(auto context, CudaContext::Open(module, 0, on_no_memory));
//   ASSIGN_OR_RETURN(CudaBuffer pages, context->Allocate(bytes, "KV pages"));
//
// Used by one thread at a time. A fault that lasts as long as the process is
// told once (lost_device.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "config/base/status.h"
#include "models/cuda/module_api.h"

namespace millrace::models {

// The module in the file that MILLRACE_CUDA_MODULE names, else the one beside
// the program or in ../lib/millrace. It stays open. FAILED_PRECONDITION says
// why there is none.
StatusOr<const cuda::Module*> OpenCudaModule();

// The number in the name of a device: "cuda" is 0, "cuda:3" is 3.
// INVALID_ARGUMENT for other names says which exist.
StatusOr<int32_t> CudaOrdinal(std::string_view name);

// What to do where the device has no memory left, for the message.
struct NoMemoryAdvice {
  std::string setting;  // may be empty
  std::string remedy;   // "lower …, or take a smaller model"
};

class CudaContext;

// Memory of a device, or of the host for transfers.
class CudaBuffer {
 public:
  CudaBuffer() = default;
  CudaBuffer(CudaBuffer&& other) noexcept { *this = std::move(other); }
  CudaBuffer& operator=(CudaBuffer&& other) noexcept {
    std::swap(context_, other.context_);
    std::swap(data_, other.data_);
    std::swap(on_host_, other.on_host_);
    return *this;
  }
  ~CudaBuffer();

  std::byte* data() const { return data_; }
  template <typename T>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }

 private:
  friend class CudaContext;
  std::shared_ptr<CudaContext> context_;  // which must not close before
  std::byte* data_ = nullptr;
  bool on_host_ = false;
};

// Work of a device's stream that was captured and runs again as often as asked.
class CudaGraph {
 public:
  CudaGraph() = default;
  CudaGraph(CudaGraph&& other) noexcept { *this = std::move(other); }
  CudaGraph& operator=(CudaGraph&& other) noexcept {
    std::swap(context_, other.context_);
    std::swap(graph_, other.graph_);
    return *this;
  }
  ~CudaGraph();

  explicit operator bool() const { return graph_ != nullptr; }

 private:
  friend class CudaContext;
  std::shared_ptr<CudaContext> context_;
  cuda::Graph graph_ = nullptr;
};

// A mark on a device's stream.
class CudaEvent {
 public:
  CudaEvent() = default;
  CudaEvent(CudaEvent&& other) noexcept { *this = std::move(other); }
  CudaEvent& operator=(CudaEvent&& other) noexcept {
    std::swap(context_, other.context_);
    std::swap(event_, other.event_);
    return *this;
  }
  ~CudaEvent();

 private:
  friend class CudaContext;
  std::shared_ptr<CudaContext> context_;
  cuda::Event event_ = nullptr;
};

class CudaContext : public std::enable_shared_from_this<CudaContext> {
 public:
  // FAILED_PRECONDITION says why the device cannot serve.
  static StatusOr<std::shared_ptr<CudaContext>> Open(const cuda::Module* module,
                                                     int32_t ordinal,
                                                     NoMemoryAdvice advice);
  ~CudaContext();
  CudaContext(const CudaContext&) = delete;
  CudaContext& operator=(const CudaContext&) = delete;

  const cuda::Module& module() const { return *module_; }
  const cuda::Device& device() const { return device_; }

  // Zeroed; `what` for the message when there is no memory.
  StatusOr<CudaBuffer> Allocate(int64_t bytes, const std::string& what);
  StatusOr<CudaBuffer> AllocateHost(int64_t bytes, const std::string& what);
  Status Upload(void* to, const void* from, int64_t bytes);
  Status Download(void* to, const void* from, int64_t bytes);
  Status Wait();
  // Whether all that was asked of the stream has run; does not wait.
  StatusOr<bool> HasEnded();
  // Makes the device the calling thread's.
  Status MakeCurrent();
  // What `work` asks of the stream is kept instead of run. It must not allocate
  // or wait. Memory that it names must outlive the graph.
  StatusOr<CudaGraph> Capture(const std::function<Status()>& work);
  Status Run(const CudaGraph& graph);
  bool capturing() const { return capturing_; }
  StatusOr<CudaEvent> NewEvent();
  // Stands where the stream's work ends now.
  Status Record(const CudaEvent& event);
  // Until the stream has passed it.
  Status Await(const CudaEvent& event);
  // Once the stream has passed both.
  StatusOr<double> SecondsBetween(const CudaEvent& from, const CudaEvent& to);
  // Of a kernel's launch.
  Status Launched(int error) const;

 private:
  CudaContext(const cuda::Module* module, NoMemoryAdvice advice)
      : module_(module), advice_(std::move(advice)) {}
  Status Judge(cuda::Outcome outcome) const;
  Status Lost(const std::string& why) const;
  StatusOr<CudaBuffer> Own(cuda::Outcome outcome, void* memory, bool on_host,
                           int64_t bytes, const std::string& what);

  const cuda::Module* const module_;
  const NoMemoryAdvice advice_;
  cuda::Device device_;
  bool capturing_ = false;
};

}  // namespace millrace::models
