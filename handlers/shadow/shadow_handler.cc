#include "handlers/shadow/shadow_handler.h"

#include <utility>
#include <vector>

#include "handlers/forwarding_handler.h"
#include "models/tensor/strings.h"
#include "scheduler/batcher.h"

namespace millrace::handlers {
namespace {

// Strings are views of what the model may keep.
models::Tensor Kept(const models::Tensor& tensor) {
  return tensor.dtype() == models::kString ? tensor.Copy() : tensor.Share();
}

std::vector<NamedTensor> Kept(const std::vector<NamedTensor>& tensors) {
  std::vector<NamedTensor> kept;
  kept.reserve(tensors.size());
  for (const NamedTensor& each : tensors) {
    kept.push_back({each.name, Kept(each.tensor)});
  }
  return kept;
}

class ShadowHandler final : public ForwardingHandler {
 public:
  ShadowHandler(std::unique_ptr<TensorHandler> inner, const ShadowParts& parts)
      : ForwardingHandler(std::move(inner)), targets_(parts) {}

  void Start(TensorRequest request, Done done, std::stop_token stop) override {
    // A shadow's request: shadows of shadows could go in a circle.
    const auto entered = request.priority == scheduler::kLowestPriority
                             ? nullptr
                             : targets_.Enter();
    if (entered == nullptr) {
      return inner().Start(std::move(request), std::move(done),
                           std::move(stop));
    }
    for (ShadowJob& job : entered->jobs()) {
      job.inputs = Kept(request.inputs);
      job.output_names = request.outputs;
    }
    inner().Start(
        std::move(request),
        [entered, done = std::move(done)](StatusOr<TensorResponse> response) {
          const bool is_ok = response.ok();
          if (is_ok) {
            for (ShadowJob& job : entered->jobs()) {
              job.outputs = Kept(response->outputs);
            }
          }
          done(std::move(response));
          // The model may be gone; what is left is held by `entered`.
          if (is_ok) entered->Post();
        },
        std::move(stop));
  }

 private:
  ShadowTargets targets_;
};

}  // namespace

std::unique_ptr<TensorHandler> MakeShadowHandler(
    std::unique_ptr<TensorHandler> inner, const ShadowParts& parts) {
  return std::make_unique<ShadowHandler>(std::move(inner), parts);
}

}  // namespace millrace::handlers
