// One sequence in slot 0 on pages 0, 1, 2, …; every row asks for a score, so
// that the sampler leaves its logits alone.
#include "models/llm/teacher_forcing.h"

#include <algorithm>
#include <string>
#include <utility>

namespace millrace::models {

Status ScoreTokens(
    LlmModel& model, std::span<const int32_t> tokens, int32_t chunk,
    const std::function<void(int32_t position, std::span<const float> logits)>&
        seen,
    int32_t first, std::shared_ptr<const LoraAdapter> adapter,
    std::shared_ptr<const PromptEmbeddings> embeddings) {
  auto* view = dynamic_cast<LogitsView*>(model.runner.get());
  if (view == nullptr) {
    return Unimplemented("this model's runner does not show its logits");
  }
  const RunnerInfo& info = model.runner->info();
  const auto n = static_cast<int64_t>(tokens.size());
  if (n > info.max_context || n > int64_t{info.num_pages} * kPageTokens) {
    return InvalidArgument(std::to_string(n) +
                           " tokens are more than the context of " +
                           std::to_string(info.max_context));
  }
  for (const int32_t id : tokens) {
    if (id < 0 || id >= info.vocab_size) {
      return InvalidArgument("token id " + std::to_string(id) +
                             " is not in the vocabulary of " +
                             std::to_string(info.vocab_size));
    }
  }
  const int32_t most =
      std::min(info.limits.max_tokens, info.limits.max_samples);
  const int32_t step = chunk > 0 ? std::min(chunk, most) : most;

  const SamplingParams sampling;
  model.runner->InitSlot({.slot = 0,
                          .sampling = &sampling,
                          .prompt = {},
                          .output = {},
                          .adapter = adapter,
                          .embeddings = std::move(embeddings)});
  StepBatch batch(info.limits);
  for (int32_t at = 0; at < n; at += step) {
    const auto count = static_cast<int32_t>(std::min<int64_t>(step, n - at));
    batch.Clear();
    batch.num_seqs = 1;
    batch.num_tokens = count;
    batch.q_start()[0] = 0;
    batch.q_start()[1] = count;
    batch.kv_len()[0] = at + count;
    batch.slot()[0] = 0;
    batch.prompt_rows()[0] = count;
    const std::span<PageId> pages = batch.pages(0);
    for (size_t i = 0; i < pages.size(); ++i) {
      const bool used = static_cast<int64_t>(i) * kPageTokens < at + count;
      pages[i] = used ? PageId{static_cast<int32_t>(i)} : kNoPage;
    }
    for (int32_t i = 0; i < count; ++i) {
      batch.tokens()[i] = tokens[at + i];
      batch.positions()[i] = at + i;
      if (at + i < first) continue;
      const int32_t sample = batch.num_samples++;
      batch.sample_rows()[sample] = i;
      batch.sample_seqs()[sample] = 0;
      batch.score_ids()[sample] = 0;
    }
    model.runner->Launch(batch);
    RETURN_IF_ERROR(model.runner->Wait().status());
    for (int32_t i = 0; i < batch.num_samples; ++i) {
      seen(at + batch.sample_rows()[i], view->Logits(i));
    }
  }
  return OkStatus();
}

}  // namespace millrace::models
