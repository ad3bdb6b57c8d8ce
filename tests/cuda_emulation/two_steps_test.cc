// The engine on a GPU, or the emulated one, with two steps in flight, beside
// the same engine that reads each step before it launches the next: the same
// answers, to the bit. The GPU runs its work at once, or as late as it may: a
// result that is read too early, or a buffer that is filled again too early,
// then shows.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "config/base/metrics.h"
#include "models/llm/lora.h"
#include "models/llm/model.h"
#include "models/llm/runner_ahead.h"
#include "tests/cuda_emulation/test_module.h"
#include "tests/data/tiny_gguf.h"
#include "tests/support/temp_path.h"
#include "tests/unit/scheduler/engine_fixture.h"
#include "tests/unit/scheduler/same_bits.h"

namespace millrace::scheduler {
namespace {

// Shows a runner without what lets a second step be launched.
class OneStepAtATime final : public models::Runner {
 public:
  explicit OneStepAtATime(std::unique_ptr<models::Runner> runner)
      : runner_(std::move(runner)) {}
  const models::RunnerInfo& info() const override { return runner_->info(); }
  void InitSlot(const models::SlotInit& init) override {
    runner_->InitSlot(init);
  }
  void Launch(const models::StepBatch& batch) override {
    runner_->Launch(batch);
  }
  StatusOr<const models::StepResult*> Wait() override {
    return runner_->Wait();
  }

 private:
  const std::unique_ptr<models::Runner> runner_;
};

class TwoSteps : public testing::Test {
 protected:
  TwoSteps() { setenv("MILLRACE_CUDA_MODULE", models::ModuleFile(), 1); }
  ~TwoSteps() override {
    FailWait(-1);
    Defer(false);
    unsetenv("MILLRACE_CUDA_MODULE");
  }

  // A real GPU runs its work when it likes.
  static void Defer(bool defer) {
    if (!models::Emulated()) return;
    models::EmulatedFunction<void(bool)>("defer")(defer);
  }
  // The wait behind so many others fails; -1: none does. Of the emulated GPU.
  static void FailWait(int waits) {
    if (!models::Emulated()) return;
    models::EmulatedFunction<void(int)>("fail_wait")(waits);
  }

  static models::LlmModel MustLoad(const std::string& path, bool eager) {
    models::LlmOptions options;
    options.device = "cuda:0";
    options.settings.enforce_eager = eager;
    options.settings.max_num_seqs = 4;
    options.settings.max_num_batched_tokens = 32;
    options.settings.max_model_len = 256;
    options.settings.huge_pages = false;
    options.memory_limit_bytes = int64_t{256} << 20;
    options.cpus = {0};
    return models::Must(models::LoadLlm(path, options));
  }

  // Every second task has the adapter; "": none has.
  static void Adapt(std::vector<GenerateTask>& tasks,
                    const models::LlmModel& model, const std::string& lora) {
    if (lora.empty()) return;
    const auto adapter =
        models::Must(models::LoadLora(lora, *model.lora_base, "named"));
    for (size_t i = 1; i < tasks.size(); i += 2) tasks[i].adapter = adapter;
  }

  static std::vector<GenerateTask> Tasks() {
    std::vector<GenerateTask> tasks;
    for (int32_t i = 0; i < 6; ++i) {
      std::vector<int32_t> prompt;
      for (int32_t t = 0; t < (i == 2 ? 62 : 2 + 3 * i); ++t) {
        prompt.push_back(3 + (i + t * 37) % 60);
      }
      GenerateTask task = MakeTask(std::move(prompt), 5 + 2 * i);
      task.sampling.temperature = i % 2 == 0 ? 0.0f : 0.8f;
      task.sampling.seed = static_cast<uint64_t>(i);
      if (i == 3) task.sampling.top_p = 0.9f;
      tasks.push_back(std::move(task));
    }
    tasks[4].sampling.repetition_penalty = 1.3f;  // drawn on the host
    tasks[4].max_tokens = 3;
    return tasks;
  }

  static std::vector<Reader> AnswersOf(Engine& engine,
                                       const std::vector<GenerateTask>& tasks) {
    std::vector<Reader> readers;
    for (const GenerateTask& task : tasks) {
      readers.emplace_back(MustSubmit(engine, task));
    }
    for (Reader& reader : readers) {
      EXPECT_EQ(reader.EndCode(), StatusCode::kOk);
    }
    return readers;
  }

  // What engines with one step in flight, and with two, answer to the tasks. Of
  // the latter a GPU runs the work as late as it may.
  void ExpectTheSame(const std::string& path, bool stops,
                     const std::vector<bool>& eagers,
                     const std::string& lora = "") {
    const EngineOptions options = {.model = "fake", .max_num_seqs = 4};
    std::vector<GenerateTask> tasks = Tasks();
    Defer(false);
    models::LlmModel one = MustLoad(path, true);
    Adapt(tasks, one, lora);
    auto alone =
        Engine::Create(std::make_unique<OneStepAtATime>(std::move(one.runner)),
                       options, nullptr);
    std::vector<Reader> expected = AnswersOf(*alone, tasks);
    if (!lora.empty()) {
      const std::vector<Reader> plain = AnswersOf(*alone, Tasks());
      EXPECT_EQ(plain[0].ids(), expected[0].ids());
      EXPECT_NE(plain[5].ids(), expected[5].ids()) << "adapters add something";
    }
    if (stops) {
      for (const size_t i : {size_t{1}, size_t{3}}) {
        tasks[i].sampling.stop_ids = {expected[i].ids()[3]};
      }
      expected = AnswersOf(*alone, tasks);
      EXPECT_LE(expected[1].ids().size(), 4u);
    }
    alone.reset();
    for (const bool eager : eagers) {
      SCOPED_TRACE(eager ? "launched one by one" : "graphs");
      Defer(true);
      MetricRegistry registry;
      models::LlmModel model = MustLoad(path, eager);
      Adapt(tasks, model, lora);
      const auto engine =
          Engine::Create(std::move(model.runner), options, &registry);
      ExpectSameBits(*engine, tasks, expected);
      EXPECT_GT(Count(registry, "steps_ahead"), 8);
      EXPECT_EQ(Count(registry, "discarded_rows") > 0, stops);
      ExpectAllPagesBack(*engine);
    }
  }

  static double Count(MetricRegistry& registry, const std::string& name) {
    const std::string text = registry.Text();
    const std::string line = "millrace_" + name + "_total{model=\"fake\"";
    const size_t at = text.find(line);
    return at == std::string::npos
               ? -1
               : std::stod(text.substr(text.find("} ", at) + 2));
  }
};

TEST_F(TwoSteps, GiveTheBitsOfOneStepAtATime) {
  models::TinyModel tiny;
  tiny.layers = 1;
  const std::string path = TempPath("two_steps.gguf");
  ASSERT_TRUE(models::WriteTinyGguf(tiny, path));
  ExpectTheSame(path, true, {true, false});
  EXPECT_EQ(std::remove(path.c_str()), 0);
}

// A row of an adapter is in flight when its completion stops.
TEST_F(TwoSteps, WithAdapters) {
  ExpectTheSame("tests/data/hf_llama_yarn", true, {true, false},
                "tests/data/lora_llama");
}

// Both steps in flight are lost, and with them what runs; what waits, and what
// comes later, is answered as ever.
TEST_F(TwoSteps, AFaultEndsWhatRunsAndNothingElse) {
  if (!models::Emulated()) {
    GTEST_SKIP() << "only the emulated GPU fails when told";
  }
  models::TinyModel tiny;
  tiny.layers = 1;
  const std::string path = TempPath("two_steps_fault.gguf");
  ASSERT_TRUE(models::WriteTinyGguf(tiny, path));
  const std::vector<GenerateTask> tasks = Tasks();
  for (const bool eager : {true, false}) {
    SCOPED_TRACE(eager ? "launched one by one" : "graphs");
    Defer(true);
    MetricRegistry registry;
    const auto engine =
        Engine::Create(MustLoad(path, eager).runner,
                       {.model = "fake", .max_num_seqs = 4}, &registry);
    const std::vector<Reader> expected = AnswersOf(*engine, tasks);
    const double ahead = Count(registry, "steps_ahead");
    FailWait(4);
    std::vector<Reader> readers;
    for (const GenerateTask& task : tasks) {
      readers.emplace_back(MustSubmit(*engine, task));
    }
    int failed = 0;
    for (size_t i = 0; i < readers.size(); ++i) {
      if (readers[i].EndCode() == StatusCode::kOk) {
        EXPECT_TRUE(SameBits(readers[i].tokens, expected[i].tokens)) << i;
        continue;
      }
      ++failed;
      EXPECT_EQ(readers[i].end->status.message(),
                "cuda:0 failed: an emulated fault");
    }
    EXPECT_GT(failed, 0);
    EXPECT_LT(failed, 6) << "some were waiting";
    EXPECT_GT(Count(registry, "steps_ahead"), ahead);
    EXPECT_EQ(Count(registry, "discarded_rows"), 0);
    ExpectSameBits(*engine, tasks, expected);
    ExpectAllPagesBack(*engine);
  }
  EXPECT_EQ(std::remove(path.c_str()), 0);
}

// What experts read is counted in front of the ids.
TEST_F(TwoSteps, WithExperts) {
  ExpectTheSame("tests/data/hf_qwen2moe", false, {false});
}

}  // namespace
}  // namespace millrace::scheduler
