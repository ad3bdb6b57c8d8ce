#include "handlers/shadow/shadow_text.h"

#include <atomic>
#include <random>
#include <utility>
#include <vector>

namespace millrace::handlers {
namespace {

// The completions of one request on their way to the client. Shared by their
// sinks; each writes what is its own, and the last to end posts.
struct Watched {
  std::shared_ptr<EnteredShadows> entered;
  GenerateRequest request;
  std::vector<CollectedText> texts;
  std::atomic<size_t> num_open{0};
  std::atomic<bool> failed{false};

  void Ended(bool is_ok) {
    if (!is_ok) failed.store(true, std::memory_order_relaxed);
    // The last one sees what the others wrote.
    if (num_open.fetch_sub(1, std::memory_order_acq_rel) > 1) return;
    if (failed.load(std::memory_order_relaxed)) return;
    auto text = std::make_shared<ShadowedText>();
    text->request = std::move(request);
    for (CollectedText& each : texts) text->answers.push_back(each.Take());
    for (ShadowJob& job : entered->jobs()) job.text = text;
    entered->Post();
  }
};

class WatchedSink final : public GenerateSink {
 public:
  WatchedSink(std::shared_ptr<GenerateSink> inner,
              std::shared_ptr<Watched> watched, size_t idx)
      : inner_(std::move(inner)), watched_(std::move(watched)), idx_(idx) {}

  void OnAccepted(const Usage& prompt) override { inner_->OnAccepted(prompt); }
  void OnProgress(const PromptProgress& progress) override {
    inner_->OnProgress(progress);
  }
  void OnDelta(OutputDelta delta) override {
    watched_->texts[idx_].Add(delta);
    inner_->OnDelta(std::move(delta));
  }
  void OnEnd(GenerateEnd end) override {
    const bool is_ok = end.status.ok() && end.reason != FinishReason::kError;
    inner_->OnEnd(std::move(end));
    watched_->Ended(is_ok);
  }

 private:
  const std::shared_ptr<GenerateSink> inner_;
  const std::shared_ptr<Watched> watched_;
  const size_t idx_;
};

class ShadowTextHandler final : public GenerateHandler {
 public:
  ShadowTextHandler(std::unique_ptr<GenerateHandler> inner,
                    const ShadowParts& parts)
      : inner_(std::move(inner)), targets_(parts) {}

  void Start(GenerateRequest request, std::shared_ptr<GenerateSink> sink,
             std::stop_token stop) override {
    if (const auto watched = Watch(request, 1)) {
      sink = std::make_shared<WatchedSink>(std::move(sink), watched, 0);
    }
    inner_->Start(std::move(request), std::move(sink), std::move(stop));
  }
  void StartSiblings(GenerateRequest request,
                     std::vector<std::shared_ptr<GenerateSink>> sinks,
                     std::stop_token stop) override {
    if (const auto watched = Watch(request, sinks.size())) {
      for (size_t i = 0; i < sinks.size(); ++i) {
        sinks[i] =
            std::make_shared<WatchedSink>(std::move(sinks[i]), watched, i);
      }
    }
    inner_->StartSiblings(std::move(request), std::move(sinks),
                          std::move(stop));
  }

  StatusOr<TokenizedText> Tokenize(const std::string& text, bool add_special,
                                   bool parse_special) const override {
    return inner_->Tokenize(text, add_special, parse_special);
  }
  StatusOr<TokenizedText> TokenizeChat(const ChatPrompt& chat) const override {
    return inner_->TokenizeChat(chat);
  }
  StatusOr<std::string> Detokenize(
      const std::vector<int32_t>& ids) const override {
    return inner_->Detokenize(ids);
  }
  StatusOr<std::string> ApplyTemplate(const ChatPrompt& chat) const override {
    return inner_->ApplyTemplate(chat);
  }

 private:
  // Null: the request has no shadow; else it has a seed now.
  std::shared_ptr<Watched> Watch(GenerateRequest& request, size_t count) {
    if (request.options.priority == kLowestTextPriority) return nullptr;
    auto entered = targets_.Enter();
    if (entered == nullptr) return nullptr;
    if (!request.options.seed) {
      std::random_device random;
      request.options.seed = uint64_t{random()} << 32 | random();
    }
    auto watched = std::make_shared<Watched>();
    watched->entered = std::move(entered);
    watched->request = request;
    watched->texts.resize(count);
    watched->num_open = count;
    return watched;
  }

  const std::unique_ptr<GenerateHandler> inner_;
  ShadowTargets targets_;
};

}  // namespace

void CollectedText::Add(const OutputDelta& delta) {
  if (delta.text.empty() && delta.call_name.empty()) return;
  const bool goes_on = delta.kind == kind_ && delta.call_idx == call_idx_;
  if (!goes_on) {
    kind_ = delta.kind;
    call_idx_ = delta.call_idx;
    text_ += '\0';
    text_ += static_cast<char>('0' + static_cast<int>(kind_));
  }
  text_ += delta.call_name;
  text_ += delta.text;
}

std::unique_ptr<GenerateHandler> MakeShadowTextHandler(
    std::unique_ptr<GenerateHandler> inner, const ShadowParts& parts) {
  return std::make_unique<ShadowTextHandler>(std::move(inner), parts);
}

}  // namespace millrace::handlers
