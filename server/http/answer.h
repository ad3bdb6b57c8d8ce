// The answer of a chat or completions request on its way to the client: one
// sink for each choice, one exchange for all of them. Streams as server-sent
// events or collects into one body, as the shape says.
//
//   auto answer = std::make_shared<Answer>(shape, exchange, std::move(model));
//   handler.Start(request, answer->Choice(0), exchange->stop_token());
//
// When one choice fails, the request fails: the others are stopped.
// Thread-safe. Shared by the sinks of its choices.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "config/base/mutex.h"
#include "handlers/handler.h"
#include "server/http/exchange.h"
#include "server/http/openai_shapes.h"
#include "server/lifecycle/repository.h"

namespace millrace::server::http {

class Answer : public std::enable_shared_from_this<Answer> {
 public:
  Answer(AnswerShape shape, std::shared_ptr<Exchange> exchange,
         ModelHandle model);

  std::shared_ptr<handlers::GenerateSink> Choice(int index);

 private:
  class Sink;
  void OnAccepted(int index, const handlers::Usage& prompt);
  void OnProgress(int index, const handlers::PromptProgress& progress);
  void OnDelta(int index, handlers::OutputDelta chunk);
  void OnEnd(int index, handlers::GenerateEnd end);
  void BeginStream() REQUIRES(mu_);
  void Fail(const Status& status) REQUIRES(mu_);
  handlers::Usage Total() const REQUIRES(mu_);
  std::string TimingsOf(const handlers::Usage& total) const;

  const AnswerShape shape_;
  const std::shared_ptr<Exchange> exchange_;
  const ModelHandle model_;  // held until the last sink is gone

  Mutex mu_;
  ChunkMaker chunks_ GUARDED_BY(mu_);
  std::vector<ChoiceText> choices_ GUARDED_BY(mu_);
  std::vector<handlers::Usage> usages_ GUARDED_BY(mu_);
  int num_accepted_ GUARDED_BY(mu_) = 0;
  int num_ended_ GUARDED_BY(mu_) = 0;
  bool streaming_ GUARDED_BY(mu_) = false;  // the status line is sent
  bool failed_ GUARDED_BY(mu_) = false;
};

}  // namespace millrace::server::http
