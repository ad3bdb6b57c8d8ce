#include "handlers/drift/drift_handler.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "handlers/forwarding_handler.h"
#include "handlers/tasks/class_scores.h"

namespace millrace::handlers {
namespace {

// What outlives the handler, which an answer may let go of.
struct Watch {
  std::shared_ptr<DriftMonitor> monitor;
  std::string activation;
  std::string output;  // of the scores

  void See(const TensorResponse& response) const {
    const auto scores = std::find_if(
        response.outputs.begin(), response.outputs.end(),
        [&](const NamedTensor& each) { return each.name == output; });
    if (scores == response.outputs.end()) return;
    const models::Shape& shape = scores->tensor.shape();
    const int64_t num_rows = shape.rank() > 1 ? shape[0] : 1;
    auto all = Reals(scores->tensor);
    if (!all.ok() || all->empty() || num_rows == 0) return;
    const auto row_size = static_cast<int64_t>(all->size()) / num_rows;
    for (int64_t row = 0; row < num_rows; ++row) {
      const auto first = all->begin() + row * row_size;
      std::vector<double> of_row(first, first + row_size);
      // One logit is that of a yes, as the answer has it.
      const bool is_yes = of_row.size() == 1 && activation == "softmax";
      Activate(is_yes ? std::string("sigmoid") : activation, of_row);
      const auto best = BestScores(of_row, 1);
      if (!best.ok() || best->empty()) continue;
      monitor->Observe(best->front().class_idx, best->front().score);
    }
  }
};

class DriftHandler final : public ForwardingHandler {
 public:
  DriftHandler(std::unique_ptr<TensorHandler> inner, Watch watch)
      : ForwardingHandler(std::move(inner)),
        watch_(std::make_shared<const Watch>(std::move(watch))) {}

  void Start(TensorRequest request, Done done, std::stop_token stop) override {
    inner().Start(
        std::move(request),
        [watch = watch_,
         done = std::move(done)](StatusOr<TensorResponse> response) {
          if (response.ok()) watch->See(*response);
          done(std::move(response));
        },
        std::move(stop));
  }

 private:
  const std::shared_ptr<const Watch> watch_;
};

}  // namespace

std::unique_ptr<TensorHandler> MakeDriftHandler(
    std::unique_ptr<TensorHandler> inner, std::shared_ptr<DriftMonitor> monitor,
    std::string activation, std::string output) {
  return std::make_unique<DriftHandler>(
      std::move(inner),
      Watch{std::move(monitor), std::move(activation), std::move(output)});
}

}  // namespace millrace::handlers
