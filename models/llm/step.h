// The contract between scheduler and model: one step is one flat message.
//
// A StepBatch holds no pointers and its capacities are fixed when it is made,
// so that it can be sent to the ranks of a tensor-parallel group or captured
// once in a CUDA graph. Rows of several sequences stand one after the other;
// a sequence may bring one row (decode) or many (a chunk of its prompt):
//
//   seq            0         1              2
//   tokens     [ a4 ]   [ b0 b1 b2 b3 ]   [ c9 ]
//   positions    4        0  1  2  3        9
//   q_start    0        1                5       6
//   kv_len       5           4             10        new rows included
//   slot         7           2              0
//   prompt_rows  0           4              0
//
// A sequence may bring rows beyond the tokens it is known to have: draft
// tokens, each of which samples, too. A row draws as if the draft tokens before
// it had been drawn, so its id counts if the row before drew the token that
// stands here:
//
//   tokens     [ a4 d5 d6 ]     known a0 … a4, draft tokens d5, d6
//   drawn        d5 x6 y7       d5 and x6 are the next tokens, y7 is worthless
//
// Sequence state that outlives a step (penalty counts, seed, stop ids) lives in
// the runner under a slot, a small stable id; see SlotInit.
//
// Layers are divided into page groups (page_groups.h), most often one. A page
// holds keys and values of the layers of one group, and a sequence has a table
// of pages for each group.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace millrace::models {

class LoraAdapter;        // models/llm/lora.h
class TokenGrammar;       // models/grammar/token_grammar.h
struct DryBreakers;       // models/llm/dry.h
struct PromptEmbeddings;  // models/llm/prompt_embeddings.h

// A page of the KV cache: kPageTokens consecutive positions of one sequence,
// all layers and heads of one page group. The pages of all groups are of one
// size and of one pool. The scheduler deals in these numbers; the bytes are the
// backend's own business.
enum class PageId : int32_t {};
inline constexpr PageId kNoPage{-1};
inline constexpr int32_t kPageTokens = 64;
// Attention is summed in splits of this many keys by absolute position.
inline constexpr int32_t kSplitTokens = 256;
// Greatest number of alternatives reported beside a sampled token.
inline constexpr int32_t kMaxTopLogprobs = 20;

struct StepLimits {
  int32_t max_tokens = 0;         // rows of one step
  int32_t max_seqs = 0;           // also the number of slots
  int32_t max_pages_per_seq = 0;  // context length / kPageTokens, rounded up
  int32_t max_samples = 0;        // rows that sample or are scored
  int32_t page_groups = 1;        // page tables of each sequence
};

struct PageCopy {
  PageId src;
  PageId dst;
};

// What a row that leaves through the head is for.
inline constexpr int32_t kSample = -1;  // draw a token

class StepBatch {
 public:
  explicit StepBatch(const StepLimits& limits)
      : limits_(limits),
        tokens_(limits.max_tokens),
        positions_(limits.max_tokens),
        q_start_(limits.max_seqs + 1),
        kv_len_(limits.max_seqs),
        slot_(limits.max_seqs),
        prompt_rows_(limits.max_seqs),
        page_table_(int64_t{limits.max_seqs} * limits.page_groups *
                    limits.max_pages_per_seq),
        copies_(int64_t{limits.max_seqs} * limits.page_groups),
        sample_rows_(limits.max_samples),
        sample_seqs_(limits.max_samples),
        score_ids_(limits.max_samples) {}

  const StepLimits& limits() const { return limits_; }
  void Clear() { num_tokens = num_seqs = num_copies = num_samples = 0; }

  int32_t num_tokens = 0;
  int32_t num_seqs = 0;
  int32_t num_copies = 0;
  int32_t num_samples = 0;

  std::span<int32_t> tokens() { return tokens_; }        // [num_tokens]
  std::span<int32_t> positions() { return positions_; }  // [num_tokens]
  std::span<int32_t> q_start() { return q_start_; }      // [num_seqs + 1]
  std::span<int32_t> kv_len() { return kv_len_; }        // [num_seqs]
  std::span<int32_t> slot() { return slot_; }            // [num_seqs]
  // How many of a sequence's rows, the first ones, are tokens of its prompt;
  // the others were generated (or are draft tokens): [num_seqs]. A backend may
  // compute the two in different ways, so a token keeps its role for as long as
  // its sequence lives.
  std::span<int32_t> prompt_rows() { return prompt_rows_; }
  // Pages of one sequence and group in order of position; the tail is kNoPage,
  // and so are pages that no row sees through the group's window.
  std::span<PageId> pages(int32_t seq, int32_t group = 0) {
    return std::span(page_table_)
        .subspan(TableBegin(seq, group), limits_.max_pages_per_seq);
  }
  // Done before any row runs: [num_copies].
  std::span<PageCopy> copies() { return copies_; }
  // Rows of `tokens` that go through the head, ascending, the sequence each
  // belongs to (index into this batch), and what for: kSample, or a token id
  // whose log-probability is wanted (prompt log-probabilities): [num_samples].
  std::span<int32_t> sample_rows() { return sample_rows_; }
  std::span<int32_t> sample_seqs() { return sample_seqs_; }
  std::span<int32_t> score_ids() { return score_ids_; }

  std::span<const int32_t> tokens() const { return tokens_; }
  std::span<const int32_t> positions() const { return positions_; }
  std::span<const int32_t> q_start() const { return q_start_; }
  std::span<const int32_t> kv_len() const { return kv_len_; }
  std::span<const int32_t> slot() const { return slot_; }
  std::span<const int32_t> prompt_rows() const { return prompt_rows_; }
  std::span<const PageId> pages(int32_t seq, int32_t group = 0) const {
    return std::span(page_table_)
        .subspan(TableBegin(seq, group), limits_.max_pages_per_seq);
  }
  std::span<const PageCopy> copies() const { return copies_; }
  std::span<const int32_t> sample_rows() const { return sample_rows_; }
  std::span<const int32_t> sample_seqs() const { return sample_seqs_; }
  std::span<const int32_t> score_ids() const { return score_ids_; }

 private:
  size_t TableBegin(int32_t seq, int32_t group) const {
    return (static_cast<size_t>(seq) * limits_.page_groups + group) *
           static_cast<size_t>(limits_.max_pages_per_seq);
  }

  StepLimits limits_;
  std::vector<int32_t> tokens_, positions_, q_start_, kv_len_, slot_,
      prompt_rows_;
  std::vector<PageId> page_table_;
  std::vector<PageCopy> copies_;
  std::vector<int32_t> sample_rows_, sample_seqs_, score_ids_;
};

struct TokenLogprob {
  int32_t id;
  float logprob;  // natural logarithm, of the distribution before temperature
};

struct StepResult {
  // Of sample i: the sampled id, or score_ids[i] when that was given.
  std::vector<int32_t> ids;
  // Its log-probability; meaningful when the slot asked for log-probabilities
  // or the row was scored.
  std::vector<float> logprobs;
  // The most likely tokens, best first, as many as the slot asked for:
  // [num_samples][kMaxTopLogprobs], unused entries have id -1.
  std::vector<TokenLogprob> top;
  // Mirostat's bound after the draw, see SlotInit; else 0: [num_samples].
  std::vector<float> mirostat_mu;
};

// Penalises what would go on repeating the text; see dry.h.
struct DryParams {
  float multiplier = 0;  // 0: off
  float base = 1.75f;
  int32_t allowed_length = 2;  // of a repetition without penalty
  int32_t last_n = -1;         // tokens looked at; -1: all, 0: off
  std::shared_ptr<const DryBreakers> breakers = {};  // null: none
};

// Mirostat (Basu et al. 2021). Version 2: only tokens whose surprise (-log2 of
// the probability) is at most mu may be drawn. Version 1: only the first k, of
// which a law of Zipf through the first ones expects the surprise mu. In both
// mu follows what was drawn.
struct MirostatParams {
  bool on = false;
  float tau = 5;     // surprise to reach, in bits
  float eta = 0.1f;  // how fast mu follows
  int32_t version = 2;
};

// What narrows or reshapes the candidates of a draw, one after the other.
enum class DrawStage : uint8_t {
  kTopNSigma,
  kTopK,
  kTypical,
  kTopP,
  kMinP,
  kXtc,
  kTemperature,
};

// How the tokens of one sequence are drawn. Order of work (as in vLLM):
// logit bias and forbidden stop ids, repetition penalty, presence and frequency
// penalties, DRY, tokens that are not allowed, then greedy when temperature is
// 0, else temperature, top-k, min-p, top-p, and a draw from (seed, position),
// which no batch-mate can change.
//
// A request that asks for one of the samplers that only llama.cpp has (top-n-
// sigma, typical, XTC, a range of temperatures, min_keep) has its tokens drawn
// in the order of llama.cpp: top-n-sigma, top-k, typical, top-p, min-p, XTC,
// temperature; or in an order of its own. With mirostat it is temperature and
// mirostat, nothing else.
struct SamplingParams {
  float temperature = 1.0f;         // 0: greedy
  int32_t top_k = 0;                // 0: off
  float top_p = 1.0f;               // 1: off
  float min_p = 0.0f;               // 0: off
  float repetition_penalty = 1.0f;  // over prompt and completion
  float presence_penalty = 0.0f;    // over the output
  float frequency_penalty = 0.0f;   // over the output
  // Above 0: all three look at this many tokens before the drawn one, be they
  // of the prompt or of the output, as llama.cpp's do. 0: as said above.
  int32_t penalty_last_n = 0;
  float typical_p = 1.0f;        // 1: off
  float top_n_sigma = 0.0f;      // 0: off
  float xtc_probability = 0.0f;  // 0: off
  float xtc_threshold = 0.1f;    // above 0.5: off
  float dynatemp_range = 0.0f;   // 0: off; temperature ± this
  float dynatemp_exponent = 1.0f;
  // Candidates that typical, top-p, min-p and XTC leave at least.
  int32_t min_keep = 0;
  std::vector<DrawStage> order;  // each at most once; empty: that of llama.cpp
  bool dry_first = false;        // DRY, then the penalties
  MirostatParams mirostat;
  DryParams dry;
  uint64_t seed = 0;
  bool logprobs = false;     // report the sampled token's
  int32_t top_logprobs = 0;  // and this many alternatives
  std::vector<std::pair<int32_t, float>> logit_bias;
  std::vector<int32_t> allowed_token_ids;       // empty: all
  std::vector<std::vector<int32_t>> bad_words;  // tokens never in a row
  std::vector<int32_t> suppress_tokens;         // never drawn
  // So many tokens in a row never stand twice in prompt and output; 0: off.
  int32_t no_repeat_ngram_size = 0;
  // What the output must look like; null: anything. Shared by the completions
  // of a request and the cache of grammars.
  std::shared_ptr<const TokenGrammar> grammar;
  // Never drawn while the completion has fewer than min_tokens tokens.
  std::vector<int32_t> stop_ids;
  int32_t min_tokens = 0;
};

// Puts a sequence's state under a slot, before the first step that names it and
// again after a preemption: counts are rebuilt from the tokens.
struct SlotInit {
  int32_t slot = 0;
  const SamplingParams* sampling = nullptr;  // copied
  std::span<const int32_t> prompt;
  std::span<const int32_t> output;  // tokens sampled before, if any
  // As the last of them left it; absent: nothing was drawn.
  std::optional<float> mirostat_mu = {};
  // Added to the weights for this sequence, whose owner keeps it; null: none.
  std::shared_ptr<const LoraAdapter> adapter = {};
  // Stand in place of the embeddings of some prompt tokens; null: none do.
  std::shared_ptr<const PromptEmbeddings> embeddings = {};
};

}  // namespace millrace::models
