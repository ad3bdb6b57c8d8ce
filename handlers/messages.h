// Neutral requests and answers: what a task means, whatever wire it came over.
// Codecs (REST, gRPC) turn bytes into these; handlers never see bytes.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "config/base/clock.h"
#include "config/base/status.h"
#include "config/base/trace.h"
#include "models/grammar/output_constraint.h"
#include "models/tensor/tensor.h"
#include "scheduler/request.h"

namespace millrace::handlers {

// Whether a completion may, must or must not call tools.
struct ToolChoice {
  enum class Mode { kAuto, kNone, kRequired };
  Mode mode = Mode::kAuto;
  std::string name = {};                // kRequired: this one; empty: any
  bool parallel = true;                 // else one call at most
  std::vector<std::string> names = {};  // of all tools
};

// An image of a message, as its file; in the message stands {"type": "image"}.
struct ChatImage {
  std::shared_ptr<const std::string> bytes;
  std::string path;   // of its part: "messages[0].content[1]"
  std::string field;  // in it, that holds the file; maybe the part itself
  // Why it has no bytes; a model that takes no images says that first.
  Status status = {};
};

// A conversation, in the shape of OpenAI's `messages`; keys that we do not
// know reach the chat template as they are.
struct ChatPrompt {
  std::shared_ptr<const nlohmann::ordered_json> messages;  // array
  // Array; null: the prompt names none and no calls are looked for.
  std::shared_ptr<const nlohmann::ordered_json> tools;
  std::vector<ChatImage> images = {};  // in the order of the messages
  ToolChoice tool_choice = {};
  bool parse_reasoning = true;  // else it is content
  std::shared_ptr<const nlohmann::ordered_json> template_kwargs;  // or null
  bool add_generation_prompt = true;
};
// Stands in a TextPrompt's text where an image is; llama.cpp's.
inline constexpr std::string_view kMediaMarker = "<__media__>";
struct TextPrompt {
  std::string text;
  // Each stands in place of a marker of the text; none: there are no markers,
  // only words.
  std::vector<ChatImage> images = {};
};
struct TokenPrompt {
  std::vector<int32_t> ids;
};

// Sampling as the client wrote it; what is absent takes the model's default or
// the task's.
// Ranges are checked where the fields are read (request_fields.h).
struct GenerateOptions {
  // Absent: chat fills the context, completions get 16.
  std::optional<int64_t> max_tokens = {};
  int32_t n = 1;  // completions of the same prompt
  int64_t min_tokens = 0;
  std::optional<double> temperature = {};
  std::optional<int64_t> top_k = {};  // 0 or -1: off
  std::optional<double> top_p = {};
  std::optional<double> min_p = {};
  std::optional<double> repetition_penalty = {};
  std::optional<double> presence_penalty = {};
  std::optional<double> frequency_penalty = {};
  // Tokens that the penalties look at, llama.cpp's rule; -1: all of them.
  // Absent: the repetition penalty at all, the others at the completion.
  std::optional<int32_t> repeat_last_n = {};
  // The samplers of llama.cpp (sampler_fields.cc).
  std::optional<double> typical_p = {};
  std::optional<double> top_n_sigma = {};  // 0 and below: off
  std::optional<double> xtc_probability = {};
  std::optional<double> xtc_threshold = {};
  std::optional<double> dynatemp_range = {};
  std::optional<double> dynatemp_exponent = {};
  int32_t min_keep = 0;  // candidates that cuts leave at least
  // The order of samplers (llama_fields.cc); empty: none was asked for.
  std::vector<models::DrawStage> sampler_order = {};
  bool dry_first = false;  // DRY before the penalties
  int32_t mirostat = 0;    // its version; 0: off
  std::optional<double> mirostat_tau = {};
  std::optional<double> mirostat_eta = {};
  std::optional<double> dry_multiplier = {};
  std::optional<double> dry_base = {};
  std::optional<int32_t> dry_allowed_length = {};
  std::optional<int32_t> dry_penalty_last_n = {};  // -1: all tokens
  std::optional<std::vector<std::string>> dry_sequence_breakers = {};
  std::vector<std::pair<int32_t, float>> logit_bias = {};
  std::vector<int32_t> allowed_token_ids = {};  // empty: all
  std::vector<std::string> bad_words = {};      // never in the completion
  std::vector<int32_t> suppress_tokens = {};    // never drawn
  int32_t no_repeat_ngram_size = 0;             // 0: off
  // By name; what they do is in the fields that they set.
  std::vector<std::string> logits_processors = {};
  models::OutputConstraint constraint = {};  // of the completion's text
  std::string prediction = {};  // what it is expected to be; empty: nothing
  std::optional<uint64_t> seed = {};  // absent: drawn
  std::vector<std::string> stop = {};
  std::vector<int32_t> stop_token_ids = {};
  bool include_stop_str_in_output = false;
  bool ignore_eos = false;
  bool skip_special_tokens = true;
  bool echo = false;             // completions: the prompt comes first
  bool return_ids = false;       // of the output tokens
  bool return_progress = false;  // of the prompt, to the sink
  // max_tokens beyond what the context leaves, or none, mean what it leaves.
  bool clip_to_context = false;
  std::optional<int> logprobs = {};  // alternatives per token, 0…20
  int32_t priority = 0;
};

using TenantShare = scheduler::TenantShare;  // codecs see no scheduler
using PromptProgress = scheduler::PromptProgress;

struct GenerateRequest {
  std::variant<ChatPrompt, TextPrompt, TokenPrompt> prompt;
  GenerateOptions options;
  TenantShare tenant = {};
  Clock::Time deadline = kNever;
  std::shared_ptr<Trace> trace;  // never null
};

// One token of the completion with its log-probability.
struct TokenLogprobs {
  struct Candidate {
    int32_t id;
    std::string bytes;  // may be part of a character
    float logprob;
  };
  Candidate chosen;
  bool has_logprob = true;     // false for the very first token of a prompt
  std::vector<Candidate> top;  // best first
};

// What a piece of output is to its client.
enum class DeltaKind {
  kContent,    // text of the completion, or of an echoed prompt
  kReasoning,  // what the model thinks before it answers
  kToolCall,   // the arguments of a call
};

// The next piece of a completion: whole UTF-8 characters, never half a stop
// string. A client's view is the pieces in their order, each of one kind.
struct OutputDelta {
  DeltaKind kind = DeltaKind::kContent;
  std::string text = {};
  std::vector<TokenLogprobs> logprobs = {};  // when asked for
  int32_t num_tokens = 0;         // output tokens that this piece stands for
  std::vector<int32_t> ids = {};  // these tokens, when asked for
  // Of a call: its place among all calls. Its first piece has its name, and an
  // id if the model made one.
  int32_t call_idx = 0;
  std::string call_name = {};
  std::string call_id = {};
};

enum class FinishReason { kStop, kLength, kError };

// The stop string or stop token id that ended a completion; none when its model
// did. vLLM's stop_reason.
using StopReason = std::variant<std::monostate, std::string, int32_t>;

struct Usage {
  int64_t prompt_tokens = 0;
  int64_t completion_tokens = 0;
  int64_t cached_tokens = 0;
  int64_t reasoning_tokens = 0;  // of the completion's
  // Draft tokens of the client's prediction that were checked; those that were
  // rejected are not among the completion's.
  int64_t accepted_prediction_tokens = 0;
  int64_t rejected_prediction_tokens = 0;
};

struct GenerateEnd {
  Status status = {};  // not OK: the completion failed or was cut off by us
  FinishReason reason = FinishReason::kError;
  StopReason stop_reason = {};
  Usage usage = {};
};

// Tensors in, tensors out, by name: what a graph is asked and what it answers.
struct NamedTensor {
  std::string name;
  models::Tensor tensor;
};

struct TensorRequest {
  std::vector<NamedTensor> inputs;  // in any order
  // Those wanted, in this order; none: all.
  std::vector<std::string> outputs;
  int32_t priority = 0;
  Clock::Time deadline = kNever;  // of the transport
  // The request's own limit, from now on: of its time in the queue where the
  // model says so (allow_timeout_override), else of all its time.
  std::optional<std::chrono::microseconds> timeout = {};
  std::shared_ptr<Trace> trace;  // never null
  // The caller's `done` is short and keeps no model: it may be called on the
  // model's own thread, before its next batch.
  bool short_done = false;
};

// The batch that a request was computed in, and where its time went.
struct BatchFacts {
  int32_t rows = 1;
  int32_t requests = 1;
  std::string closed = {};  // why no further request joined
  Clock::Duration queue{0};
  Clock::Duration compute_input{0};
  Clock::Duration compute_infer{0};
  Clock::Duration compute_output{0};
};

struct TensorResponse {
  std::vector<NamedTensor> outputs;
  BatchFacts batch = {};
};

}  // namespace millrace::handlers
