// One or several devices for the instances of a graph.
#include <algorithm>
#include <string_view>
#include <utility>

#include "config/base/utf8.h"
#include "models/gpu/cuda_context.h"
#include "models/graph/device.h"

namespace millrace::models::graph {
namespace {

// The numbers of all GPUs that there are.
StatusOr<int32_t> CountGpus() {
  ASSIGN_OR_RETURN(const cuda::Module* module, OpenCudaModule());
  ASSIGN_OR_RETURN(const auto context, CudaContext::Open(module, 0, {}));
  return context->device().count;
}

}  // namespace

StatusOr<std::vector<std::shared_ptr<GraphDevice>>> OpenGraphDevices(
    std::string_view names, DevicePrecision precision,
    DeviceLibraries libraries) {
  std::string list(names);
  if (names == "cuda:all") {
    ASSIGN_OR_RETURN(const int32_t count, CountGpus());
    list = "cuda:0";
    for (int32_t i = 1; i < count; ++i) list += ",cuda:" + std::to_string(i);
  }
  std::vector<std::shared_ptr<GraphDevice>> devices;
  for (size_t begin = 0; begin <= list.size();) {
    const size_t end = std::min(list.find(',', begin), list.size());
    const std::string name = list.substr(begin, end - begin);
    begin = end + 1;
    ASSIGN_OR_RETURN(std::shared_ptr<GraphDevice> device,
                     OpenGraphDevice(name, precision, libraries));
    const bool one = end == list.size() && devices.empty();
    if (device == nullptr && one) return devices;
    if (device == nullptr) {
      return InvalidArgument("device is '" + Shortened(list, 64) +
                             "', but several must all be GPUs, as in "
                             "cuda:0,cuda:1")
          .At("device");
    }
    for (const auto& other : devices) {
      if (other->name() != device->name()) continue;
      return InvalidArgument("device names " + device->name() +
                             " twice; name each once")
          .At("device");
    }
    devices.push_back(std::move(device));
  }
  return devices;
}

}  // namespace millrace::models::graph
