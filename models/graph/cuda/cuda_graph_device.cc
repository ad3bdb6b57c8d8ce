// A GPU as a device for graphs, and the choice of a device by its name.
#include <memory>
#include <utility>

#include "config/base/log.h"
#include "config/base/size_text.h"
#include "models/gpu/cuda_context.h"
#include "models/graph/cuda/blas_layers.h"
#include "models/graph/cuda/conv_layers.h"
#include "models/graph/cuda/cuda_plan.h"
#include "models/graph/cuda/device_weights.h"
#include "models/graph/device.h"

namespace millrace::models::graph {
namespace {

cuda::GraphPrecision KernelPrecision(DevicePrecision precision) {
  switch (precision) {
    case DevicePrecision::kF32:
      break;
    case DevicePrecision::kTf32:
      return cuda::GraphPrecision::kTf32;
    case DevicePrecision::kF16:
      return cuda::GraphPrecision::kF16;
    case DevicePrecision::kBf16:
      return cuda::GraphPrecision::kBf16;
  }
  return cuda::GraphPrecision::kF32;
}

class CudaGraphDevice final : public GraphDevice {
 public:
  static StatusOr<std::shared_ptr<GraphDevice>> Open(int32_t ordinal,
                                                     DevicePrecision precision,
                                                     DeviceLibraries asked) {
    ASSIGN_OR_RETURN(const cuda::Module* module, OpenCudaModule());
    ASSIGN_OR_RETURN(
        auto context,
        CudaContext::Open(
            module, ordinal,
            {.setting = "device",
             .remedy = "end what else runs on it, take a smaller model, or set "
                       "device to cpu"}));
    std::unique_ptr<BlasLayers> blas;
    if (asked.gemm == GemmBackend::kCublasLt) {
      StatusOr<std::unique_ptr<BlasLayers>> opened =
          BlasLayers::Open(module, ordinal);
      if (opened.ok()) {
        blas = std::move(opened).value();
      } else {
        LogWarning("native kernels multiply in graphs, not cuBLASLt",
                   {{"why", opened.status().message()}});
      }
    }
    std::unique_ptr<ConvLayers> conv;
    if (asked.conv == ConvBackend::kCudnn) {
      StatusOr<std::unique_ptr<ConvLayers>> opened =
          ConvLayers::Open(module, ordinal);
      if (opened.ok()) {
        conv = std::move(opened).value();
      } else {
        LogWarning("native kernels convolve in graphs, not cuDNN",
                   {{"why", opened.status().message()}});
      }
    }
    return std::shared_ptr<GraphDevice>(
        new CudaGraphDevice(module, ordinal, precision, std::move(context),
                            std::move(blas), std::move(conv)));
  }

  std::string name() const override {
    return "cuda:" + std::to_string(ordinal_);
  }

  DevicePrecision precision() const override { return precision_; }
  DeviceLibraries libraries() const override {
    return {.gemm = blas_ ? GemmBackend::kCublasLt : GemmBackend::kNative,
            .conv = conv_ ? ConvBackend::kCudnn : ConvBackend::kNative};
  }

  Status CheckFits(int64_t weight_bytes) const override {
    if (weight_bytes <= free_bytes_) return OkStatus();
    return ResourceExhausted(name() + " has " + SizeText(free_bytes_) +
                             " of memory left, and the graph's weights take " +
                             SizeText(weight_bytes) +
                             "; end what else runs on it, take a smaller "
                             "model, or set device to cpu")
        .At("device");
  }

  StatusOr<std::unique_ptr<DeviceState>> NewState() override {
    ASSIGN_OR_RETURN(
        auto context,
        CudaContext::Open(
            module_, ordinal_,
            {.setting = "", .remedy = "send fewer rows or smaller ones"}));
    return std::unique_ptr<DeviceState>(
        std::make_unique<CudaState>(std::move(context)));
  }

  StatusOr<std::unique_ptr<const DevicePlan>> NewPlan(
      const Graph& graph, int num_members, const Kernels& kernels,
      WeightPacker& packed,
      const std::function<bool(const Tensor*)>& is_shared) override {
    return CudaPlan::Create({graph, name(), KernelPrecision(precision_),
                             num_members, kernels, packed, weights_,
                             blas_.get(), conv_.get(), is_shared});
  }

 private:
  CudaGraphDevice(const cuda::Module* module, int32_t ordinal,
                  DevicePrecision precision,
                  std::shared_ptr<CudaContext> context,
                  std::unique_ptr<BlasLayers> blas,
                  std::unique_ptr<ConvLayers> conv)
      : module_(module),
        ordinal_(ordinal),
        precision_(precision),
        free_bytes_(context->device().free_bytes),
        weights_(std::move(context)),
        blas_(std::move(blas)),
        conv_(std::move(conv)) {}

  const cuda::Module* const module_;
  const int32_t ordinal_;
  const DevicePrecision precision_;
  const int64_t free_bytes_;  // when it was opened
  DeviceWeights weights_;
  const std::unique_ptr<BlasLayers> blas_;  // null: kernels multiply
  const std::unique_ptr<ConvLayers> conv_;  // null: kernels convolve
};

}  // namespace

std::optional<DevicePrecision> DevicePrecisionOf(std::string_view setting) {
  if (setting == "auto") return DevicePrecision::kTf32;
  for (const DevicePrecision each :
       {DevicePrecision::kF32, DevicePrecision::kTf32, DevicePrecision::kF16,
        DevicePrecision::kBf16}) {
    if (setting == DevicePrecisionName(each)) return each;
  }
  return std::nullopt;
}

std::string_view DevicePrecisionName(DevicePrecision precision) {
  switch (precision) {
    case DevicePrecision::kF32:
      break;
    case DevicePrecision::kTf32:
      return "tf32";
    case DevicePrecision::kF16:
      return "f16";
    case DevicePrecision::kBf16:
      return "bf16";
  }
  return "f32";
}

StatusOr<GemmBackend> GemmBackendOf(std::string_view setting) {
  if (setting == "native") return GemmBackend::kNative;
  if (setting == "cublaslt") return GemmBackend::kCublasLt;
  return InvalidArgument("gemm_backend is '" + std::string(setting) +
                         "'; native and cublaslt exist")
      .At("gemm_backend");
}

StatusOr<ConvBackend> ConvBackendOf(std::string_view setting) {
  if (setting == "native") return ConvBackend::kNative;
  if (setting == "cudnn") return ConvBackend::kCudnn;
  return InvalidArgument("conv_backend is '" + std::string(setting) +
                         "'; native and cudnn exist")
      .At("conv_backend");
}

StatusOr<std::shared_ptr<GraphDevice>> OpenGraphDevice(
    const std::string& name, DevicePrecision precision,
    DeviceLibraries libraries) {
  if (name == "cpu") return std::shared_ptr<GraphDevice>();
  if (name == "auto") {
    StatusOr<std::shared_ptr<GraphDevice>> gpu =
        CudaGraphDevice::Open(0, precision, libraries);
    if (gpu.ok()) return gpu;
    LogInfo("graphs run on the CPU", {{"why", gpu.status().message()}});
    return std::shared_ptr<GraphDevice>();
  }
  ASSIGN_OR_RETURN(const int32_t ordinal, CudaOrdinal(name));
  return CudaGraphDevice::Open(ordinal, precision, libraries);
}

}  // namespace millrace::models::graph
