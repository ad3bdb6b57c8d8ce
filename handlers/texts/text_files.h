// What the files beside an encoder say: how its texts become tokens, how its
// results are pooled, what its classes are called. Those of Hugging Face and
// sentence-transformers:
//
//   tokenizer.json              the tokenizer (required; the others are not)
//   config.json                 id2label, pad_token_id, position embeddings,
//                               problem_type, the activation of scores
//   tokenizer_config.json       model_max_length
//   sentence_bert_config.json   max_seq_length
//   modules.json, 1_Pooling/config.json
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "config/base/status.h"
#include "config/task_settings.h"
#include "handlers/make_task.h"
#include "handlers/texts/pooling.h"
#include "handlers/texts/text_task.h"
#include "models/text/post_processor.h"
#include "models/text/tokenizer.h"

namespace millrace::handlers {

struct TextFiles {
  std::shared_ptr<const models::Tokenizer> tokenizer;
  models::PostProcessor form;
  int32_t pad_id = 0;
  int64_t max_tokens = 512;  // of a text and what stands around it
  Pooling pooling = Pooling::kMean;
  bool normalize = true;
  std::vector<std::string> labels;
};

// Errors name the file. `pooling` where neither settings nor files say one.
StatusOr<TextFiles> ReadTextFiles(const TaskParts& parts,
                                  Pooling pooling = Pooling::kMean);

// softmax, sigmoid or none: what the settings say or, where they leave it to
// the files, config.json as vLLM reads it: problem_type (multi-label: sigmoid,
// regression: none), else the function of sentence-transformers
// (sentence_transformers.activation_fn, sbert_ce_default_activation_function),
// else softmax. UNIMPLEMENTED for another function.
StatusOr<std::string> ActivationOf(const TaskParts& parts);

// Of a model whose file has its tokenizer inside. `max_tokens`: what the model
// takes at most.
StatusOr<TextFiles> TextFilesOf(
    std::shared_ptr<const models::Tokenizer> tokenizer,
    models::PostProcessor form, const config::TextTaskSettings& text,
    Pooling pooling, int64_t max_tokens);
// A task over texts with what is known instead of files.
StatusOr<std::unique_ptr<TextHandler>> MakeTextHandler(const TaskParts& parts,
                                                       TextFiles files);
// llama.cpp's pooling_type, 1 to 3; mean for others.
Pooling PoolingOfGguf(int64_t type);

}  // namespace millrace::handlers
