// From sink calls to the exchange. The header of a stream is sent when every
// prompt was accepted, so that a refusal of any of them is still a plain 4xx.
#include "server/http/answer.h"

#include <utility>

#include "server/error_map.h"
#include "server/http/timings.h"

namespace millrace::server::http {

class Answer::Sink final : public handlers::GenerateSink {
 public:
  Sink(std::shared_ptr<Answer> answer, int index)
      : answer_(std::move(answer)), index_(index) {}
  void OnAccepted(const handlers::Usage& prompt) override {
    answer_->OnAccepted(index_, prompt);
  }
  void OnProgress(const handlers::PromptProgress& progress) override {
    answer_->OnProgress(index_, progress);
  }
  void OnDelta(handlers::OutputDelta chunk) override {
    answer_->OnDelta(index_, std::move(chunk));
  }
  void OnEnd(handlers::GenerateEnd end) override {
    answer_->OnEnd(index_, std::move(end));
  }

 private:
  const std::shared_ptr<Answer> answer_;
  const int index_;
};

Answer::Answer(AnswerShape shape, std::shared_ptr<Exchange> exchange,
               ModelHandle model)
    : shape_(std::move(shape)),
      exchange_(std::move(exchange)),
      model_(std::move(model)),
      chunks_(shape_),
      choices_(static_cast<size_t>(shape_.num_choices)),
      usages_(static_cast<size_t>(shape_.num_choices)) {}

std::shared_ptr<handlers::GenerateSink> Answer::Choice(int index) {
  return std::make_shared<Sink>(shared_from_this(), index);
}

handlers::Usage Answer::Total() const {
  handlers::Usage total;
  for (size_t i = 0; i < usages_.size(); ++i) {
    total.completion_tokens += usages_[i].completion_tokens;
    total.reasoning_tokens += usages_[i].reasoning_tokens;
    total.accepted_prediction_tokens += usages_[i].accepted_prediction_tokens;
    total.rejected_prediction_tokens += usages_[i].rejected_prediction_tokens;
    // The answers to one prompt share it.
    if (i % static_cast<size_t>(shape_.choices_per_prompt) != 0) continue;
    total.prompt_tokens += usages_[i].prompt_tokens;
    total.cached_tokens += usages_[i].cached_tokens;
  }
  return total;
}

std::string Answer::TimingsOf(const handlers::Usage& total) const {
  if (shape_.clock == nullptr || shape_.num_choices > 1) return {};
  return TimingsJson(total, *exchange_->trace(), shape_.clock->Now());
}

void Answer::BeginStream() {
  if (std::exchange(streaming_, true)) return;
  HttpResponse head;
  head.content_type = "text/event-stream; charset=utf-8";
  head.headers.emplace_back("Cache-Control", "no-cache");
  head.headers.emplace_back("X-Accel-Buffering", "no");
  exchange_->BeginStream(std::move(head));
}

void Answer::Fail(const Status& status) {
  if (std::exchange(failed_, true)) return;
  const handlers::Usage total = Total();
  exchange_->SetTokens(total.prompt_tokens, total.completion_tokens);
  if (!streaming_) {
    exchange_->Send(ErrorResponse(status));
  } else {
    exchange_->SetFailure(status);
    exchange_->Write(SseEvent(OpenAiErrorBody(status)));
    exchange_->EndAndClose();
  }
  exchange_->RequestStop();
}

void Answer::OnAccepted(int index, const handlers::Usage& prompt) {
  MutexLock lock(mu_);
  usages_[static_cast<size_t>(index)] = prompt;
  ++num_accepted_;
  if (failed_ || !shape_.stream) return;
  if (shape_.chat) {
    const handlers::Usage total = Total();
    exchange_->Write(
        chunks_.Role(index, shape_.continuous_usage ? &total : nullptr));
  }
  if (num_accepted_ == shape_.num_choices) BeginStream();
}

void Answer::OnProgress(int index, const handlers::PromptProgress& progress) {
  MutexLock lock(mu_);
  if (failed_ || !shape_.stream) return;
  const handlers::Usage total = Total();
  exchange_->Write(chunks_.Progress(
      index, ProgressJson(progress), shape_.continuous_usage ? &total : nullptr,
      shape_.timings_per_token ? TimingsJson(progress) : std::string()));
}

void Answer::OnDelta(int index, handlers::OutputDelta chunk) {
  MutexLock lock(mu_);
  if (failed_) return;
  usages_[static_cast<size_t>(index)].completion_tokens += chunk.num_tokens;
  ChoiceText& choice = choices_[static_cast<size_t>(index)];
  if (shape_.stream) {
    if (chunk.text.empty() && chunk.logprobs.empty() &&
        chunk.call_name.empty()) {
      return;
    }
    if (!chunk.call_name.empty()) choice.Add(chunk);
    const handlers::Usage total = Total();
    exchange_->Write(chunks_.Text(
        index, chunk, shape_.continuous_usage ? &total : nullptr,
        shape_.timings_per_token ? TimingsOf(total) : std::string()));
    return;
  }
  choice.Add(chunk);
}

void Answer::OnEnd(int index, handlers::GenerateEnd end) {
  MutexLock lock(mu_);
  ++num_ended_;
  if (failed_) return;
  usages_[static_cast<size_t>(index)] = end.usage;
  if (!end.status.ok()) return Fail(end.status);
  ChoiceText& choice = choices_[static_cast<size_t>(index)];
  choice.reason = end.reason;
  choice.stop_reason = std::move(end.stop_reason);
  const handlers::Usage total = Total();
  if (shape_.stream) {
    exchange_->Write(chunks_.Finish(index, choice,
                                    shape_.continuous_usage ? &total : nullptr,
                                    TimingsOf(total)));
  }
  if (num_ended_ < shape_.num_choices) return;
  exchange_->SetTokens(total.prompt_tokens, total.completion_tokens);
  if (!shape_.stream) {
    exchange_->Send(JsonResponse(
        200, AnswerJson(shape_, choices_, total, TimingsOf(total))));
    return;
  }
  BeginStream();
  if (shape_.include_usage) {
    exchange_->Write(chunks_.Usage(
        total, shape_.timings_per_token ? TimingsOf(total) : std::string()));
  }
  exchange_->Write(kSseDone);
  exchange_->End();
}

}  // namespace millrace::server::http
