// The JSON of OpenAI's answers, as text: completions and chat, whole and in
// chunks. Pure functions of what they are given.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "config/base/clock.h"
#include "handlers/messages.h"

namespace millrace::server::http {

// What is the same in every chunk of one answer.
struct AnswerShape {
  bool chat = true;  // else legacy completions
  bool stream = false;
  bool include_usage = false;     // stream_options
  bool continuous_usage = false;  // vLLM's addition
  bool logprobs = false;
  bool timings_per_token = false;  // llama.cpp's: in every chunk
  std::string id;                  // "chatcmpl-…" or "cmpl-…"
  std::string model;
  int64_t created_unix = 0;
  int num_choices = 1;
  int choices_per_prompt = 1;    // n; those of one prompt stand together
  const Clock* clock = nullptr;  // of `timings`; null: there are none
};

// A tool call as it grows.
struct ToolCallText {
  std::string id;  // the model's, else one of ours
  std::string name;
  std::string arguments;
};

// One choice as it grows.
struct ChoiceText {
  std::string text;
  std::string reasoning;
  std::vector<ToolCallText> calls;
  std::vector<handlers::TokenLogprobs> logprobs;
  std::vector<handlers::TokenLogprobs> text_logprobs;  // of them, of `text`
  std::vector<int32_t> ids;  // of its tokens, when asked for
  handlers::FinishReason reason = handlers::FinishReason::kError;
  std::variant<std::monostate, std::string, int32_t> stop_reason;

  // Appends the delta. A new call without an id gets `id_prefix` and 24
  // random digits; the delta is given it, too.
  void Add(handlers::OutputDelta& delta, std::string_view id_prefix = "call_");
};

// The tokens as a chat has them: {"content": [{"token", "logprob", "bytes",
// "top_logprobs"}], "refusal": null}.
std::string ChatLogprobs(const std::vector<handlers::TokenLogprobs>& tokens);

// `text` as a JSON string, quotes included. Bytes that are no UTF-8 become
// U+FFFD.
std::string JsonString(std::string_view text);

// Tokens of a prediction are counted as scheduler/prediction.h says; other
// drafts of the server are not counted there.
std::string UsageJson(const handlers::Usage& usage);

// Makes the chunks of one answer. Used under the answer's lock.
class ChunkMaker {
 public:
  explicit ChunkMaker(const AnswerShape& shape);

  // Each is one whole server-sent event. `usage` is given when every chunk
  // carries it; `timings` is llama.cpp's object, or empty.
  std::string Role(int index, const handlers::Usage* usage);
  // Without text: `progress` is llama.cpp's prompt_progress.
  std::string Progress(int index, std::string_view progress,
                       const handlers::Usage* usage, std::string_view timings);
  std::string Text(int index, const handlers::OutputDelta& chunk,
                   const handlers::Usage* usage, std::string_view timings = {});
  std::string Finish(int index, const ChoiceText& choice,
                     const handlers::Usage* usage,
                     std::string_view timings = {});
  std::string Usage(const handlers::Usage& usage,
                    std::string_view timings = {});

 private:
  std::string Event(int index, std::string_view content,
                    std::string_view logprobs, std::string_view finish,
                    const handlers::Usage* usage, std::string_view timings = {},
                    std::string_view progress = {}) const;

  const AnswerShape& shape_;
  const std::string prefix_;          // up to the choices
  std::vector<int64_t> text_offset_;  // by choice, in characters
};

// The whole answer, with llama.cpp's timings unless they are empty.
std::string AnswerJson(const AnswerShape& shape,
                       const std::vector<ChoiceText>& choices,
                       const handlers::Usage& usage,
                       std::string_view timings = {});

// A server-sent event (WHATWG HTML, section 9.2).
std::string SseEvent(std::string_view data);
inline constexpr std::string_view kSseDone = "data: [DONE]\n\n";

}  // namespace millrace::server::http
