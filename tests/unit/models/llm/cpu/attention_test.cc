// Attention of whole steps, over many pages and splits, against softmax(qK)V in
// double precision: windows, soft caps, prompts in chunks and single
// rows. However the work is cut, a row's bits are the same.
#include "models/llm/cpu/attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "models/cpu/isa.h"
#include "tests/backend/kernels/prompt_attention_emulated.h"

namespace millrace::models {
namespace {

constexpr int32_t kHeads = 6;
constexpr int32_t kKvHeads = 2;
constexpr int32_t kDims = 32;
constexpr int64_t kWidth = kHeads * kDims;
constexpr int32_t kMaxKeys = 1100;
constexpr int32_t kPages = 64;
constexpr double kUnit = 0x1p-24;
constexpr double kBf16 = 0x1p-8;  // a rounding to bf16, relatively

// The rows of one sequence: positions [begin, end), pages from `first_page`;
// the first `prompt` rows are tokens of a prompt.
struct Rows {
  int32_t begin;
  int32_t end;
  int32_t first_page;
  int32_t prompt = 0;
};

class CpuAttentionTest : public testing::Test {
 protected:
  CpuAttentionTest() : kv_{KvFormat::kF32, 1, kKvHeads, kDims, nullptr} {
    memory_.resize(static_cast<size_t>(kPages * kv_.page_bytes() + 64));
    const auto address = reinterpret_cast<uintptr_t>(memory_.data());
    kv_.base = memory_.data() + (64 - address % 64) % 64;
    std::mt19937 rng(1);
    std::normal_distribution<float> normal;
    for (auto* x : {&k_, &v_}) {
      x->resize(size_t{kPages} * kPageTokens * kKvHeads * kDims);
      for (float& value : *x) value = normal(rng);
    }
    q_.resize(kMaxKeys * kWidth);
    for (float& value : q_) value = normal(rng) * 0.4f;
    for (int32_t key = 0; key < kPages * kPageTokens; ++key) {
      for (int32_t head = 0; head < kKvHeads; ++head) {
        const PageId page{key / kPageTokens};
        ScalarKernels()->write_kv(Head(k_, key, head), Head(v_, key, head),
                                  kDims, key % kPageTokens, kv_.format,
                                  kv_.k(page, 0, head), kv_.v(page, 0, head));
      }
    }
  }

  static const float* Head(const std::vector<float>& x, int64_t key,
                           int32_t head) {
    return x.data() + (key * kKvHeads + head) * kDims;
  }
  // A row's query depends on its position alone.
  const float* Q(int32_t position) const {
    return q_.data() + position * kWidth;
  }

  // Results of all rows, [rows][kWidth].
  std::vector<float> Run(const KernelTable& kernels, int workers,
                         const AttendOptions& options,
                         const std::vector<Rows>& seqs,
                         bool prompts_on_tiles = false) {
    StepLimits limits;
    limits.max_tokens = kMaxKeys;
    limits.max_seqs = 4;
    limits.max_pages_per_seq = (kMaxKeys + kPageTokens - 1) / kPageTokens;
    limits.max_samples = 1;
    StepBatch batch(limits);
    std::vector<float> qkv;
    for (const Rows& rows : seqs) {
      const int32_t seq = batch.num_seqs++;
      batch.q_start()[seq] = batch.num_tokens;
      for (int32_t p = rows.begin; p < rows.end; ++p) {
        batch.positions()[batch.num_tokens++] = p;
        qkv.insert(qkv.end(), Q(p), Q(p) + kWidth);
      }
      batch.q_start()[seq + 1] = batch.num_tokens;
      batch.kv_len()[seq] = rows.end;
      batch.prompt_rows()[seq] = rows.prompt;
      std::fill(batch.pages(seq).begin(), batch.pages(seq).end(), kNoPage);
      for (int32_t i = 0; i * kPageTokens < rows.end; ++i) {
        batch.pages(seq)[i] = PageId{rows.first_page + i};
      }
    }
    BackendShape shape;
    shape.layers = 1;
    shape.heads = kHeads;
    shape.kv_heads = kKvHeads;
    shape.head_dim = kDims;
    CpuAttention attention(shape, kernels, workers);
    attention.set_prompts_on_tiles(prompts_on_tiles);
    attention.AddVariant({.window = 3});  // another layer's, unused
    const CpuAttention::Variant variant = attention.AddVariant(options);
    attention.Plan(batch);
    std::vector<float> out(qkv.size(), std::nanf(""));
    for (int w = 0; w < workers; ++w) {
      attention.Run(variant, w, {}, kv_, qkv.data(), kWidth, out.data(),
                    kWidth);
    }
    for (int32_t row = 0; row < batch.num_tokens; ++row) {
      attention.Merge(variant, row, out.data() + row * kWidth);
    }
    return out;
  }

  // `bf16`: q, K, V and weights were rounded to bf16.
  void CheckRow(const AttendOptions& options, int32_t position,
                int32_t first_page, const float* got, bool bf16 = false) {
    const int32_t first =
        options.window > 0 ? std::max(0, position + 1 - options.window) : 0;
    for (int32_t head = 0; head < kHeads; ++head) {
      const int32_t kv_head = head / (kHeads / kKvHeads);
      const float* q = Q(position) + head * kDims;
      std::vector<double> score;
      double most = -1e300;
      double score_error = 0;
      for (int32_t key = first; key <= position; ++key) {
        const float* k = Head(k_, first_page * kPageTokens + key, kv_head);
        double s = 0, magnitude = 0;
        for (int32_t d = 0; d < kDims; ++d) {
          s += double{q[d]} * k[d];
          magnitude += std::abs(double{q[d]} * k[d]);
        }
        if (options.softcap > 0) {
          s = options.softcap * std::tanh(s / options.softcap);
        }
        score.push_back(s);
        most = std::max(most, s);
        score_error = std::max(score_error, kDims * kUnit * magnitude);
        if (bf16) score_error = std::max(score_error, 2.01 * kBf16 * magnitude);
      }
      score_error += 8 * kUnit * options.softcap;
      double sum = 0;
      std::vector<double> out(kDims), magnitude(kDims);
      for (int32_t key = first; key <= position; ++key) {
        const double p = std::exp(score[key - first] - most);
        const float* v = Head(v_, first_page * kPageTokens + key, kv_head);
        sum += p;
        for (int32_t d = 0; d < kDims; ++d) {
          out[d] += p * v[d];
          magnitude[d] += p * std::abs(v[d]);
        }
      }
      // A weight is wrong by the errors of two scores and of two exp (4 units,
      // and one for each of an argument's, below 40), in bf16 by a rounding;
      // sums over keys and splits add a rounding each. Numerator and
      // denominator both; the numerator also has V's rounding.
      const double relative =
          2 * (std::expm1(2 * score_error) + (bf16 ? 1.5 * kBf16 : 0) +
               (2 * (4 + 40) + static_cast<double>(score.size()) + 8) * kUnit);
      for (int32_t d = 0; d < kDims; ++d) {
        ASSERT_NEAR(got[head * kDims + d], out[d] / sum,
                    magnitude[d] / sum * relative)
            << "position " << position << " head " << head;
      }
    }
  }

  KvLayout kv_;
  std::vector<std::byte> memory_;
  std::vector<float> k_, v_, q_;
};

TEST_F(CpuAttentionTest, EveryWayOfAttendingHoweverItIsCut) {
  const AttendOptions ways[] = {
      {},
      {.window = 1},
      {.window = 100},
      {.window = 256},
      {.window = 300},
      {.window = 1000, .softcap = 2.0f},
      {.softcap = 20.0f},
  };
  // A long decode, a chunk across splits, a short prompt and a decode of few.
  const std::vector<Rows> seqs = {
      {1090, 1091, 0}, {500, 548, 20}, {0, 20, 30}, {3, 4, 40}};
  const auto same = [](const float* a, const float* b, size_t n) {
    return std::memcmp(a, b, n * sizeof(float)) == 0;
  };
  for (const AttendOptions& way : ways) {
    SCOPED_TRACE("window " + std::to_string(way.window) + " cap " +
                 std::to_string(way.softcap));
    const std::vector<float> want = Run(*ScalarKernels(), 1, way, seqs);
    const float* row = want.data();
    for (const Rows& rows : seqs) {
      for (int32_t p = rows.begin; p < rows.end; ++p, row += kWidth) {
        CheckRow(way, p, rows.first_page, row);
      }
    }
    for (const IsaChoice& isa : ListKernels()) {
      if (isa.kernels == nullptr || !isa.missing.empty()) continue;
      for (const int workers : {1, 3}) {
        const auto got = Run(*isa.kernels, workers, way, seqs);
        EXPECT_TRUE(same(got.data(), want.data(), got.size())) << isa.name;
      }
    }
    // Row by row instead of in a chunk: other tiles, other items.
    for (int32_t p = 500; p < 548; p += 9) {
      const auto got = Run(*ScalarKernels(), 1, way, {{p, p + 1, 20}});
      EXPECT_TRUE(
          same(got.data(), want.data() + (1 + p - 500) * kWidth, kWidth))
          << p;
    }
  }
}

// Tables with attention of prompts that can run here: the real tiles, where
// there are any, and emulated ones.
std::vector<KernelTable> PromptTables() {
  std::vector<KernelTable> tables;
  for (const IsaChoice& isa : ListKernels()) {
    if (isa.kernels == nullptr || !isa.missing.empty()) continue;
    if (isa.kernels->prompt_attend != nullptr) tables.push_back(*isa.kernels);
    if (std::string(isa.name) == "avx512bf16") {
      tables.push_back(EmulatedPromptKernels());
    }
  }
  return tables;
}

// The way a row takes is its role's alone: not its chunk's, its mates', nor the
// number of workers'.
TEST_F(CpuAttentionTest, RowsOfPromptsTakeTheirOwnWayHoweverTheyAreCut) {
  const std::vector<KernelTable> tables = PromptTables();
  if (tables.empty()) GTEST_SKIP() << "needs avx512bf16 or amx";
  const AttendOptions ways[] = {
      {},
      {.window = 100},
      {.window = 600, .softcap = 5.0f},
  };
  // A decode, a prompt's end with the first tokens after it, a short prompt and
  // one that crosses a split of prompts.
  const std::vector<Rows> seqs = {{600, 601, 0, 0},
                                  {500, 548, 20, 40},
                                  {0, 20, 30, 20},
                                  {980, 1060, 40, 80}};
  const auto same = [](const float* a, const float* b) {
    return std::memcmp(a, b, kWidth * sizeof(float)) == 0;
  };
  for (const KernelTable& table : tables) {
    for (const AttendOptions& way : ways) {
      SCOPED_TRACE(std::string(table.name) + " window " +
                   std::to_string(way.window));
      const auto want = Run(table, 1, way, seqs, true);
      const auto off = Run(table, 1, way, seqs, false);
      const float* row = want.data();
      for (const Rows& rows : seqs) {
        for (int32_t p = rows.begin; p < rows.end; ++p, row += kWidth) {
          const bool prompt = p < rows.begin + rows.prompt;
          CheckRow(way, p, rows.first_page, row, prompt);
          EXPECT_EQ(same(row, off.data() + (row - want.data())), !prompt) << p;
        }
      }
      for (const int workers : {2, 5}) {
        EXPECT_EQ(Run(table, workers, way, seqs, true), want) << workers;
      }
      // Each sequence alone, in chunks of any size.
      row = want.data();
      for (const Rows& rows : seqs) {
        for (const int32_t chunk : {1, 7, 33}) {
          for (int32_t p = rows.begin; p < rows.end; p += chunk) {
            const int32_t end = std::min(p + chunk, rows.end);
            const int32_t prompt =
                std::clamp(rows.begin + rows.prompt - p, 0, end - p);
            if (chunk == 1 && p % 5 != 0) continue;
            const auto got =
                Run(table, 2, way, {{p, end, rows.first_page, prompt}}, true);
            for (int32_t i = p; i < end; ++i) {
              EXPECT_TRUE(same(got.data() + (i - p) * kWidth,
                               row + (i - rows.begin) * kWidth))
                  << "position " << i << " in chunks of " << chunk;
            }
          }
        }
        row += (rows.end - rows.begin) * kWidth;
      }
    }
  }
}

}  // namespace
}  // namespace millrace::models
