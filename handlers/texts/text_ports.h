// Which of a graph's inputs and outputs a task over texts uses, and how texts
// fill them.
//
//   input_ids [rows, length]            INT64 or INT32; wanted
//   attention_mask [rows, length]       1: a token, 0: padding
//   token_type_ids [rows, length]       0, 1: the second of two texts
//   position_ids [rows, length]         0, 1, 2, …
//
// Immutable after Find.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/base/status.h"
#include "config/task_settings.h"
#include "handlers/handler.h"
#include "models/text/post_processor.h"

namespace millrace::handlers {

struct TextPorts {
  enum class Kind { kIds, kMask, kTypes, kPositions };
  struct Input {
    Kind kind;
    std::string name;
    models::DType dtype;
  };
  std::vector<Input> inputs;
  std::string output;
  bool has_mask = false;
  int64_t fixed_length = 0;  // of texts, where the graph has one; else 0

  // INVALID_ARGUMENT names which input or output is missing or has another
  // shape.
  static StatusOr<TextPorts> Find(const TensorHandler& graph,
                                  config::TaskKind kind);

  // Tokens after padding: steps of an eighth of the length, so that there are
  // few lengths and little is wasted. Never more than max_tokens.
  int64_t PaddedLength(int64_t tokens, int64_t max_tokens) const;

  // Rows of these items, each padded to `length`.
  std::vector<NamedTensor> Fill(const std::vector<models::EncoderInput>& inputs,
                                const std::vector<size_t>& items,
                                int64_t length, int32_t pad_id) const;
};

}  // namespace millrace::handlers
