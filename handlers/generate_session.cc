// What a reader would guess wrong: after a stop string the text is complete and
// goes out at once, yet OnEnd waits for the engine's own end, one step later at
// most. Only then are the place and the pages free again, so a client that asks
// again at once is not refused because of its own last request.
#include "handlers/generate_session.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <random>
#include <utility>

#include "config/base/utf8.h"
#include "handlers/generate_prompt.h"

namespace millrace::handlers {
namespace {

constexpr int64_t kDefaultCompletionTokens = 16;

uint64_t DrawSeed() {
  std::random_device device;
  return (uint64_t{device()} << 32) | device();
}

}  // namespace

GenerateSession::GenerateSession(
    std::shared_ptr<const GenerateParts> parts, GenerateRequest request,
    std::shared_ptr<GenerateSink> sink, std::stop_token client_stop,
    std::vector<std::shared_ptr<GenerateSession>> siblings)
    : parts_(std::move(parts)),
      client_stop_(std::move(client_stop)),
      request_(std::move(request)),
      sink_(std::move(sink)),
      siblings_(std::move(siblings)),
      out_({.stop = request_.options.stop,
            .include_stop = request_.options.include_stop_str_in_output}) {}

void GenerateSession::Begin() {
  if (Status wanted = CheckStillWanted(); !wanted.ok()) return Refuse(wanted);
  if (Status fits = CheckFamilyFits(); !fits.ok()) return Refuse(fits);
  auto place = parts_->engine->Reserve(
      request_.deadline, static_cast<int32_t>(siblings_.size()) + 1);
  if (!place.ok()) return Refuse(place.status());
  place_ = std::move(place).value();
  if (request_.trace) {
    request_.trace->Stamp(Stage::kReserved, parts_->clock->Now());
  }
  if (!parts_->pool->TryPost(
          [self = shared_from_this()] { self->Prepare(); })) {
    Refuse(ResourceExhausted("too many requests wait to be read; try again "
                             "in a second")
               .RetryAfterMs(1000)
               .Because("queue_full"));
  }
}

void GenerateSession::Refuse(Status status) {
  place_.Release();
  parts_->pool->Continue(
      [self = shared_from_this(), status = std::move(status)] {
        const auto siblings = std::move(self->siblings_);
        self->End({.status = status});
        for (const auto& sibling : siblings) sibling->End({.status = status});
      });
}

Status GenerateSession::CheckFamilyFits() const {
  const auto n = static_cast<int32_t>(siblings_.size()) + 1;
  const int32_t most = parts_->engine->info().limits.max_seqs;
  if (n == 1 || n <= most) return OkStatus();
  return InvalidArgument("n is " + std::to_string(n) + " but model '" +
                         parts_->model + "' runs " + std::to_string(most) +
                         " sequences at once; ask for fewer answers or raise "
                         "max_num_seqs")
      .At("n");
}

Status GenerateSession::CheckStillWanted() const {
  if (client_stop_.stop_requested()) {
    return Cancelled("the client is gone");
  }
  if (parts_->clock->Now() >= request_.deadline) {
    return DeadlineExceeded("the request's deadline passed before it ran");
  }
  return OkStatus();
}

void GenerateSession::Prepare() {
  const Status status = SubmitAll();
  // The prompt may be large: it does not wait for the answer to end.
  request_.prompt = TextPrompt{};
  place_.Release();
  const auto siblings = std::move(siblings_);
  std::vector<GenerateSession*> all = {this};
  for (const auto& sibling : siblings) all.push_back(sibling.get());
  for (GenerateSession* session : all) {
    if (session->stream_) {
      session->Follow();
    } else {
      session->End({.status = status, .usage = session->usage_});
    }
  }
}

void GenerateSession::Follow() {
  sink_->OnAccepted(usage_);
  if (echo_due_ && echo_ids_.empty()) EmitEcho();
  // Last: from here on the engine may have another pool thread run us.
  // A local reference, for the end drops the member.
  const auto stream = stream_;
  stream->OnReady([self = shared_from_this()] { self->Wake(); });
}

Status GenerateSession::SubmitAll() {
  RETURN_IF_ERROR(CheckStillWanted());
  const GenerateOptions& options = request_.options;
  const int64_t max_context = parts_->engine->info().max_context;
  ASSIGN_OR_RETURN(std::vector<int32_t> ids,
                   EncodePrompt(*parts_, request_.prompt, max_context));
  usage_.prompt_tokens = static_cast<int64_t>(ids.size());
  for (const auto& sibling : siblings_) sibling->usage_ = usage_;
  ASSIGN_OR_RETURN(const int64_t max_tokens,
                   AnswerLimit(usage_.prompt_tokens, max_context));
  scheduler::GenerateTask task;
  ASSIGN_OR_RETURN(task.sampling, Sampling(max_tokens));
  const std::string echo_text = options.echo ? EchoText(ids) : "";
  task.prompt_logprobs = options.echo && options.logprobs.has_value();
  task.prompt = std::move(ids);
  task.max_tokens = static_cast<int32_t>(max_tokens);
  task.deadline = request_.deadline;
  task.priority = options.priority;
  task.trace = request_.trace;
  if (!siblings_.empty()) task.family = std::make_shared<char>();

  RETURN_IF_ERROR(CheckStillWanted());
  RETURN_IF_ERROR(Submit(place_.Split(), task, echo_text));
  for (const auto& sibling : siblings_) {
    ++task.sampling.seed;
    RETURN_IF_ERROR(sibling->Submit(place_.Split(), task, echo_text));
  }
  return OkStatus();
}

Status GenerateSession::Submit(scheduler::Reservation place,
                               scheduler::GenerateTask task,
                               const std::string& echo_text) {
  if (request_.options.echo) {
    echo_due_ = true;
    echo_text_ = echo_text;
    if (request_.options.logprobs) echo_ids_ = task.prompt;
  }
  stop_ids_ = task.sampling.stop_ids;
  std::sort(stop_ids_.begin(), stop_ids_.end());
  task.stop = engine_stop_.get_token();
  forward_stop_.emplace(client_stop_, ForwardStop{&engine_stop_});
  ASSIGN_OR_RETURN(stream_,
                   parts_->engine->Submit(std::move(place), std::move(task)));
  return OkStatus();
}

std::string GenerateSession::EchoText(const std::vector<int32_t>& ids) const {
  const auto* text = std::get_if<TextPrompt>(&request_.prompt);
  return ReplaceInvalidUtf8(
      text != nullptr ? text->text
                      : parts_->tokenizer->Decode(
                            ids, !request_.options.skip_special_tokens));
}

StatusOr<int64_t> GenerateSession::AnswerLimit(int64_t prompt_tokens,
                                               int64_t max_context) {
  const GenerateOptions& options = request_.options;
  const int64_t room = max_context - prompt_tokens;
  if (room < 1) {
    return PromptTooLong(*parts_, request_.prompt, prompt_tokens, max_context);
  }
  if (options.max_tokens && *options.max_tokens > room) {
    return InvalidArgument(
               "max_tokens is " + std::to_string(*options.max_tokens) +
               " but the prompt has " + std::to_string(prompt_tokens) +
               " tokens and model '" + parts_->model + "' takes at most " +
               std::to_string(max_context) +
               ", prompt and answer together; ask for at most " +
               std::to_string(room))
        .At("max_tokens")
        .Because("context_length_exceeded");
  }
  const int64_t by_default = std::holds_alternative<ChatPrompt>(request_.prompt)
                                 ? room
                                 : std::min(room, kDefaultCompletionTokens);
  const int64_t limit = options.max_tokens.value_or(by_default);
  if (options.min_tokens > limit) {
    return InvalidArgument("min_tokens is " +
                           std::to_string(options.min_tokens) +
                           " but the answer has at most " +
                           std::to_string(limit) + " tokens; lower it")
        .At("min_tokens");
  }
  return limit;
}

StatusOr<models::SamplingParams> GenerateSession::Sampling(
    int64_t max_tokens) const {
  const GenerateOptions& options = request_.options;
  const int32_t vocab_size = parts_->engine->info().vocab_size;
  const auto check_id = [&](const char* field, int32_t id) {
    if (id >= 0 && id < vocab_size) return OkStatus();
    return InvalidArgument(std::string(field) + " names token " +
                           std::to_string(id) + " but model '" + parts_->model +
                           "' has tokens 0 to " +
                           std::to_string(vocab_size - 1))
        .At(field);
  };
  for (const auto& [id, bias] : options.logit_bias) {
    RETURN_IF_ERROR(check_id("logit_bias", id));
  }
  for (const int32_t id : options.stop_token_ids) {
    RETURN_IF_ERROR(check_id("stop_token_ids", id));
  }

  models::SamplingParams sampling;
  // The request, else the model's makers, else nothing that changes a logit.
  const models::GenerationDefaults& defaults = parts_->defaults;
  const auto pick = [](std::optional<double> wanted,
                       std::optional<double> usual, double otherwise) {
    return static_cast<float>(wanted.value_or(usual.value_or(otherwise)));
  };
  const int64_t top_k = options.top_k.value_or(defaults.top_k.value_or(0));
  sampling.temperature = pick(options.temperature, defaults.temperature, 1);
  sampling.top_k =
      top_k <= 0 ? 0
                 : static_cast<int32_t>(std::min<int64_t>(top_k, vocab_size));
  sampling.top_p = pick(options.top_p, defaults.top_p, 1);
  sampling.min_p = pick(options.min_p, defaults.min_p, 0);
  sampling.repetition_penalty =
      pick(options.repetition_penalty, defaults.repetition_penalty, 1);
  sampling.presence_penalty = pick(options.presence_penalty, {}, 0);
  sampling.frequency_penalty = pick(options.frequency_penalty, {}, 0);
  sampling.seed = options.seed ? *options.seed : DrawSeed();
  sampling.logprobs = options.logprobs.has_value();
  sampling.top_logprobs = options.logprobs.value_or(0);
  sampling.logit_bias = options.logit_bias;
  sampling.stop_ids = options.stop_token_ids;
  if (!options.ignore_eos) {
    const auto& eog = parts_->tokenizer->vocabulary().eog_ids;
    sampling.stop_ids.insert(sampling.stop_ids.end(), eog.begin(), eog.end());
  }
  sampling.min_tokens =
      static_cast<int32_t>(std::min(options.min_tokens, max_tokens));
  return sampling;
}

void GenerateSession::Wake() {
  if (wakes_.fetch_add(1, std::memory_order_acq_rel) != 0) return;
  parts_->pool->Continue([self = shared_from_this()] { self->Run(); });
}

void GenerateSession::Run() {
  uint32_t served = wakes_.load(std::memory_order_acquire);
  while (true) {
    Advance();
    const uint32_t before = wakes_.fetch_sub(served, std::memory_order_acq_rel);
    if (before == served) return;
    served = before - served;  // came in meanwhile
  }
}

void GenerateSession::Advance() {
  if (!stream_) return;  // the end has been told
  scheduler::TokenStream::Taken taken = stream_->Take();
  if (echo_due_) {
    for (auto& event : taken.prompt) echo_events_.push_back(std::move(event));
    const bool whole = echo_events_.size() + 1 >= echo_ids_.size();
    if (whole || !taken.tokens.empty()) EmitEcho();
  }
  const bool had_ended = ended_early_.has_value();
  for (const scheduler::TokenEvent& event : taken.tokens) {
    if (ended_early_) break;  // the engine ran ahead of a stop string
    OnToken(event);
  }
  const bool cancelled =
      taken.end && taken.end->status.code() == StatusCode::kCancelled;
  if (taken.end) out_.Finish();
  if (!had_ended && (!cancelled || ended_early_)) Emit(out_.Take());
  if (taken.end) EndWith(*taken.end);
}

void GenerateSession::OnToken(const scheduler::TokenEvent& event) {
  const GenerateOptions& options = request_.options;
  ++usage_.completion_tokens;
  const bool stops =
      std::binary_search(stop_ids_.begin(), stop_ids_.end(), event.id);
  if (stops) {
    ended_early_ = GenerateEnd{.reason = FinishReason::kStop};
    // As in vLLM: the model's own end has no stop_reason.
    if (options.ignore_eos || !parts_->tokenizer->EndsAnswer(event.id)) {
      ended_early_->stop_reason = event.id;
    }
    if (!options.include_stop_str_in_output) {
      out_.Finish();
      ++unsent_tokens_;
      return;
    }
  }
  std::optional<TokenLogprobs> logprobs;
  if (options.logprobs) logprobs = LogprobsOf(event);
  const bool goes_on = out_.Push(
      parts_->tokenizer->Piece(event.id, !options.skip_special_tokens),
      std::move(logprobs), usage_.completion_tokens > options.min_tokens);
  if (stops) {
    out_.Finish();
  } else if (!goes_on) {
    ended_early_ = GenerateEnd{.reason = FinishReason::kStop};
    ended_early_->stop_reason = *out_.stop_string();
    engine_stop_.request_stop();
  }
}

void GenerateSession::EmitEcho() {
  echo_due_ = false;
  TextChunk chunk;
  chunk.text = std::move(echo_text_);
  for (size_t i = 0; i < echo_ids_.size(); ++i) {
    if (i == 0) {
      TokenLogprobs first;
      first.chosen = CandidateOf(echo_ids_[0], 0);
      first.has_logprob = false;
      chunk.logprobs.push_back(std::move(first));
    } else if (i <= echo_events_.size()) {
      chunk.logprobs.push_back(LogprobsOf(echo_events_[i - 1]));
    }
  }
  echo_ids_.clear();
  echo_events_.clear();
  sink_->OnChunk(std::move(chunk));
}

void GenerateSession::Emit(TextChunk chunk) {
  unsent_tokens_ += chunk.num_tokens;
  if (chunk.text.empty() && chunk.logprobs.empty()) return;
  chunk.num_tokens = std::exchange(unsent_tokens_, 0);
  sink_->OnChunk(std::move(chunk));
}

void GenerateSession::EndWith(const scheduler::StreamEnd& end) {
  usage_.cached_tokens = end.cached_tokens;
  GenerateEnd result;
  if (ended_early_) {
    // Whatever the engine says of it: the answer was complete.
    result = *std::move(ended_early_);
  } else if (out_.stop_string()) {
    // The end of the text completed it.
    result.reason = FinishReason::kStop;
    result.stop_reason = *out_.stop_string();
  } else if (!end.status.ok()) {
    result.status = end.status;
  } else {
    result.reason = end.reason == scheduler::FinishReason::kStop
                        ? FinishReason::kStop
                        : FinishReason::kLength;
  }
  result.usage = usage_;
  End(std::move(result));
}

void GenerateSession::End(GenerateEnd end) {
  // OnEnd may free the engine, so everything of the engine's goes before it.
  place_.Release();
  forward_stop_.reset();
  stream_.reset();
  const auto sink = std::move(sink_);
  sink->OnEnd(std::move(end));
}

TokenLogprobs::Candidate GenerateSession::CandidateOf(int32_t id,
                                                      float logprob) const {
  return {id, std::string(parts_->tokenizer->Piece(id, true)), logprob};
}

TokenLogprobs GenerateSession::LogprobsOf(
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
