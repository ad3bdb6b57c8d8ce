// From tensors of a file to matrices of a backend.
#include "models/llm/weights.h"

#include <algorithm>
#include <utility>

namespace millrace::models {
namespace {

// Rows that are no whole number of blocks stay as they are.
WeightRows RowsOf(const FileTensor& tensor,
                  std::optional<GgmlType> quantize = {}) {
  if (quantize && tensor.dims[0] % InfoOf(*quantize).block_values != 0) {
    quantize.reset();
  }
  return {.type = tensor.type,
          .data = tensor.data.data(),
          .row_bytes = tensor.row_bytes,
          .num_rows = tensor.num_elements / tensor.dims[0],
          .k = tensor.dims[0],
          .quantize = quantize};
}

void AppendVector(const FileTensor* tensor, std::vector<float>& out) {
  if (tensor == nullptr) return;
  const size_t at = out.size();
  out.resize(at + static_cast<size_t>(tensor->num_elements));
  CHECK(DequantizeRow(tensor->type, tensor->data.data(), tensor->num_elements,
                      out.data() + at),
        "vectors have a served type");
}

std::vector<float> VectorOf(const FileTensor* tensor) {
  std::vector<float> out;
  AppendVector(tensor, out);
  return out;
}

// "q4_0" for Q4_0
std::string NameOfQuantize(GgmlType type) {
  std::string name(InfoOf(type).name);
  std::transform(name.begin(), name.end(), name.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  return name;
}

// How often a layer's activations are rounded before each of its matrices.
struct LayerRounding {
  Rounding qkv, attn_output, gate_up, down;
};

// The last layer's rounding errors reach the logits undamped: rounding there
// twice takes 14 % off the mean KL divergence from f32 arithmetic for 3 % of a
// decoding step's products. The finer mode rounds nearly everything twice; what
// matters least stays: of its divergence of 1.3e-4 (against 1.9e-3), all of
// attn_output brings 0.7e-4 and gate_up of the first third most of the rest,
// together a quarter of a prompt's products. SmolLM2-135M Q4_1,
// tests/bench/fidelity.
LayerRounding RoundingOf(size_t layer, size_t layers, bool finer) {
  constexpr Rounding kOnce = Rounding::kOnce, kTwice = Rounding::kTwice;
  if (layer + 1 == layers) return {kTwice, kTwice, kTwice, kTwice};
  if (!finer) return {kOnce, kOnce, kOnce, kOnce};
  return {kTwice, kOnce, 3 * layer < layers ? kOnce : kTwice, kTwice};
}

Backend::Vector Ones(int64_t count, Backend& backend) {
  const std::vector<float> ones(static_cast<size_t>(count), 1.0f);
  return backend.AddVector(
      {.type = GgmlType::kF32,
       .data = reinterpret_cast<const std::byte*>(ones.data()),
       .row_bytes = count * static_cast<int64_t>(sizeof(float)),
       .num_rows = 1,
       .k = count});
}

}  // namespace

std::vector<RopeTable> RopeTables(const ModelConfig& config,
                                  const ModelTensors& tensors,
                                  int32_t context) {
  const RopeFactors factors = {.all = VectorOf(tensors.rope_freqs),
                               .of_short = VectorOf(tensors.rope_short),
                               .of_long = VectorOf(tensors.rope_long)};
  std::vector<RopeTable> out;
  for (const RopeConfig& rope : config.ropes) {
    out.push_back(MakeRopeTable(rope, factors, config.rope_dims, context));
  }
  return out;
}

StatusOr<QuantizeTo> ReadQuantize(const std::string& name,
                                  const ModelTensors& tensors) {
  QuantizeTo out;
  if (name == "none") return out;
  for (const GgmlType type : {GgmlType::kQ8_0, GgmlType::kQ4_0, GgmlType::kQ4_1,
                              GgmlType::kQ5_0, GgmlType::kQ5_1}) {
    if (NameOfQuantize(type) == name) out.layers = type;
  }
  if (!out.layers) {
    return InvalidArgument("quantize is '" + name +
                           "'; none, q8_0, q4_0, q4_1, q5_0 and q5_1 exist")
        .At("quantize");
  }
  out.outside = GgmlType::kQ8_0;
  std::vector<const FileTensor*> matrices = {tensors.token_embd,
                                             tensors.output};
  for (const LayerTensors& layer : tensors.layers) {
    matrices.insert(matrices.end(), {layer.attn_q, layer.attn_k, layer.attn_v,
                                     layer.attn_output, layer.ffn_gate,
                                     layer.ffn_up, layer.ffn_down});
    for (const ExpertTensors& expert : layer.experts) {
      matrices.insert(matrices.end(), {expert.gate, expert.up, expert.down});
    }
  }
  for (const FileTensor* matrix : matrices) {
    if (matrix == nullptr) continue;
    const GgmlTypeInfo& info = InfoOf(matrix->type);
    if (info.block_values == 1) continue;
    return InvalidArgument("quantize is '" + name + "', but tensor '" +
                           std::string(matrix->name) + "' is " +
                           std::string(info.name) +
                           " already; it is for weights in F32, F16 or BF16: "
                           "leave it out")
        .At("quantize");
  }
  return out;
}

StatusOr<ModelWeights> LoadWeights(
    const ModelSource& source, const ModelConfig& config,
    const ModelTensors& tensors, bool finer, const QuantizeTo& quantize,
    Backend& backend, const std::function<void(double)>& progress) {
  source.WillRead();
  ModelWeights out{};
  const auto vector = [&](const FileTensor* tensor, float offset) {
    return tensor == nullptr ? Backend::Vector()
                             : backend.AddVector(RowsOf(*tensor), offset);
  };
  const auto norm = [&](const FileTensor* weight,
                        const FileTensor* bias = nullptr) -> Norm {
    return {.weight = vector(weight, config.norm_offset),
            .bias = vector(bias, 0)};
  };
  const Rounding outside = finer ? Rounding::kTwice : Rounding::kOnce;
  out.token_embd =
      backend.AddLinear(RowsOf(*tensors.token_embd, quantize.outside), outside);
  if (tensors.position_embd != nullptr) {
    out.position_embd = backend.AddLinear(RowsOf(*tensors.position_embd));
  }
  for (size_t i = 0; i < tensors.layers.size(); ++i) {
    const LayerTensors& from = tensors.layers[i];
    const LayerRounding rounding = RoundingOf(i, tensors.layers.size(), finer);
    const auto rows = [&](const FileTensor* tensor) {
      return RowsOf(*tensor, quantize.layers);
    };
    LayerWeights layer{};
    std::vector<float> bias;
    AppendVector(from.attn_q_bias, bias);
    AppendVector(from.attn_k_bias, bias);
    AppendVector(from.attn_v_bias, bias);
    layer.attn_norm = norm(from.attn_norm, from.attn_norm_bias);
    layer.attn_qkv =
        backend.AddQkv(rows(from.attn_q), rows(from.attn_k), rows(from.attn_v),
                       std::move(bias), rounding.qkv);
    layer.attn_q_norm = vector(from.attn_q_norm, config.norm_offset);
    layer.attn_k_norm = vector(from.attn_k_norm, config.norm_offset);
    if (config.specs[i].qk_norm == QkNorm::kHeadsUnweighted) {
      layer.attn_q_norm = layer.attn_k_norm = Ones(config.head_dim, backend);
    }
    layer.attn_sinks = vector(from.attn_sinks, 0);
    layer.attn_output =
        backend.AddLinear(rows(from.attn_output), rounding.attn_output,
                          VectorOf(from.attn_output_bias));
    layer.post_attention_norm = norm(from.post_attention_norm);
    layer.ffn_norm = norm(from.ffn_norm, from.ffn_norm_bias);
    for (const ExpertTensors& expert : from.experts) {
      layer.experts.push_back(
          backend.AddExpert(rows(expert.gate), rows(expert.up),
                            rows(expert.down), rounding.gate_up, rounding.down,
                            {.gate = VectorOf(expert.gate_bias),
                             .up = VectorOf(expert.up_bias),
                             .down = VectorOf(expert.down_bias)}));
    }
    if (from.ffn_gate_inp != nullptr) {
      layer.router = backend.AddRouter(RowsOf(*from.ffn_gate_inp),
                                       from.ffn_gate_inp_shexp != nullptr
                                           ? RowsOf(*from.ffn_gate_inp_shexp)
                                           : WeightRows{},
                                       VectorOf(from.ffn_gate_inp_bias));
    } else {
      layer.ffn_gate_up =
          from.ffn_gate != nullptr
              ? backend.AddGateUp(rows(from.ffn_gate), rows(from.ffn_up),
                                  rounding.gate_up)
              : backend.AddUp(rows(from.ffn_up), VectorOf(from.ffn_up_bias),
                              rounding.gate_up);
      layer.ffn_down = backend.AddLinear(rows(from.ffn_down), rounding.down,
                                         VectorOf(from.ffn_down_bias));
    }
    layer.post_ffw_norm = norm(from.post_ffw_norm);
    out.layers.push_back(std::move(layer));
  }
  out.output_norm = norm(tensors.output_norm, tensors.output_norm_bias);
  out.output =
      tensors.output == tensors.token_embd || backend.shape().hidden_rows
          ? out.token_embd
          : backend.AddLinear(RowsOf(*tensors.output, quantize.outside),
                              outside);
  if (const PackedWeights* packed = source.packed(); packed == nullptr) {
    RETURN_IF_ERROR(backend.PackWeights(progress));
  } else if (packed->layout == backend.PackedLayout()) {
    RETURN_IF_ERROR(backend.TakePacked(packed->bytes, progress));
  } else {
    return FailedPrecondition(
        "the weights are packed as " + packed->layout +
        ", but these settings and this CPU want " + backend.PackedLayout() +
        "; use the original file, or make this one again with `millrace "
        "convert` (see its --isa and --compute-dtype)");
  }
  source.DropPages();
  return out;
}

}  // namespace millrace::models
