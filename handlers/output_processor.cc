// A stop id ends the completion in the engine, too. A stop string is found
// here, some tokens after the engine drew it.
#include "handlers/output_processor.h"

#include <algorithm>
#include <utility>

namespace millrace::handlers {

OutputProcessor::OutputProcessor(Options options)
    : options_(std::move(options)),
      text_({.stop = std::move(options_.stop),
             .include_stop = options_.include_stop}) {
  std::ranges::sort(options_.stop_ids);
  parsed_ = std::make_unique<ParsedOutput>(options_.parser.most_calls);
  parser_ = MakeOutputParser(options_.parser, *parsed_);
}

void OutputProcessor::PushPrompt(scheduler::TokenEvent event) {
  if (options_.echo) prompt_events_.push_back(std::move(event));
}

bool OutputProcessor::StopsAt(int32_t id) const {
  return std::ranges::binary_search(options_.stop_ids, id);
}

bool OutputProcessor::Push(const scheduler::TokenEvent& event) {
  if (stop_reason_) return false;
  ++num_tokens_;
  if (options_.ids) unsent_ids_.push_back(event.id);
  const bool stops = StopsAt(event.id);
  if (stops) {
    stop_reason_.emplace();
    // As in vLLM: the model's own end has no stop_reason.
    if (options_.ignore_eos || !options_.tokenizer->EndsAnswer(event.id)) {
      stop_reason_ = event.id;
    }
    if (!options_.include_stop) {
      text_.Finish();
      ++unsent_tokens_;
      return false;
    }
  }
  std::optional<TokenLogprobs> logprobs;
  if (options_.logprobs) logprobs = LogprobsOf(event);
  const bool goes_on = text_.Push(
      options_.tokenizer->Piece(event.id, !options_.skip_special_tokens ||
                                              options_.parser.special_tokens()),
      std::move(logprobs), num_tokens_ > options_.min_tokens);
  if (stops) {
    text_.Finish();
  } else if (!goes_on) {
    stop_reason_ = *text_.stop_string();
  }
  return !stop_reason_;
}

void OutputProcessor::Finish() {
  finished_ = true;
  text_.Finish();
  if (!stop_reason_ && text_.stop_string()) stop_reason_ = *text_.stop_string();
}

std::vector<OutputDelta> OutputProcessor::Take() {
  std::vector<OutputDelta> deltas;
  if (EchoIsWhole()) deltas.push_back(TakeEcho());
  std::vector<TokenSpan> spans;
  OutputDelta delta = text_.Take(&spans);
  unsent_tokens_ += delta.num_tokens;
  if (parser_ != nullptr) {
    Parse(std::move(delta), spans, deltas);
    return deltas;
  }
  // At the end ids may be left that have no text.
  const bool last_ids = (finished_ || stop_reason_) && !unsent_ids_.empty();
  if (!delta.text.empty() || !delta.logprobs.empty() || last_ids) {
    delta.num_tokens = std::exchange(unsent_tokens_, 0);
    delta.ids = std::exchange(unsent_ids_, {});
    deltas.push_back(std::move(delta));
  }
  return deltas;
}

void OutputProcessor::Parse(OutputDelta text,
                            const std::vector<TokenSpan>& spans,
                            std::vector<OutputDelta>& deltas) {
  const bool tells = options_.logprobs;
  for (size_t i = 0; i < spans.size(); ++i) {
    token_deltas_.Add(spans[i], std::move(text.logprobs[i]));
  }
  for (const char byte : text.text) {
    parser_->Step(byte);
    if (tells) {
      token_deltas_.Step(parsed_->Take(), {.spaces = parsed_->num_spaces(),
                                           .last = parser_->num_held()});
    }
  }
  if ((finished_ || stop_reason_) && !std::exchange(parser_ended_, true)) {
    parser_->End();
    parsed_->Finish();
    if (tells) token_deltas_.End(parsed_->Take());
  }
  std::vector<OutputDelta> found =
      tells ? token_deltas_.Take() : parsed_->Take();
  if (found.empty() && parser_ended_ && !unsent_ids_.empty()) {
    found.emplace_back();
  }
  if (found.empty()) return;
  found.front().num_tokens = std::exchange(unsent_tokens_, 0);
  found.front().ids = std::exchange(unsent_ids_, {});
  const auto shown = std::ranges::find_if(found, [](const OutputDelta& delta) {
    return !delta.text.empty() || !delta.call_name.empty();
  });
  if (shown != found.end() && shown->kind == DeltaKind::kReasoning) {
    reasoning_tokens_ += found.front().num_tokens;
  }
  for (OutputDelta& delta : found) deltas.push_back(std::move(delta));
}

// All tokens but the first are scored.
bool OutputProcessor::EchoIsWhole() const {
  return options_.echo &&
         (prompt_events_.size() + 1 >= options_.echo->ids.size() ||
          num_tokens_ > 0);
}

OutputDelta OutputProcessor::TakeEcho() {
  PromptEcho echo = *std::exchange(options_.echo, std::nullopt);
  OutputDelta delta;
  delta.text = std::move(echo.text);
  for (size_t i = 0; i < echo.ids.size(); ++i) {
    if (i == 0) {
      TokenLogprobs first;
      first.chosen = CandidateOf(echo.ids[0], 0);
      first.has_logprob = false;
      delta.logprobs.push_back(std::move(first));
    } else if (i <= prompt_events_.size()) {
      delta.logprobs.push_back(LogprobsOf(prompt_events_[i - 1]));
    }
  }
  prompt_events_.clear();
  return delta;
}

TokenLogprobs::Candidate OutputProcessor::CandidateOf(int32_t id,
                                                      float logprob) const {
  return {id, std::string(options_.tokenizer->Piece(id, true)), logprob};
}

TokenLogprobs OutputProcessor::LogprobsOf(
    const scheduler::TokenEvent& event) const {
  TokenLogprobs result;
  result.chosen = CandidateOf(event.id, event.logprob);
  for (const models::TokenLogprob& top : event.top) {
    if (top.id < 0) break;  // unused entries stand at the end
    result.top.push_back(CandidateOf(top.id, top.logprob));
  }
  return result;
}

}  // namespace millrace::handlers
