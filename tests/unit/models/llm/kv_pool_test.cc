#include "models/llm/kv_pool.h"

#include <gtest/gtest.h>

#include "models/llm/kv_plan.h"
#include "models/llm/step.h"

namespace millrace::models {
namespace {

constexpr int64_t kPageBytes = 1000;

ModelConfig Model(int32_t context) {
  ModelConfig config;
  config.context = context;
  return config;
}

// Of a model whose layers see all.
StatusOr<KvPlan> Plan(const config::LlmSettings& settings, int32_t context,
                      const KvShare& share) {
  return PlanKv(settings, Model(context), kPageBytes, share,
                std::vector<int32_t>{0}, 512);
}

TEST(PlanKv, NeverMoreThanTheSequencesCanUse) {
  config::LlmSettings settings;
  settings.max_num_seqs = 2;
  const auto plan = Plan(settings, 100, ShareOfMemoryLimit(1 << 30));
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->max_context, 100);
  EXPECT_EQ(plan->num_pages, 4);  // 2 sequences of 2 pages
  EXPECT_EQ(plan->bound_by, "max_num_seqs sequences of full length");
}

TEST(PlanKv, AQuarterOfTheMemoryLimit) {
  config::LlmSettings settings;
  const auto plan = Plan(settings, 640, ShareOfMemoryLimit(4 * 20 * 1000));
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->num_pages, 20);
  EXPECT_EQ(plan->bound_by, "a quarter of the memory limit of 80000 bytes");
  EXPECT_EQ(plan->max_context, 640);
}

TEST(PlanKv, AContextThatDoesNotFitIsCutUnlessAskedFor) {
  config::LlmSettings settings;
  settings.kv_cache_memory_bytes = 3 * kPageBytes;
  const auto plan = Plan(settings, 640, ShareOfMemoryLimit(0));
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->num_pages, 3);
  EXPECT_EQ(plan->max_context, 3 * kPageTokens);
  settings.max_model_len = 640;
  const auto asked = Plan(settings, 640, ShareOfMemoryLimit(0));
  EXPECT_EQ(asked.status().message(),
            "the KV cache of 3000 bytes (--kv-cache-memory-bytes) holds 192 "
            "tokens, but one sequence may have 640; lower --max-model-len or "
            "raise --kv-cache-memory-bytes to 10000");
}

// Of a model of which half slides.
TEST(PlanPageGroups, AreSeveralUnlessAllPagesAreWantedTogether) {
  ModelConfig model = Model(8192);
  model.specs.resize(4);
  model.specs[0].window = model.specs[2].window = 128;
  config::LlmSettings settings;
  EXPECT_EQ(PlanPageGroups(settings, model, true).count(), 2);
  EXPECT_EQ(PlanPageGroups(settings, model, false).count(), 1);
  settings.max_model_len = 128;
  EXPECT_EQ(PlanPageGroups(settings, model, true).count(), 1)
      << "no window is left behind";
  settings.max_model_len = 0;
  settings.kv_cache_dir = "pages";
  EXPECT_EQ(PlanPageGroups(settings, model, true).count(), 1);
  settings.kv_cache_dir.clear();
  settings.speculative_model = "draft.gguf";
  EXPECT_EQ(PlanPageGroups(settings, model, true).count(), 1);
}

// Layers that slide need few pages, however long the sequence is.
TEST(PlanKv, AWindowBoundsWhatASequenceTakes) {
  config::LlmSettings settings;
  settings.kv_cache_memory_bytes = 30 * kPageBytes;
  settings.max_num_seqs = 2;
  const auto plan =
      PlanKv(settings, Model(6400), kPageBytes, ShareOfMemoryLimit(0),
             std::vector<int32_t>{0, 65}, 64);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->max_context, 27 * kPageTokens);  // and 3 of the window
  EXPECT_EQ(plan->num_pages, 30);
  const auto all_slide =
      PlanKv(settings, Model(6400), kPageBytes, ShareOfMemoryLimit(0),
             std::vector<int32_t>{65}, 64);
  ASSERT_TRUE(all_slide.ok());
  EXPECT_EQ(all_slide->max_context, 6400);
  EXPECT_EQ(all_slide->num_pages, 6);
}

TEST(PlanKv, MoreThanTrainedIsRefused) {
  config::LlmSettings settings;
  settings.max_model_len = 641;
  EXPECT_EQ(Plan(settings, 640, ShareOfMemoryLimit(0)).status().field(),
            "max_model_len");
}

TEST(KvPool, PagesAreZeroedAndAligned) {
  const auto pool = KvPool::Create(3, kPageBytes, false);
  ASSERT_TRUE(pool.ok());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(pool->data()) % (2 << 20), 0u);
  EXPECT_EQ(pool->data()[2999], std::byte{0});
}

TEST(KvPool, MemoryIsMadeReadyAheadOfThePagesInUse) {
  // 64 MiB in pages of 1 MiB, of which a quarter is kept ahead, 2 MiB a call.
  auto pool = KvPool::Create(64, 1 << 20, false);
  ASSERT_TRUE(pool.ok());
  const auto calls = [&](int32_t first_unused) {
    int n = 1;
    while (pool->PrepareAhead(first_unused)) ++n;
    return n;
  };
  pool->data()[0] = std::byte{7};
  EXPECT_EQ(calls(1), 8);
  EXPECT_EQ(pool->data()[0], std::byte{7}) << "a page in use was written to";
  EXPECT_EQ(calls(1), 1) << "nothing was left to do";
  EXPECT_EQ(calls(5), 2);
  EXPECT_EQ(calls(60), 2) << "no further than the pool";
  EXPECT_EQ(calls(64), 1);
}

}  // namespace
}  // namespace millrace::models
