#include "tests/unit/models/llm/reference_llama.h"

#include <algorithm>
#include <cmath>

namespace millrace::models {
namespace {

using Row = std::vector<double>;

Row Load(const FileTensor* tensor, int64_t row) {
  std::vector<float> values(static_cast<size_t>(tensor->dims[0]));
  DequantizeRow(tensor->type, tensor->row(row), tensor->dims[0], values.data());
  return Row(values.begin(), values.end());
}

Row Times(const FileTensor* w, const Row& x, const FileTensor* bias) {
  Row y(static_cast<size_t>(w->dims[1]));
  const Row b = bias != nullptr ? Load(bias, 0) : Row(y.size(), 0.0);
  for (size_t n = 0; n < y.size(); ++n) {
    const Row row = Load(w, static_cast<int64_t>(n));
    y[n] = b[n];
    for (size_t k = 0; k < x.size(); ++k) y[n] += row[k] * x[k];
  }
  return y;
}

Row NormRow(const FileTensor* weight, const Row& x, double eps) {
  const Row w = Load(weight, 0);
  double squares = 0;
  for (const double value : x) squares += value * value;
  const double scale =
      1 / std::sqrt(squares / static_cast<double>(x.size()) + eps);
  Row out(x.size());
  for (size_t i = 0; i < x.size(); ++i) out[i] = x[i] * scale * w[i];
  return out;
}

void Rotate(const ModelConfig& config, int position, double* head) {
  const int half = config.head_dim / 2;
  for (int i = 0; i < half; ++i) {
    const double angle =
        position * std::pow(static_cast<double>(config.ropes[0].freq_base),
                            -2.0 * i / config.head_dim);
    double& a = head[config.rope_interleaved ? 2 * i : i];
    double& b = head[config.rope_interleaved ? 2 * i + 1 : i + half];
    const double a0 = a;
    a = a0 * std::cos(angle) - b * std::sin(angle);
    b = a0 * std::sin(angle) + b * std::cos(angle);
  }
}

}  // namespace

std::vector<std::vector<double>> ReferenceLogits(
    const ModelConfig& config, const ModelTensors& tensors,
    std::span<const int32_t> tokens) {
  const int d = config.head_dim;
  const int group = config.heads / config.kv_heads;
  std::vector<std::vector<Row>> keys(tensors.layers.size());
  std::vector<std::vector<Row>> values(tensors.layers.size());
  std::vector<Row> logits;
  for (size_t t = 0; t < tokens.size(); ++t) {
    const int position = static_cast<int>(t);
    Row x = Load(tensors.token_embd, tokens[t]);
    for (size_t i = 0; i < tensors.layers.size(); ++i) {
      const LayerTensors& layer = tensors.layers[i];
      const Row h = NormRow(layer.attn_norm, x, config.norm_eps);
      Row q = Times(layer.attn_q, h, layer.attn_q_bias);
      Row k = Times(layer.attn_k, h, layer.attn_k_bias);
      for (int n = 0; n < config.heads; ++n) {
        Rotate(config, position, q.data() + n * d);
      }
      for (int n = 0; n < config.kv_heads; ++n) {
        Rotate(config, position, k.data() + n * d);
      }
      keys[i].push_back(k);
      values[i].push_back(Times(layer.attn_v, h, layer.attn_v_bias));
      Row attended(q.size(), 0.0);
      for (int n = 0; n < config.heads; ++n) {
        const int kv = n / group;
        Row p;
        const size_t first =
            config.specs[i].window > 0
                ? std::max(0, position + 1 - config.specs[i].window)
                : 0;
        for (size_t s = first; s <= t; ++s) {
          const Row& key = keys[i][s];
          double dot = 0;
          for (int e = 0; e < d; ++e) dot += q[n * d + e] * key[kv * d + e];
          p.push_back(dot / std::sqrt(d));
        }
        const double greatest = *std::max_element(p.begin(), p.end());
        double sum = 0;
        for (double& value : p) sum += value = std::exp(value - greatest);
        for (size_t s = 0; s < p.size(); ++s) {
          for (int e = 0; e < d; ++e) {
            attended[n * d + e] +=
                p[s] / sum * values[i][first + s][kv * d + e];
          }
        }
      }
      const Row o = Times(layer.attn_output, attended, nullptr);
      for (size_t e = 0; e < x.size(); ++e) x[e] += o[e];
      const Row f = NormRow(layer.ffn_norm, x, config.norm_eps);
      Row gate = Times(layer.ffn_gate, f, nullptr);
      const Row up = Times(layer.ffn_up, f, nullptr);
      for (size_t e = 0; e < gate.size(); ++e) {
        gate[e] = gate[e] / (1 + std::exp(-gate[e])) * up[e];
      }
      const Row down = Times(layer.ffn_down, gate, nullptr);
      for (size_t e = 0; e < x.size(); ++e) x[e] += down[e];
    }
    logits.push_back(Times(tensors.output,
                           NormRow(tensors.output_norm, x, config.norm_eps),
                           nullptr));
  }
  return logits;
}

}  // namespace millrace::models
