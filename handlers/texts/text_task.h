// A task over texts: each text, or pair of texts, becomes a row of numbers,
// which is a vector (embed), or the scores of its classes (rerank,
// classify_text). Blind to the wire.
//
//   handler->Start({.items = {{.text = "Hello"}}}, done, stop_token);
//
// A text's row does not depend on what stands beside it: it is padded to a
// length that its own length decides.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "config/base/clock.h"
#include "config/base/status.h"
#include "config/base/trace.h"
#include "config/task_settings.h"

namespace millrace::handlers {

struct TaskParts;  // make_task.h

// A text, two of them, or token ids, which nothing is put around.
struct TextItem {
  std::string text = {};
  std::optional<std::string> pair = {};
  std::optional<std::vector<int32_t>> ids = {};
};

struct TextRequest {
  static constexpr size_t kMaxItems = 2048;  // as OpenAI has it

  std::vector<TextItem> items;
  bool truncate = false;  // texts that are too long, else they are refused
  std::optional<int64_t> max_tokens = {};  // a limit of its own: cuts as well
  // Of vectors: the first so many numbers; at length 1 or not.
  std::optional<int64_t> dimensions = {};
  std::optional<bool> normalize = {};
  bool raw_scores = false;  // what the graph gives, without activation
  int32_t priority = 0;
  Clock::Time deadline = kNever;
  std::shared_ptr<Trace> trace;  // never null
};

struct TextRow {
  // Vectors and scores of pairs are finite, scores of classes are not NaN: a
  // model that gives anything else ends the request with INTERNAL.
  std::vector<float> values;
  int64_t num_tokens = 0;
};

struct TextResponse {
  std::vector<TextRow> rows;  // in the order of the items
  int64_t num_tokens() const;
};

// What does not change while the model serves.
struct TextTaskFacts {
  config::TaskKind kind = config::TaskKind::kEmbed;
  int64_t max_tokens = 0;           // of one item
  std::vector<std::string> labels;  // of scores; may be fewer than these
  int64_t top_k = 0;
};

class TextHandler {
 public:
  virtual ~TextHandler() = default;

  // Call it on a thread of the handler pool. `done` is called once, from a
  // thread of the pool, maybe before this returns.
  using Done = std::function<void(StatusOr<TextResponse>)>;
  virtual void Start(TextRequest request, Done done, std::stop_token stop) = 0;
  virtual const TextTaskFacts& facts() const = 0;
};

// INVALID_ARGUMENT when the task does not fit the graph's inputs and outputs,
// or a file it needs is missing or wrong.
StatusOr<std::unique_ptr<TextHandler>> MakeTextHandler(const TaskParts& parts);

// The name of a class: its label, else "LABEL_3" as transformers has it.
std::string LabelOf(const TextTaskFacts& facts, size_t class_idx);

}  // namespace millrace::handlers
