// Runs one completion: from Start on the caller's thread, over
// the handler pool and the engine, to exactly one OnEnd. What the request means
// is decided in generate_task.h, what its client sees in output_processor.h;
// here is the order of steps. A request with n > 1 is the session of its first
// completion, which reserves all places, encodes the prompt and submits for
// all; afterwards each of them is on its own.
//
//   std::make_shared<GenerateSession>(parts, request, sink, stop)->Begin();
//
// The session keeps itself alive through the tasks and wake-ups that name it.
// After Begin everything runs on pool threads, one at a time: the engine's
// wake-ups only count up, and the one that counts from zero posts the task.
//
// Shared: by the queued task, and by the token stream's wake-up until the end.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <vector>

#include "handlers/generate.h"
#include "handlers/handler.h"
#include "handlers/output_processor.h"
#include "scheduler/engine.h"

namespace millrace::handlers {

class GenerateSession : public std::enable_shared_from_this<GenerateSession> {
 public:
  GenerateSession(std::shared_ptr<const GenerateParts> parts,
                  GenerateRequest request, std::shared_ptr<GenerateSink> sink,
                  std::stop_token client_stop,
                  std::vector<std::shared_ptr<GenerateSession>> siblings = {});

  void Begin();

 private:
  // Begin's promise: refusals, too, come from the pool.
  void Refuse(Status status);

  // On the pool, before the engine has it. A constraint of the text is compiled
  // first, elsewhere.
  void Prepare();
  void HoldCall();
  void CompileConstraint();
  Status TakeGrammar(const models::CompiledGrammar& grammar);
  // Then its images are, elsewhere, too.
  void EncodeImages();
  void StartAll(const Status& status);
  Status SubmitAll();
  // Gives the engine this session's task.
  Status Submit(scheduler::Reservation place, scheduler::GenerateTask task,
                const OutputProcessor::Options& output);
  void Follow();
  Status CheckFamilyFits() const;
  Status CheckStillWanted() const;

  // On the pool, afterwards.
  void Wake();
  void Run();
  void Advance();
  void Send();
  void EndWith(const scheduler::StreamEnd& end);
  void End(GenerateEnd end);

  const std::shared_ptr<const GenerateParts> parts_;
  const std::stop_token client_stop_;
  // Ours, so that a stop string can stop the engine without the client.
  std::stop_source engine_stop_;

  // Touched by one thread at a time.
  struct ForwardStop {
    std::stop_source* source;
    void operator()() const { source->request_stop(); }
  };
  std::optional<std::stop_callback<ForwardStop>> forward_stop_;
  GenerateRequest request_;             // its prompt is dropped once encoded
  std::shared_ptr<GenerateSink> sink_;  // null after the end
  std::vector<std::shared_ptr<GenerateSession>> siblings_;  // until submitted
  scheduler::Reservation place_;  // until submitted; of the siblings, too
  bool holds_call_ = false;       // the constraint is that of calls of tools
  std::shared_ptr<const models::TokenGrammar> grammar_;  // or null
  models::vision::EncodedImages images_;                 // until submitted
  std::shared_ptr<scheduler::TokenStream> stream_;  // null before and after
  std::optional<OutputProcessor> output_;           // once submitted
  Usage usage_;

  // Wake-ups not served yet. Release on the way up, acquire by Run: what the
  // waker did before is seen by the run that serves it.
  std::atomic<uint32_t> wakes_{0};
};

}  // namespace millrace::handlers
