// The header of a stream is sent when every prompt was accepted, so that a
// refusal of any of them is still a plain 4xx.
#include "server/http/completion_reply.h"

#include <utility>

#include "config/base/mutex.h"
#include "server/http/pool_work.h"

namespace millrace::server::http {
namespace {

// Shared by the sinks of its completions. Thread-safe: the calls of one
// completion come one after the other, those of several at once.
class Reply final : public std::enable_shared_from_this<Reply> {
 public:
  struct Part {
    std::unique_ptr<CompletionForm> form;
    std::shared_ptr<Trace> trace;
    ChoiceText choice = {};
    handlers::Usage usage = {};
    int32_t untold_tokens = 0;  // of the stream
    std::string whole = {};     // once ended, where there is no stream
  };

  Reply(std::vector<Part> parts, bool stream,
        std::shared_ptr<Exchange> exchange, ModelHandle model,
        const Clock* clock)
      : stream_(stream),
        exchange_(std::move(exchange)),
        model_(std::move(model)),
        clock_(clock),
        parts_(std::move(parts)) {}

  std::shared_ptr<handlers::GenerateSink> SinkOf(size_t index) {
    return std::make_shared<Sink>(shared_from_this(), index);
  }

 private:
  class Sink final : public handlers::GenerateSink {
   public:
    Sink(std::shared_ptr<Reply> reply, size_t index)
        : reply_(std::move(reply)), index_(index) {}
    void OnAccepted(const handlers::Usage& prompt) override {
      reply_->OnAccepted(index_, prompt);
    }
    void OnProgress(const handlers::PromptProgress& progress) override {
      reply_->OnProgress(index_, progress);
    }
    void OnDelta(handlers::OutputDelta delta) override {
      reply_->OnDelta(index_, std::move(delta));
    }
    void OnEnd(handlers::GenerateEnd end) override {
      reply_->OnEnd(index_, std::move(end));
    }

   private:
    const std::shared_ptr<Reply> reply_;
    const size_t index_;
  };

  void OnAccepted(size_t index, const handlers::Usage& prompt) {
    MutexLock lock(mu_);
    ++num_accepted_;
    if (failed_ || !stream_) return;
    CompletionForm& form = *parts_[index].form;
    // What is written waits for the header.
    exchange_->Write(form.Begin(prompt));
    if (num_accepted_ == parts_.size()) BeginStream(form);
  }

  void OnProgress(size_t index, const handlers::PromptProgress& progress) {
    MutexLock lock(mu_);
    if (failed_ || !stream_) return;
    exchange_->Write(parts_[index].form->Progress(progress));
  }

  void OnDelta(size_t index, handlers::OutputDelta delta) {
    MutexLock lock(mu_);
    if (failed_) return;
    Part& part = parts_[index];
    part.choice.Add(delta, part.form->call_id_prefix());
    if (!stream_) return;
    // Tokens without a text of their own are told with the next piece, unless
    // their ids or probabilities are.
    if (delta.text.empty() && delta.call_name.empty() && delta.ids.empty() &&
        delta.logprobs.empty()) {
      part.untold_tokens += delta.num_tokens;
      return;
    }
    delta.num_tokens += std::exchange(part.untold_tokens, 0);
    exchange_->Write(part.form->Piece(delta, part.choice));
  }

  void OnEnd(size_t index, handlers::GenerateEnd end) {
    MutexLock lock(mu_);
    ++num_ended_;
    if (failed_) return;
    Part& part = parts_[index];
    part.usage = end.usage;
    SetTokens();
    if (!end.status.ok()) return Fail(*part.form, end.status);
    part.choice.reason = end.reason;
    part.choice.stop_reason = std::move(end.stop_reason);
    const Completed completed = {.choice = part.choice,
                                 .usage = end.usage,
                                 .trace = *part.trace,
                                 .now = clock_->Now()};
    if (stream_) {
      exchange_->Write(part.form->End(completed));
    } else {
      part.whole = part.form->Whole(completed);
    }
    part.choice = {};
    if (num_ended_ < parts_.size()) return;
    if (stream_) {
      exchange_->End();
    } else {
      exchange_->Send(JsonResponse(200, WholeBody()));
    }
  }

  void BeginStream(const CompletionForm& form) REQUIRES(mu_) {
    begun_ = true;
    HttpResponse head;
    head.content_type = form.stream_type();
    head.headers.emplace_back("Cache-Control", "no-cache");
    head.headers.emplace_back("X-Accel-Buffering", "no");
    exchange_->BeginStream(std::move(head));
  }

  void Fail(CompletionForm& form, const Status& status) REQUIRES(mu_) {
    failed_ = true;
    if (!begun_) {
      exchange_->Send(form.Refusal(status));
    } else {
      exchange_->SetFailure(status);
      exchange_->Write(form.LateFailure(status));
      exchange_->EndAndClose();
    }
    exchange_->RequestStop();
  }

  void SetTokens() REQUIRES(mu_) {
    handlers::Usage total;
    for (const Part& part : parts_) {
      total.prompt_tokens += part.usage.prompt_tokens;
      total.completion_tokens += part.usage.completion_tokens;
    }
    exchange_->SetTokens(total.prompt_tokens, total.completion_tokens);
  }

  std::string WholeBody() REQUIRES(mu_) {
    if (parts_.size() == 1) return std::move(parts_.front().whole);
    std::string body;
    for (Part& part : parts_) {
      body += body.empty() ? '[' : ',';
      body += std::exchange(part.whole, {});
    }
    return body + ']';
  }

  const bool stream_;
  const std::shared_ptr<Exchange> exchange_;
  const ModelHandle model_;  // held until the end
  const Clock* const clock_;

  Mutex mu_;
  std::vector<Part> parts_ GUARDED_BY(mu_);
  size_t num_accepted_ GUARDED_BY(mu_) = 0;
  size_t num_ended_ GUARDED_BY(mu_) = 0;
  bool begun_ GUARDED_BY(mu_) = false;  // the status line is sent
  bool failed_ GUARDED_BY(mu_) = false;
};

// The first prompt's stamps are those of the request.
std::shared_ptr<Trace> TraceOf(const Exchange& exchange, size_t index) {
  const std::shared_ptr<Trace>& request = exchange.trace();
  if (index == 0) return request;
  auto trace = std::make_shared<Trace>();
  trace->request_id = request->request_id;
  trace->context = request->context;
  for (size_t i = 0; i < trace->stamps.size(); ++i) {
    trace->stamps[i].store(request->stamps[i].load(std::memory_order_relaxed),
                           std::memory_order_relaxed);
  }
  return trace;
}

}  // namespace

Status StartCompletion(const Site& site,
                       const std::shared_ptr<Exchange>& exchange,
                       ModelHandle model, handlers::GenerateRequest request,
                       std::unique_ptr<CompletionForm> form, bool stream) {
  std::vector<CompletionPart> parts;
  parts.push_back({std::move(request), std::move(form)});
  return StartCompletions(site, exchange, std::move(model), std::move(parts),
                          stream);
}

Status StartCompletions(const Site& site,
                        const std::shared_ptr<Exchange>& exchange,
                        ModelHandle model, std::vector<CompletionPart> parts,
                        bool stream) {
  ASSIGN_OR_RETURN(handlers::GenerateHandler * handler, model->ForText());
  ASSIGN_OR_RETURN(const Clock::Time deadline, ReadDeadline(*exchange));
  exchange->trace()->Stamp(Stage::kParsed, site.services.clock->Now());
  std::vector<Reply::Part> replies;
  for (size_t i = 0; i < parts.size(); ++i) {
    handlers::GenerateRequest& request = parts[i].request;
    request.deadline = deadline;
    request.options.priority = PriorityOf(*exchange, request.options.priority);
    request.tenant = ShareOf(*exchange);
    request.trace = TraceOf(*exchange, i);
    parts[i].form->Follow(request.trace, site.services.clock);
    replies.push_back({std::move(parts[i].form), request.trace});
  }
  const auto reply =
      std::make_shared<Reply>(std::move(replies), stream, exchange,
                              std::move(model), site.services.clock);
  for (size_t i = 0; i < parts.size(); ++i) {
    handler->Start(std::move(parts[i].request), reply->SinkOf(i),
                   exchange->stop_token());
  }
  return OkStatus();
}

std::string NamedEvent(std::string_view name, std::string_view data) {
  std::string event = "event: ";
  return event.append(name).append("\ndata: ").append(data).append("\n\n");
}

}  // namespace millrace::server::http
