// Small language models made on the spot: a llama of random weights and a
// byte-level tokenizer with ChatML, as GGUF bytes or as a file.
//
//   std::string path = TempPath("tiny.gguf");
//   ASSERT_TRUE(WriteTinyGguf(TinyModel{}, path));
//
// The same options give the same bytes. GgufBytes is also there for tests
// that want a file with something wrong in it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "models/tensor/quant.h"

namespace millrace::models {

class GgufBytes {
 public:
  void String(std::string_view key, std::string_view value);
  void Uint32(std::string_view key, uint32_t value);
  void Float32(std::string_view key, float value);
  void Bool(std::string_view key, bool value);
  void Strings(std::string_view key, std::span<const std::string> values);
  void Int32s(std::string_view key, std::span<const int32_t> values);
  // dims[0] is the contiguous one; data must have the right size for a good
  // file.
  void Tensor(std::string_view name, GgmlType type,
              std::span<const int64_t> dims, std::string_view data);
  // The whole file, version 3, alignment 32.
  std::string Finish() const;

 private:
  void Key(std::string_view key, uint32_t type);

  uint64_t num_keys_ = 0;
  uint64_t num_tensors_ = 0;
  std::string keys_;
  std::string tensors_;
  std::string data_;
};

// Rows of floats (k a row) in a GGUF weight format, by plain rounding; empty
// where k is no whole number of blocks.
std::string QuantizeRows(GgmlType type, std::span<const float> values,
                         int64_t k);

struct TinyModel {
  std::string architecture = "llama";  // or "qwen2": biases on q, k and v
  GgmlType type = GgmlType::kQ4_1;     // of the layers' matrices
  GgmlType embedding_type = GgmlType::kQ8_0;  // and of an own output matrix
  bool tied = true;
  int32_t layers = 2;
  int32_t hidden = 64;
  int32_t ffn = 96;
  int32_t heads = 4;
  int32_t kv_heads = 2;
  int32_t head_dim = 16;
  int32_t context = 512;
  int32_t sliding_window = 0;  // 0: no such key
  uint64_t seed = 1;
  // ChatML in Jinja; empty: the file has none.
  std::string chat_template = std::string(kChatMl);

  static constexpr std::string_view kChatMl =
      "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n'"
      " + message['content'] + '<|im_end|>' + '\\n'}}{% endfor %}"
      "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}"
      "{% endif %}";
};

// A shape whose every matrix has rows of whole blocks of 256.
TinyModel MakeWideTiny(GgmlType type);

// Special tokens come first: <|endoftext|> 0, <|im_start|> 1 (bos),
// <|im_end|> 2 (eos), then the 256 bytes, then a few merges.
struct TinyVocabulary {
  std::vector<std::string> tokens;
  std::vector<int32_t> kinds;  // as in the file: 1 normal, 3 control
  std::vector<std::string> merges;
};
TinyVocabulary MakeTinyVocabulary();

std::string MakeTinyGguf(const TinyModel& model);
// False when the file cannot be written.
bool WriteTinyGguf(const TinyModel& model, const std::string& path);

}  // namespace millrace::models
