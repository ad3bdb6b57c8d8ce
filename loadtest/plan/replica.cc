#include "loadtest/plan/replica.h"

#include <algorithm>
#include <cmath>
#include <compare>
#include <deque>
#include <functional>
#include <queue>
#include <utility>

namespace millrace::loadtest {
namespace {

constexpr size_t kMostPrefixes = 256;  // kept of one replica

template <typename Value>
using MinHeap =
    std::priority_queue<Value, std::vector<Value>, std::greater<Value>>;

// A continuous batch. The memory for keys and values of a sequence is reserved
// at its start, for prompt and completion.
class LlmReplica final : public Replica {
 public:
  LlmReplica(const ServerModel& model, const std::vector<SimRequest>& requests,
             int64_t prefix_tokens, SimSink& sink)
      : model_(model),
        requests_(requests),
        prefix_tokens_(prefix_tokens),
        sink_(sink) {}

  void Add(uint32_t request, Ns now) override {
    if (model_.kv_tokens > 0 && Tokens(request) > model_.kv_tokens) {
      sink_.Refused(request);
      return;
    }
    ++outstanding_;
    waiting_.push_back(request);
    if (next_ == kNever) {
      Begin(now);
    } else if (num_steps_ > 1 && waiting_.size() == 1 && Fits(request)) {
      // It joins when the step that is running now has ended.
      num_steps_ = std::min(num_steps_, (now - begin_) / step_ns_ + 1);
      next_ = begin_ + num_steps_ * step_ns_;
    }
  }

  void Run(Ns now) override {
    const auto num_decoding = static_cast<int64_t>(decoding_.size());
    const double tokens = static_cast<double>(num_steps_) * tokens_per_step_;
    num_done_tokens_ += tokens;
    context_ += tokens * static_cast<double>(num_decoding);
    sink_.Gaps(step_ns_, num_steps_ * num_decoding);
    while (!decoding_.empty() && decoding_.top().last <= num_done_tokens_) {
      const Decoding ended = decoding_.top();
      // All that it added: its prompt, its first token and those of its steps.
      context_ -= requests_[ended.request].input_tokens + 1 +
                  (num_done_tokens_ - ended.begin);
      End(ended.request, now);
      decoding_.pop();
    }
    if (decoding_.empty()) context_ = num_done_tokens_ = 0;
    for (const uint32_t request : prefilled_) {
      sink_.FirstToken(request, now);
      const int64_t more = requests_[request].output_tokens - 1;
      if (more <= 0) {
        End(request, now);
      } else {
        // The last step gives what is lacking: half of its tokens on average.
        const double given = (model_.TokensPerStep(num_decoding + 1) - 1) / 2;
        decoding_.push({num_done_tokens_ + static_cast<double>(more) - given,
                        request, num_done_tokens_});
        context_ += requests_[request].input_tokens + 1;
      }
    }
    prefilled_.clear();
    Begin(now);
  }

  std::vector<uint32_t> Evict() override {
    std::vector<uint32_t> out(waiting_.begin(), waiting_.end());
    for (; !decoding_.empty(); decoding_.pop()) {
      out.push_back(decoding_.top().request);
    }
    for (const auto& [request, left] : prefilling_) out.push_back(request);
    out.insert(out.end(), prefilled_.begin(), prefilled_.end());
    waiting_.clear();
    prefilling_.clear();
    prefilled_.clear();
    prefixes_.clear();
    kv_used_ = outstanding_ = 0;
    context_ = num_done_tokens_ = 0;
    next_ = kNever;
    std::sort(out.begin(), out.end());
    return out;
  }

 private:
  // A sequence that decodes, in the tokens that each one has got since a time
  // when none was there. Ordered by `last`, then by request.
  struct Decoding {
    double last = 0;
    uint32_t request = 0;
    double begin = 0;

    auto operator<=>(const Decoding&) const = default;
  };

  int64_t Tokens(uint32_t request) const {
    return int64_t{requests_[request].input_tokens} +
           requests_[request].output_tokens;
  }

  bool Fits(uint32_t request) const {
    const auto running = static_cast<int64_t>(
        decoding_.size() + prefilling_.size() + prefilled_.size());
    return running < model_.max_num_seqs &&
           (model_.kv_tokens == 0 ||
            kv_used_ + Tokens(request) <= model_.kv_tokens);
  }

  // Prompt tokens that must be computed.
  int64_t PromptTokens(uint32_t request) {
    const SimRequest& asked = requests_[request];
    if (asked.group < 0 || prefix_tokens_ == 0) return asked.input_tokens;
    const auto at = std::find(prefixes_.begin(), prefixes_.end(), asked.group);
    const bool cached = at != prefixes_.end();
    if (cached) prefixes_.erase(at);
    prefixes_.push_front(asked.group);
    size_t most = kMostPrefixes;
    if (model_.kv_tokens > 0) {
      most = std::min<size_t>(
          most, static_cast<size_t>(model_.kv_tokens / prefix_tokens_));
    }
    if (prefixes_.size() > most) prefixes_.resize(most);
    if (!cached) return asked.input_tokens;
    return std::max<int64_t>(1, asked.input_tokens - prefix_tokens_);
  }

  void End(uint32_t request, Ns now) {
    kv_used_ -= Tokens(request);
    --outstanding_;
    sink_.Done(request, now);
  }

  // Chooses what the next step computes, first come first served.
  void Begin(Ns now) {
    const auto num_decoding = static_cast<int64_t>(decoding_.size());
    int64_t room =
        std::max<int64_t>(0, model_.max_num_batched_tokens - num_decoding);
    if (num_decoding > 0) {
      room = std::min(room, model_.MostPromptTokens(
                                model_.StepNs(0, num_decoding, context_)));
    }
    int64_t left = room;
    double keys = 0;
    while (left > 0) {
      if (prefilling_.empty()) {
        if (waiting_.empty() || !Fits(waiting_.front())) break;
        const uint32_t request = waiting_.front();
        waiting_.pop_front();
        kv_used_ += Tokens(request);
        prefilling_.emplace_back(request, PromptTokens(request));
      }
      auto& [request, tokens] = prefilling_.front();
      const int64_t now_computed = std::min(tokens, left);
      // Each row looks at all before it and at itself.
      const int64_t before = requests_[request].input_tokens - tokens;
      keys += static_cast<double>(now_computed) *
              (static_cast<double>(before) +
               static_cast<double>(now_computed + 1) / 2);
      left -= now_computed;
      tokens -= now_computed;
      if (tokens > 0) break;
      prefilled_.push_back(request);
      prefilling_.pop_front();
    }
    begin_ = now;
    next_ = kNever;
    num_steps_ = 0;
    const int64_t prefill = room - left;
    if (prefill == 0 && num_decoding == 0) return;
    tokens_per_step_ = model_.TokensPerStep(num_decoding);
    num_steps_ = 1;
    if (prefill == 0) {
      const double left_tokens = decoding_.top().last - num_done_tokens_;
      // A sum of fractions may lie a little beside the whole number.
      num_steps_ = std::max<int64_t>(
          1, std::llround(std::ceil(left_tokens / tokens_per_step_ - 1e-9)));
    }
    // Contexts grow with each step: the mean of the steps.
    keys +=
        context_ + tokens_per_step_ *
                       static_cast<double>(num_decoding * (num_steps_ - 1)) / 2;
    step_ns_ = model_.StepNs(prefill, num_decoding, keys);
    next_ = now + num_steps_ * step_ns_;
  }

  const ServerModel& model_;
  const std::vector<SimRequest>& requests_;
  const int64_t prefix_tokens_;
  SimSink& sink_;

  std::deque<uint32_t> waiting_;
  std::deque<std::pair<uint32_t, int64_t>> prefilling_;  // tokens to compute
  std::vector<uint32_t> prefilled_;                      // by this step
  MinHeap<Decoding> decoding_;
  std::deque<int32_t> prefixes_;  // groups, latest first
  int64_t kv_used_ = 0;
  double context_ = 0;  // tokens of the sequences that decode

  // The steps under way: num_steps_ of step_ns_ each, from begin_ on.
  Ns begin_ = 0;
  Ns step_ns_ = 1;
  int64_t num_steps_ = 0;
  double tokens_per_step_ = 1;
  // Of each sequence that has been there since a time when none was.
  double num_done_tokens_ = 0;
};

// Instances that take batches from one queue. A batch is closed when it is
// full or its oldest request has waited for max_queue_delay.
class GraphReplica final : public Replica {
 public:
  GraphReplica(const ServerModel& model,
               const std::vector<SimRequest>& requests, SimSink& sink)
      : model_(model), requests_(requests), sink_(sink) {}

  void Add(uint32_t request, Ns now) override {
    ++outstanding_;
    queued_rows_ += requests_[request].rows;
    waiting_.emplace_back(now, request);
    Dispatch(now);
  }

  void Run(Ns now) override {
    while (!running_.empty() && running_.top().first <= now) {
      const size_t slot = running_.top().second;
      running_.pop();
      for (const uint32_t request : batches_[slot]) {
        --outstanding_;
        sink_.Done(request, now);
      }
      batches_[slot].clear();
      free_slots_.push_back(slot);
    }
    Dispatch(now);
  }

  std::vector<uint32_t> Evict() override {
    std::vector<uint32_t> out;
    for (const auto& [since, request] : waiting_) out.push_back(request);
    for (const auto& batch : batches_) {
      out.insert(out.end(), batch.begin(), batch.end());
    }
    waiting_.clear();
    batches_.clear();
    free_slots_.clear();
    running_ = {};
    queued_rows_ = outstanding_ = 0;
    next_ = kNever;
    std::sort(out.begin(), out.end());
    return out;
  }

 private:
  void Dispatch(Ns now) {
    while (!waiting_.empty() &&
           static_cast<int64_t>(running_.size()) < model_.instance_count &&
           (queued_rows_ >= model_.max_batch_size ||
            now - waiting_.front().first >= model_.max_queue_delay_ns)) {
      Close(now);
    }
    next_ = running_.empty() ? kNever : running_.top().first;
    const bool idle =
        static_cast<int64_t>(running_.size()) < model_.instance_count;
    if (!waiting_.empty() && idle) {
      next_ =
          std::min(next_, waiting_.front().first + model_.max_queue_delay_ns);
    }
  }

  void Close(Ns now) {
    if (free_slots_.empty()) {
      free_slots_.push_back(batches_.size());
      batches_.emplace_back();
    }
    const size_t slot = free_slots_.back();
    free_slots_.pop_back();
    int64_t rows = 0;
    while (!waiting_.empty()) {
      const uint32_t request = waiting_.front().second;
      const int64_t more = requests_[request].rows;
      if (rows > 0 && rows + more > model_.max_batch_size) break;
      rows += more;
      batches_[slot].push_back(request);
      waiting_.pop_front();
    }
    queued_rows_ -= rows;
    running_.emplace(now + model_.BatchNs(rows), slot);
  }

  const ServerModel& model_;
  const std::vector<SimRequest>& requests_;
  SimSink& sink_;

  std::deque<std::pair<Ns, uint32_t>> waiting_;  // since when
  int64_t queued_rows_ = 0;
  MinHeap<std::pair<Ns, size_t>> running_;  // end and slot
  std::vector<std::vector<uint32_t>> batches_;
  std::vector<size_t> free_slots_;
};

}  // namespace

std::unique_ptr<Replica> MakeReplica(const ServerModel& model,
                                     const std::vector<SimRequest>& requests,
                                     int64_t prefix_tokens, SimSink& sink) {
  if (model.graph) {
    return std::make_unique<GraphReplica>(model, requests, sink);
  }
  return std::make_unique<LlmReplica>(model, requests, prefix_tokens, sink);
}

}  // namespace millrace::loadtest
