// A graph of a task over texts that takes texts, too, as KServe's server of
// Hugging Face models does: BYTES instead of token ids. The output is
// "output-0":
//
//   embed          FP32 [texts, size]
//   rerank         FP32 [pairs]
//   classify_text  INT64 [texts], the best class, and "scores" FP32 [texts,
//                  classes]
//   token_classify INT64 [texts, 1, tokens], the best class of each token,
//                  those around the text included; -100 behind a text that is
//                  shorter than the longest. Only where "output-0" is asked
//                  for by name: other requests get entities (task_tensors.h)
//
// Texts are one input, of any name and shape. Pairs are an input [pairs, 2], or
// "query" (one text, or as many as the other has) and an input of any other
// name. Other requests go to the graph.
#pragma once

#include <memory>

#include "handlers/handler.h"
#include "handlers/pool.h"
#include "handlers/texts/text_task.h"

namespace millrace::handlers {

// `texts`, which asks `graph`, and the pool outlive it.
std::unique_ptr<TensorHandler> MakeTextTensors(
    std::unique_ptr<TensorHandler> graph, TextHandler* texts, Pool* pool);

}  // namespace millrace::handlers
