// The engine over a real, tiny model: whatever the company, the chunks, the
// threads and the preemptions, each request gets the bits that it gets alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "models/llm/model.h"
#include "tests/data/tiny_gguf.h"
#include "tests/support/temp_path.h"
#include "tests/unit/scheduler/engine_fixture.h"
#include "tests/unit/scheduler/same_bits.h"

namespace millrace::scheduler {
namespace {

std::vector<GenerateTask> RandomTasks(uint32_t seed) {
  std::mt19937 random(seed);
  const auto uniform = [&](int32_t low, int32_t high) {
    return std::uniform_int_distribution<int32_t>(low, high)(random);
  };
  std::vector<GenerateTask> tasks;
  for (int32_t i = 0; i < 16; ++i) {
    GenerateTask task;
    const int32_t num_prompt = uniform(1, i % 4 == 0 ? 300 : 60);
    for (int32_t k = 0; k < num_prompt; ++k) {
      task.prompt.push_back(uniform(3, 250));
    }
    // Some begin alike; some are alike but for their draws.
    if (i % 4 == 2) task.prompt = tasks[static_cast<size_t>(i) - 2].prompt;
    if (i % 8 == 6) task.prompt.resize(task.prompt.size() * 2 / 3 + 1);
    task.max_tokens = uniform(1, 120);
    task.prompt_logprobs = i % 3 == 0;
    task.priority = uniform(0, 1);
    task.sampling.logprobs = true;
    task.sampling.top_logprobs = uniform(0, 5);
    task.sampling.seed = random();
    if (i % 2 == 0) task.sampling.temperature = 0;
    if (i % 4 == 1) task.sampling.top_p = 0.9f;
    if (i % 4 == 3) task.sampling.top_k = 20;
    if (i % 5 == 0) task.sampling.frequency_penalty = 0.5f;
    if (i % 7 == 0) task.sampling.repetition_penalty = 1.3f;
    if (i % 7 == 3) {
      task.sampling.frequency_penalty = 0.5f;
      task.sampling.penalty_last_n = 12;
    }
    if (i % 8 == 5) task.sampling.typical_p = 0.9f;
    if (i % 8 == 7) task.sampling.xtc_probability = 0.5f;
    if (i % 8 == 1) task.sampling.mirostat = {.on = true, .tau = 3};
    if (i % 3 == 2) task.sampling.dry = {.multiplier = 0.8f};
    if (i % 6 == 1) task.sampling.allowed_token_ids = {7, 31, 32, 70, 199, 250};
    if (i % 6 == 4) task.sampling.bad_words = {{40}, {41, 42}};
    tasks.push_back(std::move(task));
  }
  return tasks;
}

// Each look at it is a millisecond later: steps take the same time however many
// rows they have, so draft tokens always pay.
class TickingClock final : public Clock {
 public:
  Time Now() const override {
    return Time(std::chrono::milliseconds(
        now_.fetch_add(1, std::memory_order_relaxed)));
  }

 private:
  mutable std::atomic<int64_t> now_{1};  // relaxed: it orders nothing
};

class EngineModel : public testing::Test {
 protected:
  void SetUp() override {
    path_ = TempPath("engine_model.gguf");
    ASSERT_TRUE(models::WriteTinyGguf(models::TinyModel{}, path_));
  }
  void TearDown() override { std::remove(path_.c_str()); }

  std::unique_ptr<Engine> Make(int threads, int64_t kv_bytes,
                               const EngineOptions& options,
                               MetricRegistry* registry = nullptr,
                               const std::string& draft = "") {
    models::LlmOptions llm;
    llm.settings.speculative_model = draft;
    llm.settings.max_num_seqs = 16;
    llm.settings.kv_cache_memory_bytes = kv_bytes;
    llm.settings.huge_pages = false;
    llm.memory_limit_bytes = int64_t{256} << 20;
    for (int i = 0; i < threads; ++i) llm.cpus.push_back(i);
    StatusOr<models::LlmModel> model = models::LoadLlm(path_, llm);
    CHECK(model.ok(), "the tiny model loads");
    return Engine::Create(std::move(model->runner), options, registry,
                          std::move(model->draft_runner));
  }

  std::string path_;
};

TEST_F(EngineModel, BitsAreTheSameAloneAndInACrowd) {
  const std::vector<GenerateTask> tasks = RandomTasks(3);
  auto alone = Make(1, int64_t{4} << 20,
                    {.max_num_seqs = 1, .enable_prefix_caching = false});
  std::vector<Reader> expected;
  for (const GenerateTask& task : tasks) {
    expected.emplace_back(MustSubmit(*alone, task));
    ASSERT_EQ(expected.back().EndCode(), StatusCode::kOk);
  }

  struct Way {
    int threads;
    int64_t kv_bytes;
    int32_t chunk;
    bool preempts;
    bool caches;
  };
  // 10 pages of 16 KiB are too few for sixteen requests that grow.
  constexpr int64_t kTight = int64_t{10} * 16 * 1024;
  for (const Way& way :
       {Way{1, int64_t{4} << 20, 512, false, true},
        Way{1, int64_t{4} << 20, 64, false, true},
        Way{2, kTight, 512, true, true}, Way{2, kTight, 512, true, false},
        Way{1, kTight, 16, true, true}, Way{2, kTight, 1, false, true}}) {
    SCOPED_TRACE("threads " + std::to_string(way.threads) + ", KV bytes " +
                 std::to_string(way.kv_bytes) + ", tokens a step " +
                 std::to_string(way.chunk));
    auto engine = Make(way.threads, way.kv_bytes,
                       {.max_num_batched_tokens = way.chunk,
                        .enable_prefix_caching = way.caches});
    const int32_t found = ExpectSameBits(*engine, tasks, expected);
    if (way.preempts) {
      EXPECT_GT(engine->stats().preemptions, 0);
    }
    if (way.caches && way.kv_bytes != kTight) {
      EXPECT_GT(found, 0);
    } else if (!way.caches) {
      EXPECT_EQ(found, 0);
    }
    ExpectAllPagesBack(*engine);
  }
}

TEST_F(EngineModel, BitsAreTheSameWithAndWithoutDrafts) {
  std::vector<GenerateTask> tasks = RandomTasks(5);
  for (size_t i = 0; i < tasks.size(); ++i) {
    // Long enough to repeat themselves; some under every kind of penalty.
    tasks[i].max_tokens = 150;
    if (i % 3 == 0) tasks[i].sampling.presence_penalty = 0.3f;
    if (i % 3 == 1) tasks[i].sampling.temperature = 0.2f;
  }
  auto plain = Make(1, int64_t{4} << 20, {.max_num_seqs = 1});
  std::vector<Reader> expected;
  for (const GenerateTask& task : tasks) {
    expected.emplace_back(MustSubmit(*plain, task));
    ASSERT_EQ(expected.back().EndCode(), StatusCode::kOk);
  }
  constexpr int64_t kTight = int64_t{10} * 16 * 1024;
  for (const int64_t kv_bytes : {int64_t{4} << 20, kTight}) {
    TickingClock clock;
    MetricRegistry registry;
    auto engine =
        Make(2, kv_bytes,
             {.speculative = {.num_tokens = 6, .prompt_lookup_min = 1},
              .clock = &clock},
             &registry);
    std::vector<Reader> readers;
    for (const GenerateTask& task : tasks) {
      readers.emplace_back(MustSubmit(*engine, task));
    }
    for (size_t i = 0; i < tasks.size(); ++i) {
      ASSERT_EQ(readers[i].EndCode(), StatusCode::kOk);
      EXPECT_TRUE(SameBits(readers[i].tokens, expected[i].tokens))
          << "answer of request " << i;
    }
    ExpectAllPagesBack(*engine);
    // Draft tokens were checked, some were accepted and some were not.
    const std::string text = registry.Text();
    const auto value = [&](const std::string& name) {
      const size_t at = text.find("\n" + name + "{");
      return at == std::string::npos
                 ? 0.0
                 : std::stod(text.substr(text.find("} ", at) + 2));
    };
    const double drafted = value("millrace_spec_decode_num_draft_tokens_total");
    const double accepted =
        value("millrace_spec_decode_num_accepted_tokens_total");
    EXPECT_GT(accepted, 20);
    EXPECT_GT(drafted, accepted);
  }
}

double Value(MetricRegistry& registry, const std::string& name) {
  const std::string text = registry.Text();
  const size_t at = text.find("\nmillrace_spec_decode_" + name + "_total{");
  return at == std::string::npos
             ? 0.0
             : std::stod(text.substr(text.find("} ", at) + 2));
}

TEST_F(EngineModel, ForbiddenTokensAreNeverDrawn) {
  // Four tokens, of which two are forbidden behind any two of them: what may
  // come next depends on the tokens just before, at each place.
  const std::vector<int32_t> allowed = {7, 31, 70, 199};
  std::mt19937 random(3);
  std::vector<std::vector<int32_t>> bad_words;
  for (const int32_t a : allowed) {
    for (const int32_t b : allowed) {
      const size_t first = random() % 4;
      const size_t second = (first + 1 + random() % 3) % 4;
      bad_words.push_back({a, b, allowed[first]});
      bad_words.push_back({a, b, allowed[second]});
    }
  }
  std::vector<GenerateTask> tasks = RandomTasks(9);
  for (GenerateTask& task : tasks) {
    task.max_tokens = 120;
    task.sampling.allowed_token_ids = allowed;
    task.sampling.bad_words = bad_words;
  }
  auto plain = Make(1, int64_t{4} << 20, {.max_num_seqs = 1});
  std::vector<Reader> expected;
  for (const GenerateTask& task : tasks) {
    expected.emplace_back(MustSubmit(*plain, task));
    ASSERT_EQ(expected.back().EndCode(), StatusCode::kOk);
  }
  // Ten pages: some are preempted in the middle of their output.
  TickingClock clock;
  MetricRegistry registry;
  auto engine = Make(2, int64_t{10} * 16 * 1024,
                     {.speculative = {.num_tokens = 6, .prompt_lookup_min = 1},
                      .clock = &clock},
                     &registry);
  std::vector<Reader> readers;
  for (const GenerateTask& task : tasks) {
    readers.emplace_back(MustSubmit(*engine, task));
  }
  for (size_t i = 0; i < tasks.size(); ++i) {
    ASSERT_EQ(readers[i].EndCode(), StatusCode::kOk);
    const std::vector<int32_t> ids = readers[i].ids();
    for (const int32_t id : ids) {
      EXPECT_EQ(std::ranges::count(allowed, id), 1) << "task " << i;
    }
    for (const auto& word : bad_words) {
      EXPECT_TRUE(std::ranges::search(ids, word).empty()) << "task " << i;
    }
    EXPECT_TRUE(SameBits(readers[i].tokens, expected[i].tokens))
        << "task " << i;
  }
  EXPECT_GT(engine->stats().preemptions, 0);
  EXPECT_GT(Value(registry, "num_accepted_tokens"), 20);
  EXPECT_GT(Value(registry, "num_draft_tokens"),
            Value(registry, "num_accepted_tokens"));
}

TEST_F(EngineModel, BitsAreTheSameWithAPrediction) {
  std::vector<GenerateTask> tasks = RandomTasks(13);
  auto plain = Make(1, int64_t{4} << 20, {.max_num_seqs = 1});
  std::vector<Reader> expected;
  for (GenerateTask& task : tasks) {
    expected.emplace_back(MustSubmit(*plain, task));
    ASSERT_EQ(expected.back().EndCode(), StatusCode::kOk);
    // The answer, but for each tenth token.
    task.prediction = expected.back().ids();
    for (size_t i = 9; i < task.prediction.size(); i += 10) {
      task.prediction[i] = 3 + (task.prediction[i] + 1) % 240;
    }
  }
  // Ten pages: some are preempted in the middle of their output.
  TickingClock clock;
  auto engine = Make(2, int64_t{10} * 16 * 1024,
                     {.speculative = {.num_tokens = 6}, .clock = &clock});
  std::vector<Reader> readers;
  for (const GenerateTask& task : tasks) {
    readers.emplace_back(MustSubmit(*engine, task));
  }
  int32_t accepted = 0;
  int32_t rejected = 0;
  for (size_t i = 0; i < tasks.size(); ++i) {
    ASSERT_EQ(readers[i].EndCode(), StatusCode::kOk);
    EXPECT_TRUE(SameBits(readers[i].tokens, expected[i].tokens))
        << "task " << i;
    accepted += readers[i].end->prediction.accepted;
    rejected += readers[i].end->prediction.rejected;
  }
  EXPECT_GT(engine->stats().preemptions, 0);
  EXPECT_GT(accepted, 100);
  EXPECT_GT(rejected, 10);
}

TEST_F(EngineModel, BitsAreTheSameWithADraftModel) {
  const std::string other = TempPath("engine_model_draft.gguf");
  models::TinyModel small;
  small.layers = 1;
  ASSERT_TRUE(models::WriteTinyGguf(small, other));
  const std::vector<GenerateTask> tasks = RandomTasks(7);
  auto plain = Make(1, int64_t{4} << 20, {.max_num_seqs = 1});
  std::vector<Reader> expected;
  for (const GenerateTask& task : tasks) {
    expected.emplace_back(MustSubmit(*plain, task));
    ASSERT_EQ(expected.back().EndCode(), StatusCode::kOk);
  }
  int64_t preemptions_where_tight = 0;
  for (const std::string& draft : {path_, other}) {
    // Ten pages of 16 KiB, and as many of the draft model's.
    const int64_t tight = int64_t{10} * (draft == path_ ? 32 : 24) * 1024;
    for (const int64_t kv_bytes : {int64_t{8} << 20, tight}) {
      MetricRegistry registry;
      auto engine =
          Make(2, kv_bytes, {.speculative = {.num_tokens = 4, .always = true}},
               &registry, draft);
      std::vector<Reader> readers;
      for (const GenerateTask& task : tasks) {
        readers.emplace_back(MustSubmit(*engine, task));
      }
      for (size_t i = 0; i < tasks.size(); ++i) {
        ASSERT_EQ(readers[i].EndCode(), StatusCode::kOk);
        EXPECT_TRUE(SameBits(readers[i].tokens, expected[i].tokens))
            << "answer of request " << i;
      }
      EXPECT_GT(Value(registry, "num_draft_tokens"), 100);
      EXPECT_GT(Value(registry, "num_accepted_tokens"), 50);
      if (kv_bytes == tight) {
        preemptions_where_tight += engine->stats().preemptions;
      } else {
        EXPECT_EQ(engine->stats().preemptions, 0);
      }
      EXPECT_EQ(engine->stats().draft_pages_used, 0);
      ExpectAllPagesBack(*engine);
    }
  }
  // How many there are depends on how many draft tokens are accepted.
  EXPECT_GT(preemptions_where_tight, 0);
  std::remove(other.c_str());
}

TEST_F(EngineModel, AModelDraftsItsOwnGreedyCompletion) {
  GenerateTask task;
  for (int32_t id = 10; id < 110; ++id) task.prompt.push_back(id);
  task.max_tokens = 301;
  task.sampling.temperature = 0;
  auto plain = Make(2, int64_t{4} << 20, {.max_num_seqs = 1});
  Reader expected(MustSubmit(*plain, task));
  ASSERT_EQ(expected.EndCode(), StatusCode::kOk);

  MetricRegistry registry;
  auto engine = Make(2, int64_t{8} << 20,
                     {.speculative = {.num_tokens = 5, .always = true}},
                     &registry, path_);
  Reader reader(MustSubmit(*engine, task));
  ASSERT_EQ(reader.EndCode(), StatusCode::kOk);
  EXPECT_EQ(reader.ids(), expected.ids());
  EXPECT_EQ(Value(registry, "num_accepted_tokens"),
            Value(registry, "num_draft_tokens"))
      << "results do not depend on who computes beside";
  // The prompt, which the draft model then reads in two chunks before it has a
  // price; six tokens a step otherwise.
  EXPECT_LT(engine->stats().steps, 60);
}

}  // namespace
}  // namespace millrace::scheduler
