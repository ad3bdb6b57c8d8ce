// What a handler's test needs around it: an engine whose tokens the test
// speaks, a sink that records and checks the order of what it is told, and a
// vocabulary in which a token id below 256 is the byte of that value.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "handlers/generate.h"
#include "handlers/handler.h"
#include "handlers/pool.h"
#include "scheduler/engine.h"

namespace millrace::handlers {

inline constexpr int32_t kImStart = 256;  // <|im_start|>
inline constexpr int32_t kImEnd = 257;    // <|im_end|>, ends an answer
inline constexpr int32_t kBos = 258;      // <s>, before raw prompts
inline constexpr int32_t kVocabSize = 259;
inline constexpr int32_t kMaxContext = 64;
inline constexpr int32_t kMaxSeqs = 4;

std::shared_ptr<const models::Tokenizer> ByteTokenizer();
// ChatML; raises "no system here" at a message with that role.
std::shared_ptr<const models::ChatTemplate> TinyTemplate();

// One submitted task; the test plays the engine thread.
class Submission {
 public:
  Submission(scheduler::Reservation place, scheduler::GenerateTask task)
      : task(std::move(task)), place_(std::move(place)) {}

  void Say(std::string_view bytes);  // a token for each
  void SayId(int32_t id, float logprob = 0,
             std::vector<models::TokenLogprob> top = {});
  void ScorePrompt(int32_t id, float logprob);
  void End(scheduler::FinishReason reason, Status status = {},
           int32_t cached_tokens = 0);

  const scheduler::GenerateTask task;
  scheduler::PredictionCounts prediction = {};  // what its end will tell
  const std::shared_ptr<scheduler::TokenStream> stream =
      std::make_shared<scheduler::TokenStream>();

 private:
  scheduler::Reservation place_;
};

// Thread-safe.
class FakeEngine final : public scheduler::Engine {
 public:
  FakeEngine();

  Status reserve_status;  // set before use: what Reserve and Submit refuse with
  Status submit_status;

  // Waits for the next task.
  std::shared_ptr<Submission> Next();
  int places() const { return places_; }
  size_t num_submitted();

  StatusOr<scheduler::Reservation> Reserve(
      Clock::Time deadline, int32_t places,
      const scheduler::TenantShare& tenant) override;
  StatusOr<std::shared_ptr<scheduler::TokenStream>> Submit(
      scheduler::Reservation place, scheduler::GenerateTask task) override;
  bool Drain(std::chrono::steady_clock::time_point) override { return true; }
  scheduler::EngineStats stats() const override { return {}; }
  const models::RunnerInfo& info() const override { return info_; }

 private:
  models::RunnerInfo info_;
  std::atomic<int> places_{0};
  std::mutex mu_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Submission>> waiting_;
  size_t num_submitted_ = 0;
};

// Fails the test on calls at the same time, after the end, or out of order.
// Thread-safe.
class RecordingSink final : public GenerateSink {
 public:
  explicit RecordingSink(FakeEngine* engine) : engine_(engine) {}

  void OnAccepted(const Usage& prompt) override;
  void OnProgress(const PromptProgress& progress) override;
  void OnDelta(OutputDelta chunk) override;
  void OnEnd(GenerateEnd end) override;

  void AwaitText(std::string_view text);  // all text so far is this
  GenerateEnd AwaitEnd();
  // After the end.
  const std::vector<OutputDelta>& chunks() const { return chunks_; }
  const std::vector<PromptProgress>& progress() const { return progress_; }
  std::string text() const;
  std::vector<TokenLogprobs> logprobs() const;
  bool accepted() const { return accepted_; }
  bool ended();
  // Places of the engine in use while OnEnd ran.
  int places_at_end() const { return places_at_end_; }

 private:
  class Alone;

  FakeEngine* const engine_;
  std::atomic<bool> busy_{false};
  std::mutex mu_;
  std::condition_variable changed_;
  bool accepted_ = false;
  std::vector<PromptProgress> progress_;
  std::vector<OutputDelta> chunks_;
  std::vector<GenerateEnd> ends_;
  int places_at_end_ = -1;
};

// A handler with all of the above.
struct World {
  explicit World(int threads = 2, size_t max_queued = 100);

  // Starts a request and gives its sink.
  std::shared_ptr<RecordingSink> Start(GenerateRequest request,
                                       std::stop_token stop = {});

  FakeEngine engine;
  Pool pool;
  GenerateParts parts;
  std::unique_ptr<GenerateHandler> handler;
};

GenerateRequest TextRequest(std::string text, GenerateOptions options = {});
GenerateRequest TokenRequest(std::vector<int32_t> ids,
                             GenerateOptions options = {});
// One user message.
GenerateRequest ChatRequest(const std::string& content,
                            GenerateOptions options = {});
ChatPrompt Chat(const char* messages_json);

}  // namespace millrace::handlers
