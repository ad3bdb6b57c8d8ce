// A decoder that makes vectors of texts, as a graph of texts is seen: the tasks
// over texts, and clients that send tensors, need not know the difference.
//
//   input_ids, attention_mask   INT64 [texts, tokens]; padding, mask 0, stands
//                               behind a text and is never computed
//   sentence_embedding          FP32 [texts, size]
#pragma once

#include <memory>
#include <string>

#include "handlers/handler.h"
#include "handlers/pool.h"
#include "scheduler/embedding_engine.h"

namespace millrace::handlers {

// All outlive the handler and its requests.
struct DecoderTensorParts {
  std::string model;  // for messages
  scheduler::EmbeddingEngine* engine = nullptr;
  Pool* pool = nullptr;  // responses are given out on its threads
};

std::unique_ptr<TensorHandler> MakeDecoderTensors(DecoderTensorParts parts);

}  // namespace millrace::handlers
