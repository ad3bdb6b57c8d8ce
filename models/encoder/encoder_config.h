// What the config.json of an encoder says, or the keys of a GGUF, checked.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "config/base/status.h"
#include "models/files/gguf.h"

namespace millrace::models::encoder {

enum class Family { kBert, kRoberta, kNomic, kModernBert };
// What stands behind the last layer.
enum class Head {
  kNone,      // the hidden states themselves
  kClassify,  // scores of classes for each text
};

struct EncoderConfig {
  Family family = Family::kBert;
  Head head = Head::kNone;
  std::string architecture;  // "BertModel"
  int64_t hidden = 0;
  int64_t layers = 0;
  int64_t heads = 0;
  int64_t vocabulary = 0;      // rows of the embedding
  int64_t positions = 0;       // rows of the table, or most tokens of a text
  int64_t first_position = 0;  // the row of a text's first token
  int64_t types = 1;           // token types
  int64_t classes = 0;         // of a head
  double epsilon = 1e-12;
  std::string activation = "gelu";  // gelu | gelu_tanh | relu | silu
  // ---- of Nomic and ModernBERT ----
  double rope_base = 10000;
  // Of ModernBERT: some layers see `window` / 2 tokens on either side.
  int64_t window = 0;
  std::vector<bool> windowed;  // [layers]
  double local_rope_base = 10000;
  bool pools_mean = false;  // before a head, else the first token

  // Tokens of a text.
  int64_t max_tokens() const { return positions - first_position; }
};

// Whether an architecture is an encoder of texts, be it served
// ("BertForSequenceClassification") or not ("DebertaV2Model"): only by its
// name, so that one of a name that is not known here is taken for something
// else.
bool IsEncoderArchitecture(std::string_view architecture);
// Whether general.architecture of a GGUF ("bert", "t5encoder") is.
bool IsEncoderGgufName(std::string_view architecture);

// UNIMPLEMENTED for what is right but not supported; errors name the key.
StatusOr<EncoderConfig> ReadEncoderConfig(std::string_view config_json);
StatusOr<EncoderConfig> ReadEncoderKeys(const GgufFile& file);

}  // namespace millrace::models::encoder
