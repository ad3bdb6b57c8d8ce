// What the files beside an encoder say: how its texts become tokens, how its
// results are pooled, what its classes are called. Those of Hugging Face and
// sentence-transformers:
//
//   tokenizer.json                the tokenizer; wanted, the others may be
//   absent config.json                   id2label, max_position_embeddings,
//   pad_token_id tokenizer_config.json         model_max_length
//   sentence_bert_config.json     max_seq_length
//   modules.json, 1_Pooling/config.json
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "config/base/status.h"
#include "handlers/make_task.h"
#include "handlers/texts/pooling.h"
#include "models/text/input_template.h"
#include "models/text/tokenizer.h"

namespace millrace::handlers {

struct TextFiles {
  std::unique_ptr<models::Tokenizer> tokenizer;
  models::InputTemplate form;
  int32_t pad_id = 0;
  int64_t max_tokens = 512;  // of a text and what stands around it
  Pooling pooling = Pooling::kMean;
  bool normalize = true;
  std::vector<std::string> labels;
};

// Errors name the file.
StatusOr<TextFiles> ReadTextFiles(const TaskParts& parts);

}  // namespace millrace::handlers
