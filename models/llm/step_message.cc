#include "models/llm/step_message.h"

#include <algorithm>
#include <string>

namespace millrace::models {
namespace {

// Pages that a sequence's keys reach to; the table's tail is not sent.
int32_t PagesOf(int32_t kv_len) {
  return (kv_len + kPageTokens - 1) / kPageTokens;
}

class Reader {
 public:
  explicit Reader(std::span<const int32_t> numbers) : left_(numbers) {}

  bool Take(std::span<int32_t> out) {
    if (out.size() > left_.size()) return false;
    std::copy_n(left_.begin(), out.size(), out.begin());
    left_ = left_.subspan(out.size());
    return true;
  }
  bool done() const { return left_.empty(); }

 private:
  std::span<const int32_t> left_;
};

Status Malformed() {
  return InvalidArgument("a step of another rank does not fit this rank's");
}

}  // namespace

void WriteStep(const StepBatch& batch, std::vector<int32_t>& out) {
  CHECK(batch.limits().page_groups == 1, "ranks have one page table");
  const auto add = [&out](std::span<const int32_t> numbers, int32_t count) {
    out.insert(out.end(), numbers.begin(), numbers.begin() + count);
  };
  out.insert(out.end(), {batch.num_tokens, batch.num_seqs, batch.num_copies,
                         batch.num_samples});
  add(batch.tokens(), batch.num_tokens);
  add(batch.positions(), batch.num_tokens);
  add(batch.q_start(), batch.num_seqs + 1);
  add(batch.kv_len(), batch.num_seqs);
  add(batch.slot(), batch.num_seqs);
  add(batch.prompt_rows(), batch.num_seqs);
  for (int32_t seq = 0; seq < batch.num_seqs; ++seq) {
    const int32_t pages = PagesOf(batch.kv_len()[seq]);
    for (const PageId page : batch.pages(seq).first(pages)) {
      out.push_back(static_cast<int32_t>(page));
    }
  }
  for (const PageCopy& copy : batch.copies().first(batch.num_copies)) {
    out.push_back(static_cast<int32_t>(copy.src));
    out.push_back(static_cast<int32_t>(copy.dst));
  }
  add(batch.sample_rows(), batch.num_samples);
  add(batch.sample_seqs(), batch.num_samples);
  add(batch.score_ids(), batch.num_samples);
}

Status ReadStep(std::span<const int32_t> numbers, StepBatch& batch) {
  const StepLimits& limits = batch.limits();
  Reader reader(numbers);
  int32_t counts[4];
  if (!reader.Take(counts)) return Malformed();
  const int32_t most[4] = {limits.max_tokens, limits.max_seqs, limits.max_seqs,
                           limits.max_samples};
  for (int i = 0; i < 4; ++i) {
    if (counts[i] < 0 || counts[i] > most[i]) return Malformed();
  }
  batch.num_tokens = counts[0];
  batch.num_seqs = counts[1];
  batch.num_copies = counts[2];
  batch.num_samples = counts[3];
  const auto tokens = static_cast<size_t>(counts[0]);
  const auto seqs = static_cast<size_t>(counts[1]);
  const auto samples = static_cast<size_t>(counts[3]);
  if (!reader.Take(batch.tokens().first(tokens)) ||
      !reader.Take(batch.positions().first(tokens)) ||
      !reader.Take(batch.q_start().first(seqs + 1)) ||
      !reader.Take(batch.kv_len().first(seqs)) ||
      !reader.Take(batch.slot().first(seqs)) ||
      !reader.Take(batch.prompt_rows().first(seqs))) {
    return Malformed();
  }
  for (int32_t seq = 0; seq < batch.num_seqs; ++seq) {
    const int32_t pages = PagesOf(batch.kv_len()[seq]);
    if (pages < 0 || pages > limits.max_pages_per_seq) return Malformed();
    std::ranges::fill(batch.pages(seq), kNoPage);
    for (PageId& page : batch.pages(seq).first(static_cast<size_t>(pages))) {
      int32_t number;
      if (!reader.Take({&number, 1})) return Malformed();
      page = PageId{number};
    }
  }
  for (PageCopy& copy :
       batch.copies().first(static_cast<size_t>(batch.num_copies))) {
    int32_t pair[2];
    if (!reader.Take(pair)) return Malformed();
    copy = {PageId{pair[0]}, PageId{pair[1]}};
  }
  if (!reader.Take(batch.sample_rows().first(samples)) ||
      !reader.Take(batch.sample_seqs().first(samples)) ||
      !reader.Take(batch.score_ids().first(samples)) || !reader.done()) {
    return Malformed();
  }
  return OkStatus();
}

}  // namespace millrace::models
