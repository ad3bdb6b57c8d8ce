// Weights come from a splitmix64 stream, so that every machine and library
// makes the same file; the standard distributions would not.
#include "tests/data/tiny_gguf.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>

namespace millrace::models {
namespace {

template <typename T>
void Append(std::string& out, T value) {
  char bytes[sizeof value];
  std::memcpy(bytes, &value, sizeof value);
  out.append(bytes, sizeof value);
}

void AppendString(std::string& out, std::string_view text) {
  Append<uint64_t>(out, text.size());
  out.append(text);
}

void Pad(std::string& out, size_t alignment) {
  while (out.size() % alignment != 0) out.push_back('\0');
}

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  // Sum of four uniform values: near enough to a normal one, unit variance.
  float Normal() {
    float sum = 0;
    for (int i = 0; i < 4; ++i) sum += Uniform() - 0.5f;
    return sum * 1.7320508f;
  }
  float Uniform() { return static_cast<float>(Next() >> 40) * 0x1p-24f; }

 private:
  uint64_t Next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  uint64_t state_;
};

// GPT-2's alphabet: printable Latin-1 bytes stand for themselves, the others
// for U+0100 and up, in order.
std::string ByteToken(int byte, int& next) {
  const bool plain = (byte >= 33 && byte <= 126) ||
                     (byte >= 161 && byte <= 172) || byte >= 174;
  const int code = plain ? byte : 256 + next++;
  if (code < 128) return std::string(1, static_cast<char>(code));
  return {static_cast<char>(0xc0 | (code >> 6)),
          static_cast<char>(0x80 | (code & 63))};
}

}  // namespace

TinyModel MakeWideTiny(GgmlType type) {
  TinyModel model;
  model.type = model.embedding_type = type;
  model.layers = 1;
  model.hidden = model.ffn = 256;
  model.heads = 8;
  model.head_dim = 32;
  return model;
}

void GgufBytes::Key(std::string_view key, uint32_t type) {
  ++num_keys_;
  AppendString(keys_, key);
  Append(keys_, type);
}
void GgufBytes::String(std::string_view key, std::string_view value) {
  Key(key, 8);
  AppendString(keys_, value);
}
void GgufBytes::Uint32(std::string_view key, uint32_t value) {
  Key(key, 4);
  Append(keys_, value);
}
void GgufBytes::Float32(std::string_view key, float value) {
  Key(key, 6);
  Append(keys_, value);
}
void GgufBytes::Bool(std::string_view key, bool value) {
  Key(key, 7);
  Append<uint8_t>(keys_, value ? 1 : 0);
}
void GgufBytes::Strings(std::string_view key,
                        std::span<const std::string> values) {
  Key(key, 9);
  Append<uint32_t>(keys_, 8);
  Append<uint64_t>(keys_, values.size());
  for (const std::string& value : values) AppendString(keys_, value);
}
void GgufBytes::Int32s(std::string_view key, std::span<const int32_t> values) {
  Key(key, 9);
  Append<uint32_t>(keys_, 5);
  Append<uint64_t>(keys_, values.size());
  for (const int32_t value : values) Append(keys_, value);
}

void GgufBytes::Tensor(std::string_view name, GgmlType type,
                       std::span<const int64_t> dims, std::string_view data) {
  ++num_tensors_;
  AppendString(tensors_, name);
  Append<uint32_t>(tensors_, static_cast<uint32_t>(dims.size()));
  for (const int64_t n : dims) Append<uint64_t>(tensors_, n);
  Append<uint32_t>(tensors_, static_cast<uint32_t>(type));
  Pad(data_, 32);
  Append<uint64_t>(tensors_, data_.size());
  data_.append(data);
}

std::string GgufBytes::Finish() const {
  std::string out = "GGUF";
  Append<uint32_t>(out, 3);
  Append(out, num_tensors_);
  Append(out, num_keys_);
  out += keys_;
  out += tensors_;
  Pad(out, 32);
  out += data_;
  return out;
}

TinyVocabulary MakeTinyVocabulary() {
  TinyVocabulary out;
  out.tokens = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
  out.kinds = {3, 3, 3};
  int next = 0;
  for (int byte = 0; byte < 256; ++byte) {
    out.tokens.push_back(ByteToken(byte, next));
  }
  out.merges = {"\u0120 t",  "h e",        "i n", "\u0120t he", "r e",
                "o n",       "\u0120 a",   "e r", "a t",        "\u0120 s",
                "in g",      "\u0120 w",   "l l", "o r",        "a n",
                "\u0120a n", "\u0120an d", "u s", "us er",      "s t"};
  for (const std::string& merge : out.merges) {
    std::string joined = merge;
    joined.erase(joined.find(' '), 1);
    out.tokens.push_back(joined);
  }
  out.kinds.resize(out.tokens.size(), 1);
  return out;
}

std::string MakeTinyGguf(const TinyModel& model) {
  const TinyVocabulary vocabulary = MakeTinyVocabulary();
  const auto vocab = static_cast<int64_t>(vocabulary.tokens.size());
  GgufBytes out;
  out.String("general.architecture", model.architecture);
  out.String("general.name", "Tiny");
  const auto u32 = [&](const char* key, int64_t value) {
    out.Uint32(model.architecture + "." + key, static_cast<uint32_t>(value));
  };
  u32("block_count", model.layers);
  u32("context_length", model.context);
  if (model.sliding_window > 0) {
    u32("attention.sliding_window", model.sliding_window);
  }
  u32("embedding_length", model.hidden);
  u32("feed_forward_length", model.ffn);
  u32("attention.head_count", model.heads);
  u32("attention.head_count_kv", model.kv_heads);
  u32("attention.key_length", model.head_dim);
  u32("attention.value_length", model.head_dim);
  u32("rope.dimension_count", model.head_dim);
  u32("vocab_size", vocab);
  out.Float32(model.architecture + ".rope.freq_base", 10000);
  out.Float32(model.architecture + ".attention.layer_norm_rms_epsilon", 1e-5f);
  out.String("tokenizer.ggml.model", "gpt2");
  out.String("tokenizer.ggml.pre", "smollm");
  out.Strings("tokenizer.ggml.tokens", vocabulary.tokens);
  out.Int32s("tokenizer.ggml.token_type", vocabulary.kinds);
  out.Strings("tokenizer.ggml.merges", vocabulary.merges);
  out.Uint32("tokenizer.ggml.bos_token_id", 1);
  out.Uint32("tokenizer.ggml.eos_token_id", 2);
  out.Bool("tokenizer.ggml.add_bos_token", false);
  if (!model.chat_template.empty()) {
    out.String("tokenizer.chat_template", model.chat_template);
  }

  Random random(model.seed);
  const auto matrix = [&](const std::string& name, GgmlType type, int64_t k,
                          int64_t n, float deviation) {
    std::vector<float> values(static_cast<size_t>(k * n));
    for (float& value : values) value = random.Normal() * deviation;
    out.Tensor(name, type, std::vector<int64_t>{k, n},
               QuantizeRows(type, values, k));
  };
  const auto norm = [&](const std::string& name) {
    std::vector<float> values(static_cast<size_t>(model.hidden));
    for (float& value : values) value = 0.75f + 0.5f * random.Uniform();
    out.Tensor(name, GgmlType::kF32, std::vector<int64_t>{model.hidden},
               QuantizeRows(GgmlType::kF32, values, model.hidden));
  };
  const auto bias = [&](const std::string& name, int64_t n) {
    std::vector<float> values(static_cast<size_t>(n));
    for (float& value : values) value = 0.3f * random.Normal();
    out.Tensor(name, GgmlType::kF32, std::vector<int64_t>{n},
               QuantizeRows(GgmlType::kF32, values, n));
  };
  const int64_t d = model.hidden;
  const int64_t q = int64_t{model.heads} * model.head_dim;
  const int64_t kv = int64_t{model.kv_heads} * model.head_dim;
  const float in = 1.5f / std::sqrt(static_cast<float>(d));
  matrix("token_embd.weight", model.embedding_type, d, vocab, 0.3f);
  for (int32_t i = 0; i < model.layers; ++i) {
    const std::string layer = "blk." + std::to_string(i) + ".";
    norm(layer + "attn_norm.weight");
    norm(layer + "ffn_norm.weight");
    matrix(layer + "attn_q.weight", model.type, d, q, in);
    matrix(layer + "attn_k.weight", model.type, d, kv, in);
    matrix(layer + "attn_v.weight", model.type, d, kv, in);
    if (model.architecture == "qwen2") {
      bias(layer + "attn_q.bias", q);
      bias(layer + "attn_k.bias", kv);
      bias(layer + "attn_v.bias", kv);
    }
    matrix(layer + "attn_output.weight", model.type, q, d,
           0.7f / std::sqrt(static_cast<float>(q)));
    matrix(layer + "ffn_gate.weight", model.type, d, model.ffn, in);
    matrix(layer + "ffn_up.weight", model.type, d, model.ffn, in);
    matrix(layer + "ffn_down.weight", model.type, model.ffn, d,
           0.7f / std::sqrt(static_cast<float>(model.ffn)));
  }
  norm("output_norm.weight");
  if (!model.tied) {
    matrix("output.weight", model.embedding_type, d, vocab, 0.3f);
  }
  return out.Finish();
}

bool WriteTinyGguf(const TinyModel& model, const std::string& path) {
  const std::string bytes = MakeTinyGguf(model);
  std::FILE* file = std::fopen(path.c_str(), "wb");
  if (file == nullptr) return false;
  const bool written =
      std::fwrite(bytes.data(), 1, bytes.size(), file) == bytes.size();
  return std::fclose(file) == 0 && written;
}

}  // namespace millrace::models
