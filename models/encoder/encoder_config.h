// What the config.json of an encoder says, checked: families differ in names
// and in a few numbers, not in what a layer computes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "config/base/status.h"

namespace millrace::models::encoder {

enum class Family { kBert, kRoberta };
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
  int64_t vocabulary = 0;
  int64_t positions = 0;       // rows of the table
  int64_t first_position = 0;  // the row of a text's first token
  int64_t types = 1;           // token types
  double epsilon = 1e-12;
  std::string activation = "gelu";  // gelu | gelu_tanh | relu | silu

  // Tokens of a text.
  int64_t max_tokens() const { return positions - first_position; }
};

// Whether an architecture ("BertForSequenceClassification") is known here.
bool IsKnownArchitecture(std::string_view architecture);

// UNIMPLEMENTED for what is right but not supported; errors name the key.
StatusOr<EncoderConfig> ReadEncoderConfig(std::string_view config_json);

}  // namespace millrace::models::encoder
