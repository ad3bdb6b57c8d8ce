// Keys by the names they have in GGUF without the architecture's prefix. The
// vocabulary's size is that of the embedding, not vocab_size, which some files
// lack or round; the tokenizer must not be larger.
#include "models/llm/config.h"

#include <cmath>
#include <string>

#include "config/base/utf8.h"
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
                             "; expected a number above 0");
    }
    return static_cast<float>(x);
  }

 private:
  const ModelSource& source_;
};

// How many values of a head are rotated, and how.
Status ReadSharedRope(const ModelSource& source, const Keys& keys,
                      ModelConfig& config) {
  ASSIGN_OR_RETURN(config.rope_dims,
                   keys.Count("rope.dimension_count", 4096, config.head_dim));
  if (config.rope_dims > config.head_dim || config.rope_dims % 2 != 0) {
    return InvalidArgument(keys.Name("rope.dimension_count") + " is " +
                           std::to_string(config.rope_dims) +
                           "; expected an even number up to the " +
                           std::to_string(config.head_dim) +
                           " values of a head");
  }
  ASSIGN_OR_RETURN(config.ropes.front(), ReadRope(source, config.rope_dims));
  config.context = ScaledContext(config.ropes.front(), config.context);
  return OkStatus();
}

// GPT-2's folders leave out the usual size.
StatusOr<int32_t> ReadFfn(const ModelSource& source, const Keys& keys,
                          const ModelConfig& config) {
  if (config.architecture == "gpt2" &&
      source.FindKey("feed_forward_length") == nullptr) {
    return 4 * config.hidden;
  }
  return keys.Count("feed_forward_length", 1 << 20);
}

// What a recipe did not ask for is not served.
Status RefuseExperts(const ModelSource& source, const ModelConfig& config) {
  ASSIGN_OR_RETURN(const int64_t experts, source.Int("expert_count", 0));
  if (experts > 0 && config.experts.count == 0) {
    return Unimplemented("the model is a mixture of " +
                         std::to_string(experts) +
                         " experts, which is not supported in the family '" +
                         config.architecture + "'");
  }
  return OkStatus();
}

}  // namespace

StatusOr<ModelConfig> ReadModelConfig(const ModelSource& source) {
  ModelConfig config;
  ASSIGN_OR_RETURN(config.architecture, source.Architecture());
  const Family* family = FindFamily(config.architecture);
  if (family == nullptr) {
    return Unimplemented("the architecture '" +
                         Shortened(config.architecture, 64) +
                         "' is not served; these are: " + FamilyNames());
  }
  config.name = source.name();
  const Keys keys(source);
  ASSIGN_OR_RETURN(config.layers, keys.Count("block_count", 1024));
  ASSIGN_OR_RETURN(config.hidden, keys.Count("embedding_length", 1 << 18));
  ASSIGN_OR_RETURN(config.ffn, ReadFfn(source, keys, config));
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
  ASSIGN_OR_RETURN(const bool causal, source.Bool("attention.causal", true));
  if (!causal) {
    return Unimplemented(keys.Name("attention.causal") +
                         " is false: attention to later tokens is not "
                         "supported in decoders");
  }
  RETURN_IF_ERROR(ReadSharedRope(source, keys, config));
  ASSIGN_OR_RETURN(const int64_t window,
                   source.Int("attention.sliding_window", 0));
  if (window < 0) {
    return InvalidArgument(keys.Name("attention.sliding_window") + " is " +
                           std::to_string(window) +
                           "; expected a number of keys or 0");
  }
  if (window < config.context) {
    config.sliding_window = static_cast<int32_t>(window);
  }
  ASSIGN_OR_RETURN(config.norm_eps,
                   keys.Positive("attention.layer_norm_rms_epsilon", 1e-5));
  if (source.FindKey("attention.layer_norm_epsilon") != nullptr) {
    ASSIGN_OR_RETURN(config.norm_eps,
                     keys.Positive("attention.layer_norm_epsilon", 1e-5));
  }
  config.attention_scale =
      1.0f / std::sqrt(static_cast<float>(config.head_dim));
  config.specs.resize(static_cast<size_t>(config.layers));
  RETURN_IF_ERROR(family->describe(source, config));
  RETURN_IF_ERROR(RefuseExperts(source, config));

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

}  // namespace millrace::models
