// From the tokens of one completion to what its client sees: text of whole
// characters without what may be the start of a stop string, log-probabilities,
// and why it ended.
//
//   OutputProcessor output({.tokenizer = tokenizer, .stop = {"\n\n"}});
//   for (const TokenEvent& event : events) {
//     if (!output.Push(event)) break;   // a stop string or stop id: it is over
//   }
//   for (OutputDelta& delta : output.Take()) sink->OnDelta(std::move(delta));
//   ... output.Finish(); ... output.Take();
//
// Where a parser is given, the text passes through it, and each delta is of one
// kind. Log-probabilities of a token go with a delta of its own kind; tokens of
// tags may have one without a text (token_deltas.h).
//
// A prompt that is echoed comes first, as one delta; with log-probabilities it
// waits until all of the prompt is scored, or the first token is there.
//
// Not thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "handlers/messages.h"
#include "handlers/parsers/formats.h"
#include "handlers/text_out.h"
#include "handlers/token_deltas.h"
#include "models/text/tokenizer.h"
#include "scheduler/token_stream.h"

namespace millrace::handlers {

// The prompt, shown before the completion.
struct PromptEcho {
  std::string text;
  std::vector<int32_t> ids = {};  // with log-probabilities only
};

class OutputProcessor {
 public:
  struct Options {
    const models::Tokenizer* tokenizer = nullptr;  // outlives the processor
    std::vector<std::string> stop = {};            // valid UTF-8, none empty
    std::vector<int32_t> stop_ids = {};            // in any order
    bool include_stop = false;        // what stopped it stays in the text
    bool ignore_eos = false;          // the model's end is not among stop_ids
    bool skip_special_tokens = true;  // they have no text
    bool logprobs = false;            // of each token, with its alternatives
    bool ids = false;                 // each token's, what ends it included
    int64_t min_tokens = 0;           // stop strings count behind these
    std::optional<PromptEcho> echo = {};
    ParserSpec parser = {};  // parts content, reasoning and calls
  };
  explicit OutputProcessor(Options options);

  // The score of the next prompt token; the first token of all has none.
  void PushPrompt(scheduler::TokenEvent event);
  // False: the completion is over; what the engine draws after it is dropped.
  bool Push(const scheduler::TokenEvent& event);
  // There are no more tokens: Take gives the rest, which may complete a stop
  // string even now.
  void Finish();

  // All that can be shown now, in order.
  std::vector<OutputDelta> Take();

  // What ended the completion, if a stop string or a stop id did.
  const std::optional<StopReason>& stop_reason() const { return stop_reason_; }
  // A stop string did, which the engine knows nothing of.
  bool stopped_by_text() const {
    return stop_reason_ && std::holds_alternative<std::string>(*stop_reason_);
  }
  // Of the completion so far, shown or not.
  int64_t num_tokens() const { return num_tokens_; }
  // Those that were reasoning, of the shown ones.
  int64_t reasoning_tokens() const { return reasoning_tokens_; }

 private:
  bool StopsAt(int32_t id) const;
  bool EchoIsWhole() const;
  OutputDelta TakeEcho();
  void Parse(OutputDelta text, const std::vector<TokenSpan>& spans,
             std::vector<OutputDelta>& deltas);
  TokenLogprobs::Candidate CandidateOf(int32_t id, float logprob) const;
  TokenLogprobs LogprobsOf(const scheduler::TokenEvent& event) const;

  Options options_;  // stop_ids ascending; echo until it is taken
  TextOut text_;
  std::vector<scheduler::TokenEvent> prompt_events_;
  int64_t num_tokens_ = 0;
  int32_t unsent_tokens_ = 0;        // that had nothing to show
  std::vector<int32_t> unsent_ids_;  // of pushed tokens
  int64_t reasoning_tokens_ = 0;
  bool finished_ = false;  // Finish was called
  bool parser_ended_ = false;
  std::unique_ptr<ParsedOutput> parsed_;  // what the parser writes to
  std::unique_ptr<OutputParser> parser_;  // null: all is content
  TokenDeltas token_deltas_;  // of what it finds, with log-probabilities
  std::optional<StopReason> stop_reason_;
};

}  // namespace millrace::handlers
