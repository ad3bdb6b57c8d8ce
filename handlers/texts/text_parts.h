// A task over texts (embed, rerank, classify_text), asked as the other tasks
// are: parts of bytes in, JSON out.
//
//   embed          [0.1, -0.3, …]
//   rerank         0.93
//   classify_text  {"positive": 0.98, "negative": 0.02}, best first
//
// A part is a text in UTF-8, or, where its content type is JSON, a string or an
// object: {"text": "…"}, {"text": "…", "text_pair": "…"}, {"query": "…",
// "texts": ["…"]}, whose answer is a list. What rerank gets is JSON always, or
// parts named "query" (one, or one for each other part) and any others.
// Parameters of a request: truncate, dimensions, normalize, raw_scores, top_k.
#pragma once

#include <memory>

#include "handlers/handler.h"
#include "handlers/task.h"
#include "handlers/texts/text_task.h"

namespace millrace::handlers {

// `texts` outlives it; `tensors`, the graph behind it, tells whether there is
// place.
std::unique_ptr<TaskHandler> MakeTextParts(TextHandler* texts,
                                           const TensorHandler* tensors);

}  // namespace millrace::handlers
