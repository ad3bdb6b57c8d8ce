#include "tests/unit/models/llm/step_driver.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

namespace millrace::models {
namespace {

struct Running {
  const DriverRequest* request;
  DriverAnswer* answer;
  int32_t slot;
  int32_t computed = 0;  // tokens whose keys and values are in pages
  std::vector<std::vector<PageId>> tables;  // of each page group

  int32_t length() const {
    return static_cast<int32_t>(request->prompt.size() + answer->ids.size());
  }
  int32_t token(int32_t i) const {
    const auto prompt = static_cast<int32_t>(request->prompt.size());
    return i < prompt ? request->prompt[i] : answer->ids[i - prompt];
  }
  bool done() const {
    return static_cast<int32_t>(answer->ids.size()) >= request->max_tokens;
  }
};

// Pages that lie before the window of the next row, for the next who wants one.
void GiveBack(const std::vector<int32_t>& windows, Running& seq,
              std::vector<PageId>& free_pages) {
  for (size_t group = 0; group < windows.size(); ++group) {
    if (windows[group] == 0) continue;
    const int32_t seen = seq.computed + 1 - windows[group];
    for (int32_t i = 0; (i + 1) * kPageTokens <= seen; ++i) {
      PageId& page = seq.tables[group][static_cast<size_t>(i)];
      if (page != kNoPage) free_pages.push_back(page);
      page = kNoPage;
    }
  }
}

bool Grow(std::vector<PageId>& pages, int32_t end,
          std::vector<PageId>& free_pages) {
  while (static_cast<int32_t>(pages.size()) * kPageTokens < end) {
    if (free_pages.empty()) {
      ADD_FAILURE() << "the test's KV pool is too small";
      return false;
    }
    pages.push_back(free_pages.back());
    free_pages.pop_back();
  }
  return true;
}

void Init(Runner& runner, const Running& seq) {
  runner.InitSlot({.slot = seq.slot,
                   .sampling = &seq.request->sampling,
                   .prompt = seq.request->prompt,
                   .output = seq.answer->ids,
                   .adapter = seq.request->adapter,
                   .embeddings = seq.request->embeddings});
}

}  // namespace

bool DriverAnswer::operator==(const DriverAnswer& other) const {
  const auto same_bits = [](const auto& a, const auto& b) {
    return a.size() == b.size() &&
           (a.empty() ||
            std::memcmp(a.data(), b.data(), a.size() * sizeof(a[0])) == 0);
  };
  return ids == other.ids && same_bits(logprobs, other.logprobs) &&
         same_bits(top, other.top);
}

std::vector<DriverAnswer> Drive(Runner& runner,
                                const std::vector<DriverRequest>& requests,
                                const DriverOptions& options) {
  const RunnerInfo& info = runner.info();
  std::vector<PageId> free_pages;
  for (int32_t i = 0; i < info.num_pages; ++i) free_pages.push_back(PageId{i});
  uint64_t state = options.page_seed;
  for (size_t i = free_pages.size(); i > 1; --i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    std::swap(free_pages[i - 1], free_pages[(state >> 33) % i]);
  }

  std::vector<DriverAnswer> answers(requests.size());
  std::vector<Running> running;
  for (size_t i = 0; i < requests.size(); ++i) {
    running.push_back(
        {.request = &requests[i],
         .answer = &answers[i],
         .slot = static_cast<int32_t>(requests.size() - 1 - i),
         .tables = std::vector<std::vector<PageId>>(info.windows.size())});
    Init(runner, running.back());
  }
  StepBatch batch(info.limits);
  for (int32_t step = 1;; ++step) {
    if (options.preempt_every > 0 && step % options.preempt_every == 0) {
      Running& victim = running[static_cast<size_t>(step) % running.size()];
      for (std::vector<PageId>& pages : victim.tables) {
        std::erase(pages, kNoPage);
        free_pages.insert(free_pages.end(), pages.begin(), pages.end());
        pages.clear();
      }
      victim.computed = 0;
      Init(runner, victim);
    }
    batch.Clear();
    batch.q_start()[0] = 0;
    std::vector<Running*> in_batch;
    for (Running& seq : running) {
      const int32_t room = info.limits.max_tokens - batch.num_tokens;
      const int32_t rows =
          std::min({seq.length() - seq.computed, options.chunk, room});
      if (seq.done() || rows <= 0) continue;
      const int32_t index = batch.num_seqs++;
      const int32_t end = seq.computed + rows;
      for (size_t group = 0; group < seq.tables.size(); ++group) {
        if (!Grow(seq.tables[group], end, free_pages)) return answers;
        const auto pages = batch.pages(index, static_cast<int32_t>(group));
        std::ranges::fill(pages, kNoPage);
        std::ranges::copy(seq.tables[group], pages.begin());
      }
      for (int32_t i = 0; i < rows; ++i) {
        batch.tokens()[batch.num_tokens + i] = seq.token(seq.computed + i);
        batch.positions()[batch.num_tokens + i] = seq.computed + i;
      }
      batch.num_tokens += rows;
      batch.q_start()[index + 1] = batch.num_tokens;
      batch.kv_len()[index] = end;
      batch.slot()[index] = seq.slot;
      batch.prompt_rows()[index] = std::clamp(
          static_cast<int32_t>(seq.request->prompt.size()) - seq.computed, 0,
          rows);
      seq.computed = end;
      if (end == seq.length()) {
        batch.sample_rows()[batch.num_samples] = batch.num_tokens - 1;
        batch.sample_seqs()[batch.num_samples] = index;
        batch.score_ids()[batch.num_samples] = kSample;
        ++batch.num_samples;
        in_batch.push_back(&seq);
      }
    }
    if (batch.num_tokens == 0) return answers;
    runner.Launch(batch);
    const StatusOr<const StepResult*> result = runner.Wait();
    if (!result.ok()) {
      ADD_FAILURE() << result.status().ToString();
      return answers;
    }
    for (Running& seq : running) {
      GiveBack(info.windows, seq, free_pages);
    }
    for (size_t i = 0; i < in_batch.size(); ++i) {
      DriverAnswer& answer = *in_batch[i]->answer;
      answer.ids.push_back((*result)->ids[i]);
      answer.logprobs.push_back((*result)->logprobs[i]);
      const auto* top = (*result)->top.data() + i * kMaxTopLogprobs;
      answer.top.insert(answer.top.end(), top, top + kMaxTopLogprobs);
    }
  }
}

LlmOptions TinyOptions(int threads) {
  LlmOptions options;
  options.settings.max_num_seqs = 16;
  options.settings.max_num_batched_tokens = 512;
  options.settings.huge_pages = false;
  options.memory_limit_bytes = int64_t{256} << 20;
  for (int i = 0; i < threads; ++i) options.cpus.push_back(i % 2);
  return options;
}

}  // namespace millrace::models
