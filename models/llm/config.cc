// Keys by the names they have in GGUF without the architecture's prefix. The
// vocabulary's size is that of the embedding, not vocab_size, which some files
// lack or round; the tokenizer must not be larger.
#include "models/llm/config.h"

#include <cmath>
#include <string>

#include "models/llm/families.h"

namespace millrace::models {
namespace {

class Keys {
 public:
  explicit Keys(const ModelSource& source) : source_(source) {}

  std::string Name(std::string_view key) const { return source_.KeyName(key); }
  // An integer from 1 to the limit.
  StatusOr<int32_t> Count(std::string_view key, int64_t limit) const {
    const SourceValue* value = source_.FindKey(key);
    if (value != nullptr && value->is_array) {
      return Unimplemented(Name(key) +
                           " differs from layer to layer, which is not "
                           "supported");
    }
    ASSIGN_OR_RETURN(const int64_t n, source_.Int(key));
    if (n < 1 || n > limit) {
      return InvalidArgument(Name(key) + " is " + std::to_string(n) +
                             ", 1 to " + std::to_string(limit) + " is allowed");
    }
    return static_cast<int32_t>(n);
  }
  StatusOr<int32_t> Count(std::string_view key, int64_t limit,
                          int32_t otherwise) const {
    if (source_.FindKey(key) == nullptr) return otherwise;
    return Count(key, limit);
  }
  // A finite number above zero.
  StatusOr<float> Positive(std::string_view key, double otherwise) const {
    ASSIGN_OR_RETURN(const double x, source_.Float(key, otherwise));
    if (!(x > 0) || !std::isfinite(x) || x > 1e30) {
      return InvalidArgument(Name(key) + " is " + std::to_string(x) +
                             ", a number above 0 is wanted");
    }
    return static_cast<float>(x);
  }

 private:
  const ModelSource& source_;
};

Status ReadRope(const ModelSource& source, const Keys& keys,
                ModelConfig& config) {
  RopeConfig& rope = config.ropes.front();
  ASSIGN_OR_RETURN(const int32_t dims,
                   keys.Count("rope.dimension_count", 4096, config.head_dim));
  if (dims != config.head_dim) {
    return Unimplemented(keys.Name("rope.dimension_count") + " is " +
                         std::to_string(dims) + " of heads of " +
                         std::to_string(config.head_dim) +
                         ": rotating a part of a head is not supported");
  }
  ASSIGN_OR_RETURN(rope.freq_base, keys.Positive("rope.freq_base", 10000.0));
  ASSIGN_OR_RETURN(const std::string scaling,
                   source.String("rope.scaling.type", "none"));
  if (scaling == "linear") {
    ASSIGN_OR_RETURN(const float factor,
                     keys.Positive("rope.scaling.factor", 1.0));
    rope.scale = 1.0f / factor;
  } else if (scaling != "none") {
    return Unimplemented(keys.Name("rope.scaling.type") + " is '" + scaling +
                         "'; none and linear are supported");
  }
  return OkStatus();
}

Status RefuseWhatIsNotServed(const ModelSource& source) {
  ASSIGN_OR_RETURN(const int64_t experts, source.Int("expert_count", 0));
  if (experts > 0) {
    return Unimplemented("the model is a mixture of " +
                         std::to_string(experts) +
                         " experts, which is not supported yet");
  }
  return OkStatus();
}

class Finder {
 public:
  Finder(const ModelSource& source, const ModelConfig& config)
      : source_(source), config_(config) {}

  // A matrix of n rows of k values; 1 dimension when n is 0.
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
               : tensor->num_dims == 2 && tensor->dims[0] == k &&
                     tensor->dims[1] == n;
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

}  // namespace

StatusOr<ModelConfig> ReadModelConfig(const ModelSource& source) {
  ModelConfig config;
  ASSIGN_OR_RETURN(config.architecture, source.Architecture());
  const Family* family = FindFamily(config.architecture);
  if (family == nullptr) {
    return Unimplemented("the architecture '" +
                         config.architecture.substr(0, 64) +
                         "' is not served; these are: " + FamilyNames());
  }
  config.name = source.name();
  const Keys keys(source);
  RETURN_IF_ERROR(RefuseWhatIsNotServed(source));
  ASSIGN_OR_RETURN(config.layers, keys.Count("block_count", 1024));
  ASSIGN_OR_RETURN(config.hidden, keys.Count("embedding_length", 1 << 18));
  ASSIGN_OR_RETURN(config.ffn, keys.Count("feed_forward_length", 1 << 20));
  ASSIGN_OR_RETURN(config.heads, keys.Count("attention.head_count", 4096));
  ASSIGN_OR_RETURN(config.kv_heads,
                   keys.Count("attention.head_count_kv", 4096, config.heads));
  ASSIGN_OR_RETURN(config.context, keys.Count("context_length", 1 << 27));
  if (config.heads % config.kv_heads != 0) {
    return InvalidArgument(keys.Name("attention.head_count") + " is " +
                           std::to_string(config.heads) +
                           ", which is no multiple of the " +
                           std::to_string(config.kv_heads) + " kv heads");
  }
  if (source.FindKey("attention.key_length") == nullptr &&
      config.hidden % config.heads != 0) {
    return InvalidArgument(keys.Name("embedding_length") + " is " +
                           std::to_string(config.hidden) +
                           ", which is no multiple of the " +
                           std::to_string(config.heads) + " heads");
  }
  ASSIGN_OR_RETURN(config.head_dim, keys.Count("attention.key_length", 4096,
                                               config.hidden / config.heads));
  ASSIGN_OR_RETURN(const int32_t value_dim,
                   keys.Count("attention.value_length", 4096, config.head_dim));
  if (value_dim != config.head_dim || config.head_dim % 16 != 0) {
    return Unimplemented(
        "heads have keys of " + std::to_string(config.head_dim) +
        " and values of " + std::to_string(value_dim) +
        " values; equal ones that are a multiple of 16 are supported");
  }
  ASSIGN_OR_RETURN(const int64_t window,
                   source.Int("attention.sliding_window", 0));
  if (window < 0) {
    return InvalidArgument(keys.Name("attention.sliding_window") + " is " +
                           std::to_string(window) +
                           ", a number of keys or 0 is wanted");
  }
  if (window < config.context) {
    config.sliding_window = static_cast<int32_t>(window);
  }
  ASSIGN_OR_RETURN(config.norm_eps,
                   keys.Positive("attention.layer_norm_rms_epsilon", 1e-5));
  RETURN_IF_ERROR(ReadRope(source, keys, config));
  config.attention_scale =
      1.0f / std::sqrt(static_cast<float>(config.head_dim));
  config.specs.resize(static_cast<size_t>(config.layers));
  RETURN_IF_ERROR(family->describe(source, config));

  const FileTensor* embedding = source.FindTensor("token_embd.weight");
  if (embedding == nullptr) {
    return InvalidArgument("the file has no tensor '" +
                           source.TensorName("token_embd.weight") + "'");
  }
  if (embedding->dims[1] > (1 << 24)) {
    return InvalidArgument("the vocabulary has " +
                           std::to_string(embedding->dims[1]) +
                           " tokens, the limit is 16777216");
  }
  config.vocab = static_cast<int32_t>(embedding->dims[1]);
  config.tied_output = source.FindTensor("output.weight") == nullptr;
  return config;
}

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
  ASSIGN_OR_RETURN(out.output_norm, finder.Find("output_norm.weight", d, 0));
  out.output = out.token_embd;
  if (!config.tied_output) {
    ASSIGN_OR_RETURN(out.output, finder.Find("output.weight", d, config.vocab));
  }
  if (source.FindTensor("rope_freqs.weight") != nullptr) {
    ASSIGN_OR_RETURN(out.rope_freqs,
                     finder.Find("rope_freqs.weight", config.head_dim / 2, 0));
  }
  for (int32_t i = 0; i < config.layers; ++i) {
    const std::string blk = "blk." + std::to_string(i) + ".";
    const LayerSpec& spec = config.specs[static_cast<size_t>(i)];
    LayerTensors layer{};
    const struct {
      const char* name;
      int64_t k;
      int64_t n;  // 0: a vector
      const FileTensor*& tensor;
      bool present = true;
    } wanted[] = {
        {"attn_norm.weight", d, 0, layer.attn_norm},
        {"attn_q.weight", d, q, layer.attn_q},
        {"attn_k.weight", d, kv, layer.attn_k},
        {"attn_v.weight", d, kv, layer.attn_v},
        {"attn_output.weight", q, d, layer.attn_output},
        {"ffn_norm.weight", d, 0, layer.ffn_norm},
        {"ffn_gate.weight", d, config.ffn, layer.ffn_gate},
        {"ffn_up.weight", d, config.ffn, layer.ffn_up},
        {"ffn_down.weight", config.ffn, d, layer.ffn_down},
        {"attn_q.bias", q, 0, layer.attn_q_bias, spec.qkv_bias},
        {"attn_k.bias", kv, 0, layer.attn_k_bias, spec.qkv_bias},
        {"attn_v.bias", kv, 0, layer.attn_v_bias, spec.qkv_bias},
        {"attn_q_norm.weight", dim, 0, layer.attn_q_norm, spec.qk_norm},
        {"attn_k_norm.weight", dim, 0, layer.attn_k_norm, spec.qk_norm},
        {"post_attention_norm.weight", d, 0, layer.post_attention_norm,
         spec.post_norms},
        {"post_ffw_norm.weight", d, 0, layer.post_ffw_norm, spec.post_norms},
    };
    for (const auto& want : wanted) {
      if (want.present) {
        ASSIGN_OR_RETURN(want.tensor,
                         finder.Find(blk + want.name, want.k, want.n));
      } else if (source.FindTensor(blk + want.name) != nullptr) {
        return Unimplemented("tensor '" + source.TensorName(blk + want.name) +
                             "' is not supported in the family '" +
                             config.architecture + "'");
      }
    }
    out.layers.push_back(layer);
  }
  return out;
}

}  // namespace millrace::models
