#include "handlers/transducer/transducer_handler.h"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/base/deadline.h"
#include "config/base/out_of_memory.h"
#include "handlers/named_tensors.h"
#include "models/tensor/strings.h"

namespace millrace::handlers {
namespace {

using models::DType;
using models::Tensor;
using models::TensorSpec;

constexpr const char* kState = "state";
constexpr const char* kNewState = "new_state";
constexpr const char* kEnd = "END";
constexpr int64_t kMaxIdleUs = 60'000'000;

class TransducerHandler final : public TensorHandler {
 public:
  explicit TransducerHandler(const TransducerRecogniser* recogniser)
      : recogniser_(*recogniser) {}

  void Start(TensorRequest request, Done done, std::stop_token stop) override {
    const Status status = CatchOutOfMemory(
        [&] { return TryStart(request, done, std::move(stop)); });
    if (!status.ok()) done(status);
  }

  Status HasPlace() const override { return recogniser_.HasPlace(); }
  const std::vector<TensorSpec>& inputs() const override { return inputs_; }
  const std::vector<TensorSpec>& outputs() const override { return outputs_; }

 private:
  Status TryStart(TensorRequest& request, const Done& done,
                  std::stop_token stop) const {
    TransducerRecogniser::Request run;
    ASSIGN_OR_RETURN(
        const std::vector<size_t> wanted,
        OutputsWanted(request.outputs, outputs_, recogniser_.parts().model));
    for (const NamedTensor& input : request.inputs) {
      if (input.name == kState) {
        ASSIGN_OR_RETURN(run.state, ReadState(input.tensor));
      } else if (input.name == kEnd) {
        run.is_last = *input.tensor.data<uint8_t>() != 0;
      } else {
        RETURN_IF_ERROR(
            CheckFits(inputs_[0], input.tensor, recogniser_.parts().model));
        const auto* samples = input.tensor.data<float>();
        run.samples.assign(samples, samples + input.tensor.num_elements());
      }
    }
    run.priority = request.priority;
    run.deadline =
        EarlierDeadline(request.deadline, request.timeout, Clock::Real());
    if (request.trace != nullptr) run.request_id = request.trace->request_id;
    const bool is_last = run.is_last;
    recogniser_.Run(
        std::move(run),
        [this, wanted, done, is_last](auto result) {
          if (!result.ok()) return done(result.status());
          done(CatchOutOfMemory([&]() -> StatusOr<TensorResponse> {
            return ResponseOf(*result, is_last, wanted);
          }));
        },
        std::move(stop));
    return OkStatus();
  }

  TensorResponse ResponseOf(const TransducerRecogniser::Result& result,
                            bool is_last,
                            const std::vector<size_t>& wanted) const {
    const TransducerState& state = result.state;
    TensorResponse response;
    response.batch = result.batch;
    for (const size_t at : wanted) {
      const TensorSpec& spec = outputs_[at];
      Tensor tensor;
      if (spec.name == kNewState) {
        tensor = is_last ? Tensor::Make(DType::kU8, {1}) : WriteState(state);
      } else if (spec.name == "text") {
        const std::string text = recogniser_.TranscriptOf(state).text;
        tensor = models::MakeStrings({1}, std::vector<std::string_view>{text});
      } else if (spec.name == "is_final") {
        tensor = Tensor::Make(DType::kBool, {1});
        *tensor.data<uint8_t>() = is_last ? 1 : 0;
      } else {
        tensor = Tensor::Make(DType::kF32, {1});
        *tensor.data<float>() =
            state.hypotheses.empty()
                ? 0.0F
                : static_cast<float>(state.hypotheses.front().score);
      }
      response.outputs.push_back({spec.name, std::move(tensor)});
    }
    return response;
  }

  const TransducerRecogniser& recogniser_;
  const std::vector<TensorSpec> inputs_ = {
      {.name = kTransducerAudio,
       .dtype = DType::kF32,
       .dims = {-1},
       .text = "FP32 [samples]"},
      {.name = kState,
       .dtype = DType::kU8,
       .dims = {-1},
       .text = "UINT8 [bytes]"},
      {.name = kEnd, .dtype = DType::kBool, .dims = {1}, .text = "BOOL [1]"}};
  const std::vector<TensorSpec> outputs_ = {
      {.name = "text",
       .dtype = models::kString,
       .dims = {1},
       .text = "BYTES [1]"},
      {.name = "is_final",
       .dtype = DType::kBool,
       .dims = {1},
       .text = "BOOL [1]"},
      {.name = "score", .dtype = DType::kF32, .dims = {1}, .text = "FP32 [1]"},
      {.name = kNewState,
       .dtype = DType::kU8,
       .dims = {-1},
       .text = "UINT8 [bytes]"}};
};

}  // namespace

config::SequenceSettings TransducerSequences() {
  config::SequenceSettings settings;
  settings.max_idle_us = kMaxIdleUs;
  settings.controls.push_back({.kind = config::SequenceControl::Kind::kEnd,
                               .input = kEnd,
                               .datatype = "BOOL"});
  settings.states.push_back({.input = kState, .output = kNewState});
  return settings;
}

std::unique_ptr<TensorHandler> MakeTransducerHandler(
    const TransducerRecogniser* recogniser) {
  return std::make_unique<TransducerHandler>(recogniser);
}

}  // namespace millrace::handlers
