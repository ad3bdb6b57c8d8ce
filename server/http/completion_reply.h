// Completions on their way to the client, in the words of one protocol.
// Anthropic's Messages, OpenAI's Responses, Ollama's and llama.cpp's routes
// each have a CompletionForm; what they share is here: begin the stream,
// collect the text, end exactly once. A request has one completion, or one for
// each of its prompts.
//
//   return StartCompletion(site, exchange, std::move(model),
//   std::move(request),
//                          std::make_unique<MyForm>(…), stream);
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "config/base/clock.h"
#include "handlers/messages.h"
#include "server/http/exchange.h"
#include "server/http/openai_shapes.h"
#include "server/http/site.h"

namespace millrace::server::http {

// A completion at its end.
struct Completed {
  const ChoiceText& choice;
  const handlers::Usage& usage;
  const Trace& trace;
  Clock::Time now;
};

// Used by one thread at a time. What it returns is written as it is.
class CompletionForm {
 public:
  virtual ~CompletionForm() = default;
  virtual std::string Whole(const Completed& completed) = 0;

  // Before the rest: the stamps of its request, which go on.
  virtual void Follow(std::shared_ptr<const Trace> /*trace*/,
                      const Clock* /*clock*/) {}

  // Of a stream. `choice` holds the delta already.
  virtual std::string Begin(const handlers::Usage& prompt) = 0;
  virtual std::string Progress(const handlers::PromptProgress& /*progress*/) {
    return "";
  }
  virtual std::string Piece(const handlers::OutputDelta& delta,
                            const ChoiceText& choice) = 0;
  virtual std::string End(const Completed& completed) = 0;
  virtual std::string LateFailure(const Status& status) = 0;

  virtual HttpResponse Refusal(const Status& status) const = 0;
  virtual std::string_view stream_type() const {
    return "text/event-stream; charset=utf-8";
  }
  virtual std::string_view call_id_prefix() const { return "call_"; }
};

// Starts the request; its prompt and options are filled in. Its deadline, its
// tenant and the highest priority that the tenant allows are set here.
Status StartCompletion(const Site& site,
                       const std::shared_ptr<Exchange>& exchange,
                       ModelHandle model, handlers::GenerateRequest request,
                       std::unique_ptr<CompletionForm> form, bool stream);

struct CompletionPart {
  handlers::GenerateRequest request;
  std::unique_ptr<CompletionForm> form;
};

// The same for several (at least one). Their whole answers are a JSON list, in
// this order, unless it is only one; the events of their streams come as they
// are ready. The first refusal or failure is that of the request, and stops
// the others.
Status StartCompletions(const Site& site,
                        const std::shared_ptr<Exchange>& exchange,
                        ModelHandle model, std::vector<CompletionPart> parts,
                        bool stream);

// "event: NAME\ndata: DATA\n\n".
std::string NamedEvent(std::string_view name, std::string_view data);

}  // namespace millrace::server::http
