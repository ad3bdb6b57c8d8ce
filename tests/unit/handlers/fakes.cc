#include "tests/unit/handlers/fakes.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "config/base/json.h"
#include "scheduler/request.h"
#include "tests/unit/models/text/tiny_vocabulary.h"

namespace millrace::handlers {

std::shared_ptr<const models::Tokenizer> ByteTokenizer() {
  models::Vocabulary vocabulary =
      models::TinyVocabulary("gpt-2", {},
                             {{"<|im_start|>", models::TokenKind::kControl},
                              {"<|im_end|>", models::TokenKind::kControl},
                              {"<s>", models::TokenKind::kControl}});
  vocabulary.bos_id = kBos;
  vocabulary.eos_id = kImEnd;
  vocabulary.eog_ids = {kImEnd};
  vocabulary.add_bos = true;
  auto tokenizer = models::Tokenizer::Create(std::move(vocabulary));
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().ToString();
  return std::move(tokenizer).value();
}

std::shared_ptr<const models::ChatTemplate> TinyTemplate() {
  auto chat_template = models::ChatTemplate::Create(
      "{% for m in messages %}"
      "{% if m.role == 'system' %}{{ raise_exception('no system here') }}"
      "{% endif %}"
      "<|im_start|>{{ m.role }}:{{ m.content }}<|im_end|>{% endfor %}"
      "{% if add_generation_prompt %}<|im_start|>a:{% endif %}");
  EXPECT_TRUE(chat_template.ok()) << chat_template.status().ToString();
  return std::move(chat_template).value();
}

void Submission::Say(std::string_view bytes) {
  for (const char byte : bytes) SayId(static_cast<uint8_t>(byte));
}

void Submission::SayId(int32_t id, float logprob,
                       std::vector<models::TokenLogprob> top) {
  stream->Push({id, logprob, std::move(top)});
}

void Submission::ScorePrompt(int32_t id, float logprob) {
  stream->PushPrompt({id, logprob, {}});
}

void Submission::End(scheduler::FinishReason reason, Status status,
                     int32_t cached_tokens) {
  place_.Release();
  scheduler::StreamEnd end;
  end.status = std::move(status);
  end.reason = reason;
  end.prompt_tokens = static_cast<int32_t>(task.prompt.size());
  end.cached_tokens = cached_tokens;
  end.prediction = prediction;
  stream->Finish(std::move(end));
}

FakeEngine::FakeEngine() {
  info_.vocab_size = kVocabSize;
  info_.max_context = kMaxContext;
  info_.limits.max_seqs = kMaxSeqs;
}

std::shared_ptr<Submission> FakeEngine::Next() {
  std::unique_lock lock(mu_);
  changed_.wait(lock, [this] { return !waiting_.empty(); });
  auto submission = std::move(waiting_.front());
  waiting_.pop_front();
  return submission;
}

size_t FakeEngine::num_submitted() {
  std::lock_guard lock(mu_);
  return num_submitted_;
}

StatusOr<scheduler::Reservation> FakeEngine::Reserve(
    Clock::Time, int32_t places, const scheduler::TenantShare&) {
  if (!reserve_status.ok()) return reserve_status;
  places_ += places;
  return scheduler::Reservation([this] { --places_; }, places);
}

StatusOr<std::shared_ptr<scheduler::TokenStream>> FakeEngine::Submit(
    scheduler::Reservation place, scheduler::GenerateTask task) {
  if (!submit_status.ok()) return submit_status;
  RETURN_IF_ERROR(scheduler::CheckTask(task, info_, "tiny"));
  auto submission =
      std::make_shared<Submission>(std::move(place), std::move(task));
  std::lock_guard lock(mu_);
  ++num_submitted_;
  waiting_.push_back(submission);
  changed_.notify_all();
  return submission->stream;
}

class RecordingSink::Alone {
 public:
  explicit Alone(RecordingSink& sink) : sink_(sink) {
    EXPECT_FALSE(sink_.busy_.exchange(true)) << "two calls at the same time";
    std::lock_guard lock(sink_.mu_);
    EXPECT_TRUE(sink_.ends_.empty()) << "a call after the end";
  }
  ~Alone() { sink_.busy_ = false; }

 private:
  RecordingSink& sink_;
};

void RecordingSink::OnAccepted(const Usage& prompt) {
  Alone alone(*this);
  std::lock_guard lock(mu_);
  EXPECT_FALSE(accepted_);
  EXPECT_TRUE(chunks_.empty());
  EXPECT_GT(prompt.prompt_tokens, 0);
  accepted_ = true;
  changed_.notify_all();
}

void RecordingSink::OnProgress(const PromptProgress& progress) {
  Alone alone(*this);
  std::lock_guard lock(mu_);
  EXPECT_TRUE(accepted_);
  EXPECT_TRUE(chunks_.empty());
  progress_.push_back(progress);
}

void RecordingSink::OnDelta(OutputDelta chunk) {
  Alone alone(*this);
  std::lock_guard lock(mu_);
  EXPECT_TRUE(accepted_);
  EXPECT_FALSE(chunk.text.empty() && chunk.logprobs.empty() &&
               chunk.call_name.empty());
  chunks_.push_back(std::move(chunk));
  changed_.notify_all();
}

void RecordingSink::OnEnd(GenerateEnd end) {
  Alone alone(*this);
  std::lock_guard lock(mu_);
  EXPECT_TRUE(accepted_ || !end.status.ok());
  places_at_end_ = engine_->places();
  ends_.push_back(std::move(end));
  changed_.notify_all();
}

std::string RecordingSink::text() const {
  std::string text;
  for (const OutputDelta& chunk : chunks_) text += chunk.text;
  return text;
}

std::vector<TokenLogprobs> RecordingSink::logprobs() const {
  std::vector<TokenLogprobs> all;
  for (const OutputDelta& chunk : chunks_) {
    all.insert(all.end(), chunk.logprobs.begin(), chunk.logprobs.end());
  }
  return all;
}

void RecordingSink::AwaitText(std::string_view expected) {
  std::unique_lock lock(mu_);
  changed_.wait(
      lock, [&] { return text().size() >= expected.size() || !ends_.empty(); });
  EXPECT_EQ(text(), expected);
}

GenerateEnd RecordingSink::AwaitEnd() {
  std::unique_lock lock(mu_);
  changed_.wait(lock, [this] { return !ends_.empty(); });
  return ends_.front();
}

bool RecordingSink::ended() {
  std::lock_guard lock(mu_);
  return !ends_.empty();
}

World::World(int threads, size_t max_queued) : pool(threads, max_queued, {}) {
  parts.model = "tiny";
  parts.tokenizer = ByteTokenizer();
  parts.chat_template = TinyTemplate();
  parts.bos_text = "<s>";
  parts.eos_text = "<|im_end|>";
  parts.engine = &engine;
  parts.pool = &pool;
  handler = MakeGenerateHandler(parts);
}

std::shared_ptr<RecordingSink> World::Start(GenerateRequest request,
                                            std::stop_token stop) {
  auto sink = std::make_shared<RecordingSink>(&engine);
  handler->Start(std::move(request), sink, std::move(stop));
  return sink;
}

GenerateRequest TextRequest(std::string text, GenerateOptions options) {
  GenerateRequest request;
  request.prompt = TextPrompt{std::move(text)};
  request.options = std::move(options);
  request.trace = std::make_shared<Trace>();
  return request;
}

GenerateRequest TokenRequest(std::vector<int32_t> ids,
                             GenerateOptions options) {
  GenerateRequest request = TextRequest("", std::move(options));
  request.prompt = TokenPrompt{std::move(ids)};
  return request;
}

GenerateRequest ChatRequest(const std::string& content,
                            GenerateOptions options) {
  GenerateRequest request = TextRequest("", std::move(options));
  ChatPrompt chat;
  nlohmann::ordered_json message;
  message["role"] = "u";
  message["content"] = content;
  auto messages = nlohmann::ordered_json::array();
  messages.push_back(std::move(message));
  chat.messages =
      std::make_shared<const nlohmann::ordered_json>(std::move(messages));
  request.prompt = std::move(chat);
  return request;
}

ChatPrompt Chat(const char* messages_json) {
  ChatPrompt chat;
  chat.messages = std::make_shared<const nlohmann::ordered_json>(
      ParseJson(messages_json).value());
  return chat;
}

}  // namespace millrace::handlers
