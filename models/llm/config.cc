// Metadata keys under the architecture's own prefix ("llama.block_count"). What
// a reader would guess wrong: the vocabulary's size is not taken from
// vocab_size, which some files lack or round, but from the embedding itself,
// and the tokenizer must not be larger.
#include "models/llm/config.h"

#include <cmath>
#include <string>
#include <utility>

namespace millrace::models {
namespace {

class Keys {
 public:
  Keys(const GgufFile& file, std::string prefix)
      : file_(file), prefix_(std::move(prefix)) {}

  std::string Name(std::string_view key) const {
    return prefix_ + "." + std::string(key);
  }
  // An integer from 1 to the limit.
  StatusOr<int32_t> Count(std::string_view key, int64_t limit) const {
    const GgufValue* value = file_.FindKey(Name(key));
    if (value != nullptr && value->type == GgufValueType::kArray) {
      return Unimplemented(Name(key) +
                           " differs from layer to layer, which is not "
                           "supported");
    }
    ASSIGN_OR_RETURN(const int64_t n, file_.Int(Name(key)));
    if (n < 1 || n > limit) {
      return InvalidArgument(Name(key) + " is " + std::to_string(n) +
                             ", 1 to " + std::to_string(limit) + " is allowed");
    }
    return static_cast<int32_t>(n);
  }
  StatusOr<int32_t> Count(std::string_view key, int64_t limit,
                          int32_t otherwise) const {
    if (file_.FindKey(Name(key)) == nullptr) return otherwise;
    return Count(key, limit);
  }
  // A finite number above zero.
  StatusOr<float> Positive(std::string_view key, double otherwise) const {
    ASSIGN_OR_RETURN(const double x, file_.Float(Name(key), otherwise));
    if (!(x > 0) || !std::isfinite(x) || x > 1e30) {
      return InvalidArgument(Name(key) + " is " + std::to_string(x) +
                             ", a number above 0 is wanted");
    }
    return static_cast<float>(x);
  }

 private:
  const GgufFile& file_;
  std::string prefix_;
};

Status ReadRope(const GgufFile& file, const Keys& keys, ModelConfig& config) {
  ASSIGN_OR_RETURN(const int32_t dims,
                   keys.Count("rope.dimension_count", 4096, config.head_dim));
  if (dims != config.head_dim) {
    return Unimplemented(keys.Name("rope.dimension_count") + " is " +
                         std::to_string(dims) + " of heads of " +
                         std::to_string(config.head_dim) +
                         ": rotating a part of a head is not supported");
  }
  ASSIGN_OR_RETURN(config.rope.freq_base,
                   keys.Positive("rope.freq_base", 10000.0));
  ASSIGN_OR_RETURN(const std::string_view scaling,
                   file.String(keys.Name("rope.scaling.type"), "none"));
  if (scaling == "linear") {
    ASSIGN_OR_RETURN(const float factor,
                     keys.Positive("rope.scaling.factor", 1.0));
    config.rope.scale = 1.0f / factor;
  } else if (scaling != "none") {
    return Unimplemented(keys.Name("rope.scaling.type") + " is '" +
                         std::string(scaling) +
                         "'; none and linear are supported");
  }
  return OkStatus();
}

Status RefuseWhatIsNotServed(const GgufFile& file, const Keys& keys) {
  ASSIGN_OR_RETURN(const int64_t experts,
                   file.Int(keys.Name("expert_count"), 0));
  if (experts > 0) {
    return Unimplemented("the model is a mixture of " +
                         std::to_string(experts) +
                         " experts, which is not supported yet");
  }
  return OkStatus();
}

class Finder {
 public:
  Finder(const GgufFile& file, const ModelConfig& config)
      : file_(file), config_(config) {}

  // A matrix of n rows of k values; 1 dimension when n is 0.
  StatusOr<const GgufTensor*> Find(const std::string& name, int64_t k,
                                   int64_t n) const {
    const GgufTensor* tensor = file_.FindTensor(name);
    if (tensor == nullptr) {
      return InvalidArgument("the file has no tensor '" + name +
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
      return InvalidArgument("tensor '" + name + "' is " + shape +
                             ", but the metadata say " + std::to_string(k) +
                             (n > 0 ? " x " + std::to_string(n) : ""));
    }
    const GgmlTypeInfo& info = InfoOf(tensor->type);
    if (!info.served) {
      return Unimplemented("tensor '" + name + "' has weights of type " +
                           std::string(info.name) +
                           "; F32, F16, BF16, Q8_0, Q4_0 and Q4_1 are served");
    }
    if (n == 0 && info.block_values != 1) {
      return Unimplemented("tensor '" + name + "' is a vector of type " +
                           std::string(info.name) +
                           "; F32, F16 and BF16 are served");
    }
    return tensor;
  }

 private:
  const GgufFile& file_;
  const ModelConfig& config_;
};

}  // namespace

StatusOr<ModelConfig> ReadModelConfig(const GgufFile& file,
                                      const FamilyTraits& traits) {
  ModelConfig config;
  ASSIGN_OR_RETURN(const std::string_view architecture,
                   file.String("general.architecture"));
  config.architecture = architecture;
  ASSIGN_OR_RETURN(const std::string_view name,
                   file.String("general.name", ""));
  config.name = name;
  const Keys keys(file, config.architecture);
  RETURN_IF_ERROR(RefuseWhatIsNotServed(file, keys));
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
  if (file.FindKey(keys.Name("attention.key_length")) == nullptr &&
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
  ASSIGN_OR_RETURN(config.norm_eps,
                   keys.Positive("attention.layer_norm_rms_epsilon", 1e-5));
  RETURN_IF_ERROR(ReadRope(file, keys, config));
  config.rope.interleaved = traits.rope_interleaved;
  config.qkv_bias = traits.qkv_bias;

  const GgufTensor* embedding = file.FindTensor("token_embd.weight");
  if (embedding == nullptr) {
    return InvalidArgument("the file has no tensor 'token_embd.weight'");
  }
  if (embedding->dims[1] > (1 << 24)) {
    return InvalidArgument("the vocabulary has " +
                           std::to_string(embedding->dims[1]) +
                           " tokens, the limit is 16777216");
  }
  config.vocab = static_cast<int32_t>(embedding->dims[1]);
  if (const GgufValue* tokens = file.FindKey("tokenizer.ggml.tokens");
      tokens != nullptr && tokens->count > config.vocab) {
    return InvalidArgument("the tokenizer has " +
                           std::to_string(tokens->count) +
                           " tokens, but the embedding only " +
                           std::to_string(config.vocab) + " rows");
  }
  config.tied_output = file.FindTensor("output.weight") == nullptr;
  return config;
}

StatusOr<ModelTensors> FindModelTensors(const GgufFile& file,
                                        const ModelConfig& config) {
  const Finder finder(file, config);
  ModelTensors out{};
  const int64_t d = config.hidden;
  const int64_t q = int64_t{config.heads} * config.head_dim;
  const int64_t kv = int64_t{config.kv_heads} * config.head_dim;
  ASSIGN_OR_RETURN(out.embedding,
                   finder.Find("token_embd.weight", d, config.vocab));
  ASSIGN_OR_RETURN(out.output_norm, finder.Find("output_norm.weight", d, 0));
  out.output = out.embedding;
  if (!config.tied_output) {
    ASSIGN_OR_RETURN(out.output, finder.Find("output.weight", d, config.vocab));
  }
  if (file.FindTensor("rope_freqs.weight") != nullptr) {
    ASSIGN_OR_RETURN(out.rope_factors,
                     finder.Find("rope_freqs.weight", config.head_dim / 2, 0));
  }
  for (int32_t i = 0; i < config.layers; ++i) {
    const std::string blk = "blk." + std::to_string(i) + ".";
    LayerTensors layer{};
    const struct {
      const char* name;
      int64_t k;
      int64_t n;
      const GgufTensor*& tensor;
    } wanted[] = {
        {"attn_norm.weight", d, 0, layer.attn_norm},
        {"attn_q.weight", d, q, layer.q},
        {"attn_k.weight", d, kv, layer.k},
        {"attn_v.weight", d, kv, layer.v},
        {"attn_output.weight", q, d, layer.attn_output},
        {"ffn_norm.weight", d, 0, layer.ffn_norm},
        {"ffn_gate.weight", d, config.ffn, layer.gate},
        {"ffn_up.weight", d, config.ffn, layer.up},
        {"ffn_down.weight", config.ffn, d, layer.down},
    };
    for (const auto& want : wanted) {
      ASSIGN_OR_RETURN(want.tensor,
                       finder.Find(blk + want.name, want.k, want.n));
    }
    const struct {
      const char* name;
      int64_t k;
      const GgufTensor*& tensor;
    } biases[] = {{"attn_q.bias", q, layer.q_bias},
                  {"attn_k.bias", kv, layer.k_bias},
                  {"attn_v.bias", kv, layer.v_bias}};
    for (const auto& want : biases) {
      if (config.qkv_bias) {
        ASSIGN_OR_RETURN(want.tensor, finder.Find(blk + want.name, want.k, 0));
      } else if (file.FindTensor(blk + want.name) != nullptr) {
        return Unimplemented("tensor '" + blk + want.name +
                             "': biases are not supported in the family '" +
                             config.architecture + "'");
      }
    }
    out.layers.push_back(layer);
  }
  return out;
}

}  // namespace millrace::models
