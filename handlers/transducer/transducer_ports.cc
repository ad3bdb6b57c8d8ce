#include "handlers/transducer/transducer_ports.h"

#include <algorithm>
#include <utility>

namespace millrace::handlers {
namespace {

using models::DType;
using models::Shape;
using models::Tensor;
using models::TensorSpec;

Status Wrong(const std::string& graph, const std::string& why) {
  return InvalidArgument("the " + graph + " of the transducer " + why +
                         "; handlers/README.md says what it takes and gives")
      .At("transducer");
}

std::string Told(const TensorSpec& spec) {
  return "'" + spec.name + "', which is " + spec.text;
}

// As many states go in as come out, in the same order.
Status CheckStates(const std::string& graph, const TensorHandler& handler,
                   bool sizes_known) {
  const std::vector<TensorSpec>& in = handler.inputs();
  const std::vector<TensorSpec>& out = handler.outputs();
  if (in.size() != out.size() || in.empty()) {
    return Wrong(graph, "has " + std::to_string(in.size()) + " inputs and " +
                            std::to_string(out.size()) +
                            " outputs, but each state goes in and comes out");
  }
  for (size_t i = 1; i < in.size(); ++i) {
    const std::vector<int64_t>& dims = in[i].dims;
    const bool is_sized =
        in[i].rank_known &&
        std::all_of(dims.begin() + (sizes_known ? 0 : 1), dims.end(),
                    [](int64_t size) { return size > 0; });
    if (in[i].dtype != out[i].dtype || !is_sized ||
        (dims.empty() && !sizes_known)) {
      return Wrong(graph, "has a state " + Told(in[i]) + " before and " +
                              out[i].text +
                              " behind; it wants one type and known sizes");
    }
  }
  return OkStatus();
}

// [n, width] where sizes of 1 may stand between.
bool IsRow(const TensorSpec& spec) {
  return spec.dtype == DType::kF32 && spec.rank_known &&
         spec.dims.size() >= 2 && spec.dims.back() > 0 &&
         std::all_of(spec.dims.begin() + 1, spec.dims.end() - 1,
                     [](int64_t size) { return size == 1; });
}

Shape RowsOf(const TensorSpec& spec, size_t count) {
  std::vector<int64_t> dims = spec.dims;
  if (!dims.empty()) dims[0] = static_cast<int64_t>(count);
  for (int64_t& size : dims) size = std::max<int64_t>(size, 1);
  return Shape(dims);
}

int64_t RowElements(const TensorSpec& spec) {
  return RowsOf(spec, 1).num_elements();
}

Status NotPromised(const std::string& graph, const NamedTensor& got) {
  return Internal("the " + graph + " of the transducer gave '" + got.name +
                  "' as " +
                  models::TypeText(got.tensor.dtype(), got.tensor.shape()) +
                  ", which is not what it promises");
}

}  // namespace

StatusOr<TransducerPorts> TransducerPorts::Create(
    const TransducerGraphs& graphs, const config::TransducerSettings& settings,
    bool one_hypothesis) {
  TransducerPorts ports(graphs);
  RETURN_IF_ERROR(ports.FitEncoder(settings));
  RETURN_IF_ERROR(ports.FitPredictor(one_hypothesis));
  RETURN_IF_ERROR(ports.FitJoiner());
  return ports;
}

Status TransducerPorts::FitEncoder(const config::TransducerSettings& settings) {
  RETURN_IF_ERROR(CheckStates("encoder", *graphs_.encoder, true));
  const TensorSpec& features = graphs_.encoder->inputs()[0];
  const int64_t length =
      settings.segment_length + settings.right_context_length;
  if (features.dtype != DType::kF32 || features.dims.size() != 3 ||
      features.dims[0] > 1 || features.dims[2] < 1 ||
      (features.dims[1] >= 0 && features.dims[1] != length)) {
    return Wrong("encoder", "takes " + Told(features) + "; expected FP32 [1, " +
                                std::to_string(length) +
                                ", mels], by segment_length " +
                                std::to_string(settings.segment_length) +
                                " and right_context_length " +
                                std::to_string(settings.right_context_length));
  }
  const TensorSpec& encodings = graphs_.encoder->outputs()[0];
  if (encodings.dtype != DType::kF32 || encodings.dims.size() != 3 ||
      encodings.dims[1] < 1 || encodings.dims[2] < 1) {
    return Wrong("encoder", "gives " + Told(encodings) +
                                "; expected FP32 [1, frames, width]");
  }
  num_mels_ = features.dims[2];
  frames_ = encodings.dims[1];
  width_ = encodings.dims[2];
  return OkStatus();
}

Status TransducerPorts::FitPredictor(bool one_hypothesis) {
  const TensorHandler& predictor = *graphs_.predictor;
  RETURN_IF_ERROR(CheckStates("predictor", predictor, false));
  const TensorSpec& token = predictor.inputs()[0];
  if ((token.dtype != DType::kI64 && token.dtype != DType::kI32) ||
      token.dims.empty() || RowElements(token) != 1) {
    return Wrong("predictor",
                 "takes " + Told(token) + "; expected a token INT64 [n]");
  }
  if (!one_hypothesis && token.dims[0] == 1) {
    return Wrong("predictor",
                 "takes " + Told(token) +
                     ", one hypothesis at a time, but beam_width is above 1; "
                     "export it with a first size that varies");
  }
  const TensorSpec& encoding = predictor.outputs()[0];
  if (!IsRow(encoding) || encoding.dims.back() != width_) {
    return Wrong("predictor",
                 "gives " + Told(encoding) + "; expected FP32 [n, " +
                     std::to_string(width_) + "], as the encoder's");
  }
  for (size_t i = 1; i < predictor.inputs().size(); ++i) {
    if (predictor.inputs()[i].dtype == DType::kF32) continue;
    return Wrong("predictor", "has a state " + Told(predictor.inputs()[i]) +
                                  ", but states are FP32");
  }
  return OkStatus();
}

Status TransducerPorts::FitJoiner() {
  const TensorHandler& joiner = *graphs_.joiner;
  if (joiner.inputs().size() != 2 || joiner.outputs().empty()) {
    return Wrong("joiner", "has " + std::to_string(joiner.inputs().size()) +
                               " inputs; expected two encodings");
  }
  for (const TensorSpec& input : joiner.inputs()) {
    if (IsRow(input) && input.dims.back() == width_) continue;
    return Wrong("joiner", "takes " + Told(input) + "; expected FP32 [n, " +
                               std::to_string(width_) + "]");
  }
  if (logits().dtype != DType::kF32) {
    return Wrong("joiner",
                 "gives " + Told(logits()) + "; expected FP32 [n, tokens]");
  }
  if (logits().rank_known && !logits().dims.empty()) {
    num_tokens_ = logits().dims.back();
  }
  return OkStatus();
}

const TensorSpec& TransducerPorts::logits() const {
  return graphs_.joiner->outputs()[0];
}

std::vector<Tensor> TransducerPorts::InitialStates() const {
  std::vector<Tensor> states;
  const std::vector<TensorSpec>& inputs = graphs_.encoder->inputs();
  for (size_t i = 1; i < inputs.size(); ++i) {
    states.push_back(Tensor::Make(inputs[i].dtype, Shape(inputs[i].dims)));
  }
  return states;
}

std::vector<NamedTensor> TransducerPorts::EncoderInputs(
    Tensor features, const std::vector<Tensor>& states) const {
  const std::vector<TensorSpec>& inputs = graphs_.encoder->inputs();
  std::vector<NamedTensor> all;
  all.push_back({inputs[0].name, std::move(features)});
  for (size_t i = 0; i < states.size(); ++i) {
    all.push_back({inputs[i + 1].name, states[i].Share()});
  }
  return all;
}

std::vector<NamedTensor> TransducerPorts::PredictorInputs(
    const std::vector<TransducerSearch::Ask>& asks) const {
  const std::vector<TensorSpec>& inputs = graphs_.predictor->inputs();
  std::vector<NamedTensor> all;
  Tensor tokens = Tensor::Make(inputs[0].dtype, RowsOf(inputs[0], asks.size()));
  for (size_t row = 0; row < asks.size(); ++row) {
    if (inputs[0].dtype == DType::kI64) {
      tokens.data<int64_t>()[row] = asks[row].token;
    } else {
      tokens.data<int32_t>()[row] = static_cast<int32_t>(asks[row].token);
    }
  }
  all.push_back({inputs[0].name, std::move(tokens)});
  for (size_t i = 1; i < inputs.size(); ++i) {
    Tensor state = Tensor::Make(DType::kF32, RowsOf(inputs[i], asks.size()));
    float* out = state.data<float>();
    for (const TransducerSearch::Ask& ask : asks) {
      if (ask.before != nullptr) {
        std::copy(ask.before->states[i - 1].begin(),
                  ask.before->states[i - 1].end(), out);
      }
      out += RowElements(inputs[i]);
    }
    all.push_back({inputs[i].name, std::move(state)});
  }
  return all;
}

std::vector<NamedTensor> TransducerPorts::JoinerInputs(
    std::span<const float> encoding,
    const std::vector<Hypothesis>& alive) const {
  const std::vector<TensorSpec>& inputs = graphs_.joiner->inputs();
  Tensor sound = Tensor::Make(DType::kF32, RowsOf(inputs[0], alive.size()));
  Tensor text = Tensor::Make(DType::kF32, RowsOf(inputs[1], alive.size()));
  float* of_sound = sound.data<float>();
  float* of_text = text.data<float>();
  for (const Hypothesis& each : alive) {
    of_sound = std::copy(encoding.begin(), encoding.end(), of_sound);
    of_text = std::copy(each.prediction->encoding.begin(),
                        each.prediction->encoding.end(), of_text);
  }
  std::vector<NamedTensor> all;
  all.push_back({inputs[0].name, std::move(sound)});
  all.push_back({inputs[1].name, std::move(text)});
  return all;
}

StatusOr<TransducerPorts::Encoded> TransducerPorts::ReadEncoded(
    TensorResponse response) const {
  const std::vector<TensorSpec>& inputs = graphs_.encoder->inputs();
  Encoded encoded;
  for (size_t i = 0; i < response.outputs.size(); ++i) {
    NamedTensor& output = response.outputs[i];
    const bool fits = i == 0
                          ? output.tensor.shape() == Shape({1, frames_, width_})
                          : output.tensor.shape() == Shape(inputs[i].dims);
    if (!fits) return NotPromised("encoder", output);
    if (i == 0) {
      encoded.encodings = std::move(output.tensor);
    } else {
      encoded.states.push_back(std::move(output.tensor));
    }
  }
  return encoded;
}

StatusOr<std::vector<std::shared_ptr<const Prediction>>>
TransducerPorts::ReadPredictions(const TensorResponse& response,
                                 size_t count) const {
  const std::vector<TensorSpec>& inputs = graphs_.predictor->inputs();
  std::vector<std::shared_ptr<Prediction>> made(count);
  for (auto& each : made) each = std::make_shared<Prediction>();
  for (size_t i = 0; i < response.outputs.size(); ++i) {
    const Tensor& tensor = response.outputs[i].tensor;
    const int64_t size = i == 0 ? width_ : RowElements(inputs[i]);
    if (tensor.dtype() != DType::kF32 ||
        tensor.num_elements() != size * static_cast<int64_t>(count)) {
      return NotPromised("predictor", response.outputs[i]);
    }
    const float* from = tensor.data<float>();
    for (auto& each : made) {
      if (i == 0) {
        each->encoding.assign(from, from + size);
      } else {
        each->states.emplace_back(from, from + size);
      }
      from += size;
    }
  }
  return std::vector<std::shared_ptr<const Prediction>>(made.begin(),
                                                        made.end());
}

StatusOr<std::span<const float>> TransducerPorts::ReadLogits(
    const TensorResponse& response, size_t count, int64_t num_tokens) const {
  const NamedTensor& logits = response.outputs[0];
  const int64_t size = num_tokens * static_cast<int64_t>(count);
  if (logits.tensor.dtype() != DType::kF32 ||
      logits.tensor.num_elements() != size) {
    return NotPromised("joiner", logits);
  }
  return std::span(logits.tensor.data<float>(), static_cast<size_t>(size));
}

}  // namespace millrace::handlers
