// A device that runs language models: the cores of this machine, or a GPU. It
// makes the backend that a recipe records into and the runner that
// then runs steps. What stands above sees neither its memory nor its workers.
//
//   ASSIGN_OR_RETURN(const auto device, OpenDevice("cpu", settings, isa,
//   cpus)); const auto backend = device->NewBackend(shape, limits);
//   ...  // weights are added and packed, the recipe records its phases
//   ASSIGN_OR_RETURN(auto runner, device->NewRunner(info, std::move(backend)));
//
// A model and its draft model share one device, and take turns on it. Loading
// thread only; runners outlive the device.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "config/base/status.h"
#include "config/schema.h"
#include "config/topology.h"
#include "models/group/group.h"
#include "models/llm/backend.h"
#include "models/llm/lora_layout.h"
#include "models/llm/runner.h"
#include "models/llm/step.h"

namespace millrace::models {

// What rank 0's device makes and those of all ranks connect by.
using GroupKey = std::array<std::byte, 128>;

class Device {
 public:
  virtual ~Device() = default;

  virtual std::string name() const = 0;     // as in the settings: "cuda:0"
  virtual std::string kernels() const = 0;  // "avx512vnni"
  virtual int32_t threads() const = 0;      // of the host that compute for it

  // How its runners read LoRA adapters; none: they are refused at load.
  virtual std::optional<LoraPacking> adapter_packing() const { return {}; }
  // Backends that are made later compute a part of each step, as one rank of
  // the group. UNIMPLEMENTED where the device has no such parts.
  virtual Status Join(std::shared_ptr<Group> /*group*/) {
    return Unimplemented("device '" + name() +
                         "' does not serve with tensor_parallel_size above 1")
        .At("tensor_parallel_size");
  }
  // Behind Join. Ranks whose devices reach each other on ways of their own
  // connect them by a key of rank 0, all at once. A rank whose Connect fails
  // gives UNAVAILABLE: the others wait for it there, and no meeting reaches
  // them.
  virtual StatusOr<GroupKey> NewGroupKey() { return GroupKey{}; }
  virtual Status Connect(const GroupKey& /*key*/) { return OkStatus(); }
  // What must be the same at all ranks beside kernels(), for people.
  virtual std::string group_facts() const { return ""; }
  // What weights and KV pages may take together of memory of its own; 0: it
  // has none, and takes the host's.
  virtual int64_t memory_bytes() const { return 0; }
  // What a matrix of a file, and the buffers of a step, take of such memory.
  virtual int64_t WeightBytes(GgmlType /*type*/, int64_t /*rows*/,
                              int64_t /*k*/) const {
    return 0;
  }
  virtual int64_t StepBytes(const BackendShape& /*shape*/,
                            const StepLimits& /*limits*/) const {
    return 0;
  }
  // Its steps may have several page groups (page_groups.h).
  virtual bool has_page_groups() const { return false; }
  // Bytes of one page of keys and values, all its layers together.
  virtual int64_t KvPageBytes(const BackendShape& shape) const = 0;
  virtual std::unique_ptr<Backend> NewBackend(const BackendShape& shape,
                                              const StepLimits& limits) = 0;
  // Ends the recording of a backend that this device made and gives it
  // info.num_pages pages for keys and values. The runner's own info() may say
  // more than `info`: kv_depends_on_role is the device's choice.
  virtual StatusOr<std::unique_ptr<Runner>> NewRunner(
      const RunnerInfo& info, std::unique_ptr<Backend> backend) = 0;
};

// The device of the name: "cpu", "cuda:0", or "auto" for the
// GPU, and where that cannot serve the CPU, with a line in the log that says
// why. `isa` names the kernel table on a CPU. INVALID_ARGUMENT names a setting
// that is out of range; FAILED_PRECONDITION says why a GPU cannot serve.
StatusOr<std::unique_ptr<Device>> OpenDevice(
    const std::string& name, const config::LlmSettings& settings,
    const std::string& isa, const config::CpuSet& cpus);

}  // namespace millrace::models
