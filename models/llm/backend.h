// Where a recipe declares its weights and records its phases, once, at load. A
// device makes a backend (device.h) and later a runner, which runs the recorded
// list once a step.
//
//   const Linear* qkv = backend.AddQkv(q, k, v, {});
//   ...
//   RETURN_IF_ERROR(backend.PackWeights(progress));
//   backend.Embed(*embedding);
//   for (layer…) {
//     backend.NormLinear(norm, *qkv);
//     backend.RopeWriteKv(layer, {.q_scale = scale});
//     backend.Attend(layer);
//     backend.LinearResidual(Branch::kAttention, *attn_output);
//     backend.NormGateUpAct(ffn_norm, *gate_up, Activation::kSilu);
//     backend.LinearResidual(Branch::kFfn, *down);
//   }
//   backend.Head(output_norm, *head);
//
// Shapes are matched here, once, when a phase is recorded; a wrong one is our
// own mistake and stops the process. Loading thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "config/base/status.h"
#include "models/llm/page_groups.h"
#include "models/tensor/quant.h"

namespace millrace::models {

// Consecutive rows of a matrix in the file's own format. The bytes are read
// during PackWeights (AddVector: at once) and not kept; there may be none
// (null) when TakePacked follows.
struct WeightRows {
  GgmlType type = GgmlType::kF32;
  const std::byte* data = nullptr;
  int64_t row_bytes = 0;
  int64_t num_rows = 0;
  int64_t k = 0;  // values a row
  // What the values are rounded to while packed; absent: packed as they are.
  std::optional<GgmlType> quantize = {};

  // `count` rows from row `first` on.
  WeightRows Part(int64_t first, int64_t count) const {
    WeightRows part = *this;
    if (data != nullptr) part.data = data + first * row_bytes;
    part.num_rows = count;
    return part;
  }
};

// A matrix made ready for one backend; opaque to recipes, owned by the backend.
class Linear {
 public:
  virtual ~Linear() = default;
  int64_t inputs() const { return inputs_; }
  int64_t outputs() const { return outputs_; }

 protected:
  Linear(int64_t inputs, int64_t outputs)
      : inputs_(inputs), outputs_(outputs) {}

 private:
  int64_t inputs_;
  int64_t outputs_;
};

// How a backend that rounds activations to int8 does it for one matrix: once,
// or twice (the rounding error of the first time is rounded again and both
// products are added), which is as good as f32 at twice the arithmetic and the
// same reading of weights. Without effect where activations stay f32.
enum class Rounding { kOnce, kTwice };

// Whose rows a LinearResidual reads.
enum class Branch { kAttention, kFfn };

// The function of the gate in a gated feed-forward: SiLU (SwiGLU) or GELU in
// its tanh form (GeGLU). Source: Shazeer 2020.
enum class Activation {
  kSilu,
  kGelu,
  kGeluErf,  // GELU itself, x / 2 * (1 + erf(x / sqrt(2)))
  // gpt-oss: g = min(gate, 7), u = clamp(up, -7, 7);
  // g / (1 + exp(-1.702 g)) * (u + 1). Of experts only.
  kClampedSwiglu,
};

// A norm of rows: RMS (Zhang and Sennrich 2019), or with a bias LayerNorm (Ba
// et al. 2016). Without a weight rows stay as they are.
struct Norm {
  std::span<const float> weight = {};
  std::span<const float> bias = {};
};

// Angles of a rotary position embedding.
struct RopeTable {
  std::vector<float> frequencies;  // radians a position, of each pair
  float magnitude = 1;             // multiplies cosine and sine
};

// q at position p is multiplied by 1 + scale * log(1 + floor((p + 1) /
// length)), so that scores of long texts stay sharp (Nakanishi 2025).
struct QTemperature {
  float length = 0;  // 0: off
  float scale = 0;
};

// What happens to q and k between their projection and the cache.
struct RopeOptions {
  int32_t rope = 0;  // index of BackendShape::ropes; below 0: not rotated
  // Weights of RMS norms of q and of k before they are rotated: over each head,
  // [head_dim], or over all heads together; both empty: none. They live as long
  // as the backend.
  std::span<const float> q_norm = {};
  std::span<const float> k_norm = {};
  float q_scale = 1;  // multiplies q, and so q · k
  QTemperature q_temperature = {};
};

// How a layer attends.
struct AttendOptions {
  // A row sees this many keys, its own the last; 0: all. Or, of chunks of this
  // many positions, the keys of its own chunk up to its own.
  int32_t window = 0;
  bool chunked = false;
  // Scores become cap * tanh(score / cap) (Gemma 2, section 2); 0: they stay.
  float softcap = 0;
  // One more score of each head that takes part in the softmax and has no value
  // (gpt-oss); empty: none. They live as long as the backend.
  std::span<const float> sinks = {};
};

// What x starts from.
struct EmbedOptions {
  float scale = 1;                    // multiplies the token's row
  const Linear* positions = nullptr;  // rows added by position, or null
};

// How a branch joins x.
struct ResidualOptions {
  Norm post_norm = {};  // of what is added
  float scale = 1;      // multiplies it
  // The attention branch joins x with the feed-forward, which so reads the same
  // x (parallel residual, Wang and Komatsuzaki 2021). Without post_norm.
  bool waits = false;
};

struct HeadOptions {
  float scale = 1;    // multiplies logits
  float softcap = 0;  // then they become cap * tanh(logit / cap); 0: they stay
};

// A mixture of experts of one layer: a feed-forward of gate, up and down each.
struct Expert {
  const Linear* gate_up;
  const Linear* down;
};
struct ExpertBiases {
  std::vector<float> gate;
  std::vector<float> up;
  std::vector<float> down;
};
struct ExpertsOptions {
  const Linear* router = nullptr;  // one output for each expert
  std::vector<Expert> experts;
  int32_t used = 0;  // by each row, the shared one not counted
  // The last expert is used by every row, with the weight sigmoid(its output of
  // the router), or 1 where the router has none for it.
  bool shared = false;
  bool shared_gate = true;  // the router has an output for it
  bool normalise = false;   // weights of the others sum to 1
  // Weights of the others are the sigmoid of their output, and multiply what an
  // expert reads rather than what it gives.
  bool sigmoid_inputs = false;
  Activation activation = Activation::kSilu;
};

// Logits [begin, end): whole groups of 16 but for the end of the vocabulary.
inline constexpr int64_t kLogitGroup = 16;
struct LogitRange {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t count() const { return end - begin; }
};
// Those of one rank of a group; ranks differ by one group of logits at most.
LogitRange LogitsOf(int64_t vocab, int32_t rank, int32_t size);

struct BackendShape {
  int32_t layers = 0;
  int32_t hidden = 0;
  int32_t ffn = 0;
  int32_t heads = 0;
  int32_t kv_heads = 0;
  int32_t head_dim = 0;
  int32_t vocab = 0;
  // Of layers with experts; 0: none has.
  int32_t experts_used = 0;  // by each row at most, a shared one included
  int32_t expert_ffn = 0;    // of the widest
  float norm_eps = 0;
  // Steps end with HiddenRows, not with Head.
  bool hidden_rows = false;
  // Of a rank of a group, whose heads, kv_heads and ffn are its own: the logits
  // that it computes; empty: all.
  LogitRange logits;
  bool rope_interleaved = false;
  // Values of a head that are rotated, the first ones; 0: all.
  int32_t rope_dims = 0;
  std::vector<RopeTable> ropes;  // of half as many frequencies
  // Of each layer; empty: a page holds all layers.
  std::vector<KvPlace> kv_places;
  int32_t layers_per_page = 0;  // with kv_places

  KvPlace kv_place(int32_t layer) const {
    return kv_places.empty() ? KvPlace{.layer = layer}
                             : kv_places[static_cast<size_t>(layer)];
  }
  int32_t kv_layers() const {
    return kv_places.empty() ? layers : layers_per_page;
  }
};

class Backend {
 public:
  using Vector = std::span<const float>;  // lives as long as the backend

  virtual ~Backend() = default;
  const BackendShape& shape() const { return shape_; }

  // ---- weights ----
  // A bias has one value for each output, or none.
  const Linear* AddLinear(const WeightRows& rows,
                          Rounding rounding = Rounding::kOnce,
                          std::vector<float> bias = {});
  // Biases are all given or all empty.
  const Linear* AddQkv(const WeightRows& q, const WeightRows& k,
                       const WeightRows& v, std::vector<float> bias_qkv,
                       Rounding rounding = Rounding::kOnce);
  const Linear* AddGateUp(const WeightRows& gate, const WeightRows& up,
                          Rounding rounding = Rounding::kOnce);
  // Of a feed-forward without a gate.
  const Linear* AddUp(const WeightRows& up, std::vector<float> bias,
                      Rounding rounding = Rounding::kOnce);
  // One of the experts of a layer. Biases are all given or all empty.
  Expert AddExpert(const WeightRows& gate, const WeightRows& up,
                   const WeightRows& down, Rounding rounding_gate_up,
                   Rounding rounding_down, ExpertBiases biases = {});
  // The rows of two matrices as one; `last` may be empty. A bias has one value
  // for each output, or none.
  const Linear* AddRouter(const WeightRows& router, const WeightRows& last,
                          std::vector<float> bias = {});
  // `offset` is added to every value.
  Vector AddVector(const WeightRows& row, float offset = 0);
  // Re-lays all declared weights, on all CPUs of the team; same bits for each
  // weight. `progress` hears 0…1 on the calling thread.
  virtual Status PackWeights(const std::function<void(double)>& progress) = 0;
  virtual int64_t weight_bytes() const = 0;
  // How PackWeights lays out what was declared: where this is equal, so are
  // the bytes. Starts with the name of the packing.
  virtual std::string PackedLayout() const = 0;
  // What PackWeights made; lives as long as the backend.
  virtual std::span<const std::byte> packed_weights() const = 0;
  // Instead of PackWeights: copies bytes that were made with this layout.
  virtual Status TakePacked(std::span<const std::byte> bytes,
                            const std::function<void(double)>& progress) = 0;

  // ---- phases, in order of running ----
  // x = scale * table[token] (+ positions[position]); also does the step's page
  // copies.
  void Embed(const Linear& table, const EmbedOptions& options = {});
  // qkv = W · norm(x) (+ bias)
  void NormLinear(const Norm& norm, const Linear& qkv);
  // Normalises q and k if wanted, rotates both, scales q, stores k and v.
  void RopeWriteKv(int32_t layer, const RopeOptions& options);
  // attention = softmax(q · K) · V over each row's own sequence.
  void Attend(int32_t layer, const AttendOptions& options = {});
  // From here on only rows that leave through the head are computed.
  void KeepSampleRows();
  // x += scale * norm(W · rows + bias)
  void LinearResidual(Branch branch, const Linear& w,
                      const ResidualOptions& options = {});
  // ffn = activation(gate · norm(x)) * (up · norm(x)), or of a matrix without
  // gate ffn = activation(up · norm(x) + bias).
  void NormGateUpAct(const Norm& norm, const Linear& gate_up,
                     Activation activation);
  // x += scale * post_norm(sum over the experts that a row uses, in their
  // order, of weight * down · (act(gate · norm(x)) * (up · norm(x)))). Weights
  // are the softmax of all of the router's outputs, or see ExpertsOptions; the
  // greatest ones are used.
  void NormExperts(const Norm& norm, const ExpertsOptions& experts,
                   const ResidualOptions& options = {});
  // logits = W · norm(x). W has all rows, or those of a rank's own logits.
  void Head(const Norm& norm, const Linear& w, const HeadOptions& options = {});
  // Instead of logits rows leave as norm(x).
  void HiddenRows(const Norm& norm);

 protected:
  explicit Backend(BackendShape shape) : shape_(std::move(shape)) {}

 private:
  virtual const Linear* DoAddLinear(const WeightRows& rows, Rounding rounding,
                                    std::vector<float> bias) = 0;
  virtual const Linear* DoAddQkv(const WeightRows& q, const WeightRows& k,
                                 const WeightRows& v,
                                 std::vector<float> bias_qkv,
                                 Rounding rounding) = 0;
  // Biases are both given or both empty.
  virtual const Linear* DoAddGateUp(const WeightRows& gate,
                                    const WeightRows& up, Rounding rounding,
                                    std::span<const float> bias_gate,
                                    std::span<const float> bias_up) = 0;
  virtual const Linear* DoAddUp(const WeightRows& up, std::vector<float> bias,
                                Rounding rounding) = 0;
  virtual void DoEmbed(const Linear& table, const EmbedOptions& options) = 0;
  virtual void DoNormLinear(const Norm& norm, const Linear& qkv) = 0;
  virtual void DoRopeWriteKv(int32_t layer, const RopeOptions& options) = 0;
  virtual void DoAttend(int32_t layer, const AttendOptions& options) = 0;
  virtual void DoKeepSampleRows() = 0;
  virtual void DoLinearResidual(Branch branch, const Linear& w,
                                const ResidualOptions& options) = 0;
  virtual void DoNormGateUpAct(const Norm& norm, const Linear& gate_up,
                               Activation activation) = 0;
  virtual const Linear* DoAddRouter(const WeightRows& router,
                                    const WeightRows& last,
                                    std::vector<float> bias) = 0;
  virtual void DoNormExperts(const Norm& norm, const ExpertsOptions& experts,
                             const ResidualOptions& options) = 0;
  virtual void DoHiddenRows(const Norm& norm) = 0;
  virtual void DoHead(const Norm& norm, const Linear& w,
                      const HeadOptions& options) = 0;

  BackendShape shape_;
  std::vector<std::vector<float>> vectors_;
};

}  // namespace millrace::models
