// Calls of other models by an external handler that works on a request. They
// are started at once; `wake` says that an answer is here, and the process'
// thread takes it. So no model waits for the thread of another.
//
// One thread, but for the answers of models.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <stop_token>
#include <string>
#include <vector>

#include "config/base/clock.h"
#include "config/base/status.h"
#include "handlers/model_lender.h"

namespace millrace::handler {
class Message;
}

namespace millrace::handlers {

class ModelCalls {
 public:
  // `model` makes the calls; `lender` outlives them.
  ModelCalls(std::string model, ModelLender* lender);
  ~ModelCalls();

  // An error is the handler's fault and ends it; what a call itself fails with
  // is its result.
  Status Start(const handler::Message& call, Clock::Time deadline);
  // RESULT messages of calls that have ended; the models that gave them are let
  // go. Results of calls that were forgotten are left out.
  std::vector<handler::Message> TakeResults();
  // No request is under way: what calls of earlier ones give late would keep
  // its model from being unloaded.
  void LetGoOfResults();
  // The request that they were for is over: those under way are stopped.
  void Forget();

  int wake() const;  // readable when a result is there

 private:
  struct Inbox;

  const std::string model_;
  ModelLender* const lender_;
  std::set<uint64_t> under_way_;  // ids
  std::stop_source stop_;         // of those
  // Outlives this where a model answers late.
  const std::shared_ptr<Inbox> inbox_;
};

}  // namespace millrace::handlers
