// The engine over tiny models that mix layers with a window and layers that see
// all: with page groups a request gets the bits that it gets without, and long
// ones hold few pages.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "models/llm/model.h"
#include "models/llm/page_groups.h"
#include "tests/support/temp_path.h"
#include "tests/unit/scheduler/engine_fixture.h"
#include "tests/unit/scheduler/same_bits.h"

namespace millrace::scheduler {
namespace {

using models::kPageTokens;

constexpr int32_t kWindow = 24;  // of these models

std::vector<GenerateTask> RandomTasks(uint32_t seed) {
  std::mt19937 random(seed);
  const auto uniform = [&](int32_t low, int32_t high) {
    return std::uniform_int_distribution<int32_t>(low, high)(random);
  };
  std::vector<GenerateTask> tasks;
  for (int32_t i = 0; i < 20; ++i) {
    GenerateTask task;
    const int32_t num_prompt = i % 3 == 0 ? uniform(130, 190) : uniform(30, 60);
    for (int32_t k = 0; k < num_prompt; ++k) {
      task.prompt.push_back(uniform(3, 250));
    }
    // Some begin alike, some are alike but for their draws.
    if (i % 6 == 3) {
      const auto& other = tasks[static_cast<size_t>(i) - 3].prompt;
      std::copy_n(other.begin(), 100, task.prompt.begin());
    }
    if (i % 6 == 4) task.prompt = tasks[static_cast<size_t>(i) - 1].prompt;
    task.max_tokens = uniform(20, 60);
    task.prompt_logprobs = i % 7 == 0;
    task.sampling.logprobs = true;
    task.sampling.seed = random();
    if (i % 2 == 0) task.sampling.temperature = 0;
    tasks.push_back(std::move(task));
  }
  return tasks;
}

struct Load {
  std::string path;
  bool page_groups = false;
  int64_t kv_bytes = int64_t{64} << 20;
  int32_t max_tokens = 512;
};

// `page_bytes`: of one page, if wanted.
std::unique_ptr<Engine> Make(const Load& load, const EngineOptions& options,
                             int64_t* page_bytes = nullptr) {
  models::LlmOptions llm;
  llm.settings.max_num_seqs = 16;
  llm.settings.max_num_batched_tokens = load.max_tokens;
  llm.settings.kv_cache_memory_bytes = load.kv_bytes;
  llm.settings.huge_pages = false;
  llm.memory_limit_bytes = int64_t{256} << 20;
  llm.page_groups = load.page_groups;
  StatusOr<models::LlmModel> model = models::LoadLlm(load.path, llm);
  CHECK(model.ok(), "the tiny model loads");
  const models::RunnerInfo& info = model->runner->info();
  EXPECT_EQ(info.windows.size() > 1, load.page_groups);
  EXPECT_EQ(static_cast<int32_t>(info.windows.size()), info.limits.page_groups);
  if (page_bytes != nullptr) {
    *page_bytes =
        model->info.kv_bytes_per_token * kPageTokens / info.limits.page_groups;
  }
  return Engine::Create(std::move(model->runner), options, nullptr);
}

class EngineGroups : public testing::TestWithParam<const char*> {
 protected:
  std::string Folder() const { return std::string("tests/data/") + GetParam(); }
};

TEST_P(EngineGroups, BitsAreThoseOfOneGroup) {
  const std::vector<GenerateTask> tasks = RandomTasks(11);
  auto alone = Make({.path = Folder()},
                    {.max_num_seqs = 1, .enable_prefix_caching = false});
  std::vector<Reader> expected;
  for (const GenerateTask& task : tasks) {
    expected.emplace_back(MustSubmit(*alone, task));
    ASSERT_EQ(expected.back().EndCode(), StatusCode::kOk);
  }
  int64_t page_bytes = 0;
  const int64_t groups =
      Make({.path = Folder(), .page_groups = true}, {}, &page_bytes)
          ->info()
          .limits.page_groups;
  // Pages for one sequence of full length and few more.
  const int64_t tight = (4 + 3 * (groups - 1) + 2) * page_bytes;
  struct Way {
    int64_t kv_bytes;
    int32_t chunk;
    bool caches;
  };
  int64_t preemptions = 0;
  for (const Way& way :
       {Way{int64_t{64} << 20, 512, true}, Way{int64_t{64} << 20, 40, true},
        Way{tight, 70, true}, Way{tight, 70, false}, Way{tight, 9, true}}) {
    SCOPED_TRACE("KV bytes " + std::to_string(way.kv_bytes) +
                 ", tokens a step " + std::to_string(way.chunk));
    auto engine = Make({.path = Folder(),
                        .page_groups = true,
                        .kv_bytes = way.kv_bytes,
                        .max_tokens = way.chunk},
                       {.max_num_batched_tokens = way.chunk,
                        .enable_prefix_caching = way.caches});
    const int32_t found = ExpectSameBits(*engine, tasks, expected);
    preemptions += engine->stats().preemptions;
    if (way.caches && way.kv_bytes != tight) {
      EXPECT_GT(found, 0);
    }
    ExpectAllPagesBack(*engine);
  }
  EXPECT_GT(preemptions, 0);
}

// The same model with another context.
std::string WithContext(const std::string& folder, int32_t context) {
  const std::string copy = TempPath("groups_" + std::to_string(context));
  std::filesystem::remove_all(copy);
  std::filesystem::create_directory(copy);
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    if (file.path().filename() == "model.gguf") continue;
    std::filesystem::copy(file.path(), copy / file.path().filename());
  }
  std::stringstream text;
  text << std::ifstream(folder + "/config.json").rdbuf();
  std::string config = text.str();
  const std::string key = "\"max_position_embeddings\": 256";
  const size_t at = config.find(key);
  CHECK(at != std::string::npos, "the model says its context");
  config.replace(at, key.size(),
                 "\"max_position_embeddings\": " + std::to_string(context));
  std::ofstream(copy + "/config.json") << config;
  return copy;
}

// A prompt of 7000 tokens and its completion hold pages of all of them for the
// layer that sees all, of the others those of the window and a step.
TEST_P(EngineGroups, PagesOfALongSequenceAreBoundedByTheWindow) {
  constexpr int32_t kChunk = 256;
  const std::string folder = WithContext(Folder(), 8192);
  const EngineOptions options = {.max_num_batched_tokens = kChunk};
  GenerateTask task;
  for (int32_t i = 0; i < 7000; ++i) task.prompt.push_back(3 + i * 7 % 247);
  task.max_tokens = 150;
  task.sampling.temperature = 0;
  task.sampling.logprobs = true;

  auto plain = Make({.path = folder, .max_tokens = kChunk}, options);
  Reader expected(MustSubmit(*plain, task));
  ASSERT_EQ(expected.EndCode(), StatusCode::kOk);

  auto engine = Make(
      {.path = folder, .page_groups = true, .max_tokens = kChunk}, options);
  const int32_t sliding = engine->info().limits.page_groups - 1;
  const int32_t all = 7150 / kPageTokens + 1;
  const auto of_step =
      static_cast<int32_t>(models::MostPages(kWindow, kChunk, 8192));
  const auto of_window =
      static_cast<int32_t>(models::MostPages(kWindow, 1, 8192));
  ASSERT_LE(of_step, 6);
  ASSERT_EQ(of_window, 2);
  Reader reader(MustSubmit(*engine, task));
  int32_t most = 0;
  const auto deadline = Soon();
  while (engine->stats().steps < 7000 / kChunk &&
         std::chrono::steady_clock::now() < deadline) {
    most = std::max(most, engine->stats().pages_used);
    std::this_thread::yield();
  }
  for (size_t n = 2; n < 150; ++n) {
    ASSERT_TRUE(reader.AwaitTokens(n));
    // The step under way has the pages of its rows, too.
    EXPECT_LE(engine->stats().pages_used, all + sliding * (of_window + 1));
    most = std::max(most, engine->stats().pages_used);
  }
  ASSERT_EQ(reader.EndCode(), StatusCode::kOk);
  EXPECT_LE(most, all + sliding * (of_step + 1));
  EXPECT_TRUE(SameBits(reader.tokens, expected.tokens));

  // Its beginning is found again where the window before it is there.
  task.prompt.resize(6992);
  Reader again(MustSubmit(*engine, task));
  ASSERT_EQ(again.EndCode(), StatusCode::kOk);
  EXPECT_EQ(again.end->cached_tokens, 6992 / kPageTokens * kPageTokens);
  Reader anew(MustSubmit(*plain, task));
  ASSERT_EQ(anew.EndCode(), StatusCode::kOk);
  EXPECT_TRUE(SameBits(again.tokens, anew.tokens));
  std::filesystem::remove_all(folder);
}

INSTANTIATE_TEST_SUITE_P(Folders, EngineGroups,
                         testing::Values("hf_gemma2", "hf_gemma3", "hf_gpt_oss",
                                         "hf_llama4", "hf_ministral"),
                         [](const auto& test) {
                           return std::string(test.param);
                         });

}  // namespace
}  // namespace millrace::scheduler
