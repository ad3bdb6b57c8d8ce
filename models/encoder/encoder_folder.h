// An encoder from a Hugging Face folder (config.json, model.safetensors) as a
// graph, without an export: kernels, fusions and batches are those of graphs.
//
//   input_ids, attention_mask [, token_type_ids]   INT64 [batch, tokens]
//   last_hidden_state                 FP32 [batch, tokens, hidden], or
//   logits                            FP32 [batch, classes]
#pragma once

#include <cstdint>
#include <string>

#include "config/base/status.h"
#include "models/encoder/encoder_config.h"
#include "models/graph/ir.h"

namespace millrace::models::encoder {

// Whether this is a folder whose config.json names an encoder that is known.
bool IsEncoderFolder(const std::string& path);

struct Encoder {
  graph::Graph graph;
  EncoderConfig config;
  int64_t num_scores = 0;  // of a text, where there are any
};

// Weights stay in the mapped file, which the graph's constants keep alive.
// Errors name the file, and in it the key or tensor.
StatusOr<Encoder> LoadEncoderFolder(const std::string& folder);

}  // namespace millrace::models::encoder
