// Names are GGUF's. A matrix that holds the rows of several others is cut here,
// so that nothing later meets it.
#include "models/llm/model_tensors.h"

#include <string>
#include <utility>

namespace millrace::models {
namespace {

class Finder {
 public:
  Finder(const ModelSource& source, const ModelConfig& config)
      : source_(source), config_(config) {}

  // A vector that a file may have as a matrix of one row.
  StatusOr<const FileTensor*> FindRow(const std::string& name,
                                      int64_t k) const {
    const FileTensor* tensor = source_.FindTensor(name);
    return Find(name, k, tensor != nullptr && tensor->num_dims > 1 ? 1 : 0);
  }
  // A matrix of n rows of k values, in however many dimensions; 1 dimension
  // when n is 0.
  StatusOr<const FileTensor*> Find(const std::string& name, int64_t k,
                                   int64_t n) const {
    const FileTensor* tensor = source_.FindTensor(name);
    const std::string own = source_.TensorName(name);
    if (tensor == nullptr) {
      return InvalidArgument("the file has no tensor '" + own +
                             "'; it is incomplete or of another family than "
                             "it says ('" +
                             config_.architecture + "')");
    }
    const bool shape_fits =
        n == 0 ? tensor->num_elements == k && tensor->dims[0] == k
               : tensor->num_dims >= 2 && tensor->dims[0] == k &&
                     tensor->num_elements == k * n;
    if (!shape_fits) {
      std::string shape;
      for (int i = 0; i < tensor->num_dims; ++i) {
        shape += (i > 0 ? " x " : "") + std::to_string(tensor->dims[i]);
      }
      return InvalidArgument("tensor '" + own + "' is " + shape +
                             ", but the metadata say " + std::to_string(k) +
                             (n > 0 ? " x " + std::to_string(n) : ""));
    }
    const GgmlTypeInfo& info = InfoOf(tensor->type);
    if (!info.served) {
      return Unimplemented("tensor '" + own + "' has weights of type " +
                           std::string(info.name) +
                           "; these are served: " + ServedTypeNames());
    }
    if (n == 0 && info.block_values != 1) {
      return Unimplemented("tensor '" + own + "' is a vector of type " +
                           std::string(info.name) +
                           "; F32, F16 and BF16 are served");
    }
    // Matrices of a file in packed form have their bytes elsewhere.
    if (tensor->data.empty() && (n == 0 || source_.packed() == nullptr)) {
      return InvalidArgument("tensor '" + own + "' has no data");
    }
    return tensor;
  }

 private:
  const ModelSource& source_;
  const ModelConfig& config_;
};

// `count` rows of a matrix, or values of a vector, from `first` on.
const FileTensor* PartOf(const FileTensor& whole, int64_t first, int64_t count,
                         ModelTensors& out) {
  FileTensor part = whole;
  const bool is_vector = whole.num_dims == 1;
  const int64_t row_bytes =
      is_vector ? InfoOf(whole.type).block_bytes : whole.row_bytes;
  if (is_vector) {
    part.dims = {count, 1, 1, 1};
  } else {
    part.num_dims = 2;
    part.dims = {whole.dims[0], count, 1, 1};
  }
  part.num_elements = is_vector ? count : count * whole.dims[0];
  if (!whole.data.empty()) {
    part.data = whole.data.subspan(static_cast<size_t>(first * row_bytes),
                                   static_cast<size_t>(count * row_bytes));
  }
  if (is_vector) part.row_bytes = static_cast<int64_t>(part.data.size());
  return out.parts.emplace_back(std::make_shared<const FileTensor>(part)).get();
}

// A name that a layer without fused matrices would have on its own.
bool IsFused(const LayerSpec& spec, std::string_view name) {
  return spec.fused_gate_up && name == "ffn_up.weight";
}

Status FindFused(const ModelConfig& config, const LayerSpec& spec,
                 const std::string& blk, const Finder& finder,
                 LayerTensors& layer, ModelTensors& out) {
  const int64_t d = config.hidden;
  const int64_t q = int64_t{config.heads} * config.head_dim;
  const int64_t kv = int64_t{config.kv_heads} * config.head_dim;
  if (spec.fused_qkv) {
    ASSIGN_OR_RETURN(const FileTensor* qkv,
                     finder.Find(blk + "attn_qkv.weight", d, q + 2 * kv));
    layer.attn_q = PartOf(*qkv, 0, q, out);
    layer.attn_k = PartOf(*qkv, q, kv, out);
    layer.attn_v = PartOf(*qkv, q + kv, kv, out);
  }
  if (spec.fused_qkv && spec.qkv_bias) {
    ASSIGN_OR_RETURN(const FileTensor* bias,
                     finder.Find(blk + "attn_qkv.bias", q + 2 * kv, 0));
    layer.attn_q_bias = PartOf(*bias, 0, q, out);
    layer.attn_k_bias = PartOf(*bias, q, kv, out);
    layer.attn_v_bias = PartOf(*bias, q + kv, kv, out);
  }
  if (spec.fused_gate_up) {
    ASSIGN_OR_RETURN(
        const FileTensor* both,
        finder.Find(blk + "ffn_up.weight", d, 2 * int64_t{config.ffn}));
    layer.ffn_gate = PartOf(*both, 0, config.ffn, out);
    layer.ffn_up = PartOf(*both, config.ffn, config.ffn, out);
  }
  return OkStatus();
}

// One matrix for each expert: slices of one of three dimensions, or matrices of
// their own ("ffn_gate.3.weight"), as folders and old GGUF files have them.
StatusOr<std::vector<const FileTensor*>> FindMatrices(
    const ModelSource& source, const ModelConfig& config, const Finder& finder,
    const std::string& name, int64_t k, int64_t n, ModelTensors& out) {
  const int64_t count = config.experts.count;
  std::vector<const FileTensor*> matrices;
  if (source.FindTensor(name + "_exps.weight") != nullptr) {
    ASSIGN_OR_RETURN(const FileTensor* all,
                     finder.Find(name + "_exps.weight", k, n * count));
    for (int64_t i = 0; i < count; ++i) {
      matrices.push_back(PartOf(*all, i * n, n, out));
    }
    return matrices;
  }
  for (int64_t i = 0; i < count; ++i) {
    ASSIGN_OR_RETURN(
        const FileTensor* one,
        finder.Find(name + "." + std::to_string(i) + ".weight", k, n));
    matrices.push_back(one);
  }
  return matrices;
}

// One row for each expert.
Status FindExpertBiases(const ModelConfig& config, const std::string& blk,
                        const Finder& finder, LayerTensors& layer,
                        ModelTensors& out) {
  const ExpertConfig& experts = config.experts;
  ASSIGN_OR_RETURN(layer.ffn_gate_inp_bias,
                   finder.Find(blk + "ffn_gate_inp.bias", experts.count, 0));
  const struct {
    const char* name;
    int64_t outputs;
    const FileTensor* ExpertTensors::*bias;
  } biases[] = {
      {"ffn_gate_exps.bias", experts.ffn, &ExpertTensors::gate_bias},
      {"ffn_up_exps.bias", experts.ffn, &ExpertTensors::up_bias},
      {"ffn_down_exps.bias", config.hidden, &ExpertTensors::down_bias}};
  for (const auto& [name, outputs, bias] : biases) {
    ASSIGN_OR_RETURN(const FileTensor* all,
                     finder.Find(blk + name, outputs, experts.count));
    if (InfoOf(all->type).block_values != 1) {
      return Unimplemented("the biases '" + std::string(all->name) +
                           "' are quantised; F32, F16 and BF16 are served");
    }
    if (all->data.empty()) {
      return InvalidArgument("the biases '" + std::string(all->name) +
                             "' have no data; if the file is in packed form, "
                             "make it again with `millrace convert`");
    }
    for (int64_t i = 0; i < experts.count; ++i) {
      layer.experts[static_cast<size_t>(i)].*bias = PartOf(*all, i, 1, out);
    }
  }
  return OkStatus();
}

Status FindExperts(const ModelSource& source, const ModelConfig& config,
                   const std::string& blk, const Finder& finder, bool has_bias,
                   LayerTensors& layer, ModelTensors& out) {
  const ExpertConfig& experts = config.experts;
  const int64_t d = config.hidden;
  ASSIGN_OR_RETURN(layer.ffn_gate_inp,
                   finder.Find(blk + "ffn_gate_inp.weight", d, experts.count));
  ASSIGN_OR_RETURN(const auto gates,
                   FindMatrices(source, config, finder, blk + "ffn_gate", d,
                                experts.ffn, out));
  ASSIGN_OR_RETURN(const auto ups,
                   FindMatrices(source, config, finder, blk + "ffn_up", d,
                                experts.ffn, out));
  ASSIGN_OR_RETURN(const auto downs,
                   FindMatrices(source, config, finder, blk + "ffn_down",
                                experts.ffn, d, out));
  for (size_t i = 0; i < gates.size(); ++i) {
    ExpertTensors expert{};
    expert.gate = gates[i];
    expert.up = ups[i];
    expert.down = downs[i];
    layer.experts.push_back(expert);
  }
  if (has_bias) {
    RETURN_IF_ERROR(FindExpertBiases(config, blk, finder, layer, out));
  }
  if (experts.shared_ffn == 0) return OkStatus();
  if (experts.shared_gate) {
    ASSIGN_OR_RETURN(layer.ffn_gate_inp_shexp,
                     finder.FindRow(blk + "ffn_gate_inp_shexp.weight", d));
  }
  ExpertTensors shared{};
  ASSIGN_OR_RETURN(shared.gate, finder.Find(blk + "ffn_gate_shexp.weight", d,
                                            experts.shared_ffn));
  ASSIGN_OR_RETURN(shared.up, finder.Find(blk + "ffn_up_shexp.weight", d,
                                          experts.shared_ffn));
  ASSIGN_OR_RETURN(shared.down, finder.Find(blk + "ffn_down_shexp.weight",
                                            experts.shared_ffn, d));
  layer.experts.push_back(shared);
  return OkStatus();
}

Status FindRopeFactors(const ModelSource& source, const ModelConfig& config,
                       const Finder& finder, ModelTensors& out) {
  const struct {
    const char* name;
    const FileTensor*& tensor;
    bool needed;
  } wanted[] = {
      {"rope_freqs.weight", out.rope_freqs, false},
      {"rope_factors_short.weight", out.rope_short,
       config.ropes.front().scaling == RopeScaling::kLong},
      {"rope_factors_long.weight", out.rope_long,
       config.ropes.front().scaling == RopeScaling::kLong},
  };
  for (const auto& want : wanted) {
    if (!want.needed && source.FindTensor(want.name) == nullptr) continue;
    ASSIGN_OR_RETURN(want.tensor,
                     finder.Find(want.name, config.rope_dims / 2, 0));
  }
  return OkStatus();
}

}  // namespace

StatusOr<ModelTensors> FindModelTensors(const ModelSource& source,
                                        const ModelConfig& config) {
  const Finder finder(source, config);
  ModelTensors out{};
  const int64_t d = config.hidden;
  const int64_t dim = config.head_dim;
  const int64_t q = int64_t{config.heads} * dim;
  const int64_t kv = int64_t{config.kv_heads} * dim;
  ASSIGN_OR_RETURN(out.token_embd,
                   finder.Find("token_embd.weight", d, config.vocab));
  if (config.learned_positions) {
    ASSIGN_OR_RETURN(out.position_embd,
                     finder.Find("position_embd.weight", d, config.context));
  }
  ASSIGN_OR_RETURN(out.output_norm, finder.Find("output_norm.weight", d, 0));
  if (config.layer_norms) {
    ASSIGN_OR_RETURN(out.output_norm_bias,
                     finder.Find("output_norm.bias", d, 0));
  }
  out.output = out.token_embd;
  if (!config.tied_output) {
    ASSIGN_OR_RETURN(out.output, finder.Find("output.weight", d, config.vocab));
  }
  RETURN_IF_ERROR(FindRopeFactors(source, config, finder, out));
  for (int32_t i = 0; i < config.layers; ++i) {
    const std::string blk = "blk." + std::to_string(i) + ".";
    const LayerSpec& spec = config.specs[static_cast<size_t>(i)];
    LayerTensors layer{};
    const bool lone = !spec.fused_qkv;
    const bool norm_bias = config.layer_norms;
    const bool qk_norm =
        spec.qk_norm == QkNorm::kHeads || spec.qk_norm == QkNorm::kWhole;
    const bool whole = spec.qk_norm == QkNorm::kWhole;
    const bool dense = !spec.experts;
    const bool renamed = spec.ffn_norm_named_post_attention;
    const bool own_gate = dense && spec.gated && !spec.fused_gate_up;
    const struct {
      const char* name;
      int64_t k;
      int64_t n;  // 0: a vector
      const FileTensor*& tensor;
      bool present = true;
    } wanted[] = {
        {"attn_norm.weight", d, 0, layer.attn_norm, spec.pre_norms},
        {"attn_norm.bias", d, 0, layer.attn_norm_bias, norm_bias},
        {"attn_q.weight", d, q, layer.attn_q, lone},
        {"attn_k.weight", d, kv, layer.attn_k, lone},
        {"attn_v.weight", d, kv, layer.attn_v, lone},
        {"attn_output.weight", q, d, layer.attn_output},
        {"attn_output.bias", d, 0, layer.attn_output_bias, spec.output_bias},
        {"ffn_norm.weight", d, 0, layer.ffn_norm, spec.pre_norms && !renamed},
        {"post_attention_norm.weight", d, 0,
         renamed ? layer.ffn_norm : layer.post_attention_norm,
         renamed || spec.post_norms},
        {"ffn_norm.bias", d, 0, layer.ffn_norm_bias, norm_bias},
        {"ffn_gate.weight", d, config.ffn, layer.ffn_gate, own_gate},
        {"ffn_up.weight", d, config.ffn, layer.ffn_up,
         dense && !spec.fused_gate_up},
        {"ffn_up.bias", config.ffn, 0, layer.ffn_up_bias, spec.ffn_bias},
        {"ffn_down.weight", config.ffn, d, layer.ffn_down, dense},
        {"ffn_down.bias", d, 0, layer.ffn_down_bias, spec.ffn_bias},
        {"attn_q.bias", q, 0, layer.attn_q_bias, spec.qkv_bias && lone},
        {"attn_k.bias", kv, 0, layer.attn_k_bias, spec.qkv_bias && lone},
        {"attn_v.bias", kv, 0, layer.attn_v_bias, spec.qkv_bias && lone},
        {"attn_sinks.weight", config.heads, 0, layer.attn_sinks, spec.sinks},
        {"attn_q_norm.weight", whole ? q : dim, 0, layer.attn_q_norm, qk_norm},
        {"attn_k_norm.weight", whole ? kv : dim, 0, layer.attn_k_norm, qk_norm},
        {"post_ffw_norm.weight", d, 0, layer.post_ffw_norm, spec.post_norms},
    };
    for (const auto& want : wanted) {
      if (want.present) {
        ASSIGN_OR_RETURN(want.tensor,
                         finder.Find(blk + want.name, want.k, want.n));
      } else if (!IsFused(spec, want.name) &&
                 source.FindTensor(blk + want.name) != nullptr) {
        return Unimplemented("tensor '" + source.TensorName(blk + want.name) +
                             "' is not supported in the family '" +
                             config.architecture + "'");
      }
    }
    RETURN_IF_ERROR(FindFused(config, spec, blk, finder, layer, out));
    if (spec.experts) {
      RETURN_IF_ERROR(FindExperts(source, config, blk, finder, spec.expert_bias,
                                  layer, out));
    }
    out.layers.push_back(layer);
  }
  return out;
}

}  // namespace millrace::models
