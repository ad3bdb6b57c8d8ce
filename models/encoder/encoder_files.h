// An encoder from a Hugging Face folder (config.json, safetensors) or a GGUF
// file as a graph, without an export: kernels, fusions and batches are those of
// graphs.
//
//   input_ids, attention_mask [, token_type_ids]   INT64 [batch, tokens]
//   last_hidden_state                 FP32 [batch, tokens, hidden], or
//   logits                            FP32 [batch, classes]
#pragma once

#include <memory>
#include <string>

#include "config/base/status.h"
#include "models/encoder/encoder_config.h"
#include "models/files/gguf.h"
#include "models/graph/ir.h"

namespace millrace::models::encoder {

// Whether this is a folder whose config.json names an encoder of texts, or a
// GGUF file of one. LoadEncoder says which are served.
bool IsEncoder(const std::string& path);

struct Encoder {
  graph::Graph graph;
  EncoderConfig config;
  std::shared_ptr<const GgufFile> file;  // null: a folder
};

// Weights stay in the mapped files, which the graph's constants keep alive,
// but for quantised ones. Errors name the file, and in it the key or tensor.
StatusOr<Encoder> LoadEncoder(const std::string& path);

}  // namespace millrace::models::encoder
