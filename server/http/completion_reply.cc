#include "server/http/completion_reply.h"

#include <utility>

#include "server/http/pool_work.h"

namespace millrace::server::http {
namespace {

// The calls of one request come one after the other.
class Reply final : public handlers::GenerateSink {
 public:
  Reply(std::unique_ptr<CompletionForm> form, bool stream,
        std::shared_ptr<Exchange> exchange, ModelHandle model,
        const Clock* clock)
      : form_(std::move(form)),
        stream_(stream),
        exchange_(std::move(exchange)),
        model_(std::move(model)),
        clock_(clock) {}

  void OnAccepted(const handlers::Usage& prompt) override {
    if (!stream_) return;
    HttpResponse head;
    head.content_type = form_->stream_type();
    head.headers.emplace_back("Cache-Control", "no-cache");
    head.headers.emplace_back("X-Accel-Buffering", "no");
    exchange_->BeginStream(std::move(head));
    begun_ = true;
    exchange_->Write(form_->Begin(prompt));
  }

  void OnDelta(handlers::OutputDelta delta) override {
    choice_.Add(delta, form_->call_id_prefix());
    if (!stream_ || (delta.text.empty() && delta.call_name.empty())) return;
    exchange_->Write(form_->Piece(delta, choice_));
  }

  void OnEnd(handlers::GenerateEnd end) override {
    exchange_->SetTokens(end.usage.prompt_tokens, end.usage.completion_tokens);
    if (!end.status.ok()) return Fail(end.status);
    choice_.reason = end.reason;
    choice_.stop_reason = std::move(end.stop_reason);
    const Completed completed = {.choice = choice_,
                                 .usage = end.usage,
                                 .trace = *exchange_->trace(),
                                 .now = clock_->Now()};
    if (!stream_) {
      exchange_->Send(JsonResponse(200, form_->Whole(completed)));
      return;
    }
    exchange_->Write(form_->End(completed));
    exchange_->End();
  }

 private:
  void Fail(const Status& status) {
    if (!begun_) {
      exchange_->Send(form_->Refusal(status));
      return;
    }
    exchange_->SetFailure(status);
    exchange_->Write(form_->LateFailure(status));
    exchange_->EndAndClose();
  }

  const std::unique_ptr<CompletionForm> form_;
  const bool stream_;
  const std::shared_ptr<Exchange> exchange_;
  const ModelHandle model_;  // held until the end
  const Clock* const clock_;
  ChoiceText choice_;
  bool begun_ = false;  // the status line is sent
};

}  // namespace

Status StartCompletion(const Site& site,
                       const std::shared_ptr<Exchange>& exchange,
                       ModelHandle model, handlers::GenerateRequest request,
                       std::unique_ptr<CompletionForm> form, bool stream) {
  ASSIGN_OR_RETURN(handlers::GenerateHandler * handler, model->ForText());
  ASSIGN_OR_RETURN(request.deadline, ReadDeadline(*exchange));
  request.options.priority = PriorityOf(*exchange, request.options.priority);
  request.tenant = ShareOf(*exchange);
  request.trace = exchange->trace();
  exchange->trace()->Stamp(Stage::kParsed, site.services.clock->Now());
  handler->Start(std::move(request),
                 std::make_shared<Reply>(std::move(form), stream, exchange,
                                         std::move(model), site.services.clock),
                 exchange->stop_token());
  return OkStatus();
}

std::string NamedEvent(std::string_view name, std::string_view data) {
  std::string event = "event: ";
  return event.append(name).append("\ndata: ").append(data).append("\n\n");
}

}  // namespace millrace::server::http
