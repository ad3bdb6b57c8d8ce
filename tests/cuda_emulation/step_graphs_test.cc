// Steps as CUDA graphs, on a GPU or the emulated one: the answers of steps that
// are launched kernel by kernel, to the bit, whatever the steps are padded to.
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "models/llm/cuda/step_message.h"
#include "tests/cuda_emulation/test_module.h"
#include "tests/data/tiny_gguf.h"
#include "tests/support/temp_path.h"
#include "tests/unit/models/llm/step_driver.h"

namespace millrace::models {
namespace {

class StepGraphsTest : public testing::Test {
 protected:
  StepGraphsTest() { setenv("MILLRACE_CUDA_MODULE", ModuleFile(), 1); }
  ~StepGraphsTest() override {
    if (Emulated()) {
      FailCaptures(false);
      FailEvents(false);
    }
    unsetenv("MILLRACE_CUDA_MODULE");
  }

  // The emulated GPU fails when told.
  static void FailCaptures(bool fail) {
    EmulatedFunction<void(bool)>("fail_captures")(fail);
  }
  static void FailEvents(bool fail) {
    EmulatedFunction<void(bool)>("fail_events")(fail);
  }
  // Graphs that ran so far; a real GPU does not count them: 0.
  static int GraphRuns() {
    return Emulated() ? EmulatedFunction<int()>("graph_runs")() : 0;
  }

  static LlmOptions Options(bool eager) {
    LlmOptions options = TinyOptions(1);
    options.device = "cuda:0";
    options.settings.enforce_eager = eager;
    options.settings.max_num_batched_tokens = 64;
    options.settings.max_num_seqs = 5;
    return options;
  }
  static LlmModel MustLoad(const TinyModel& tiny, const LlmOptions& options) {
    const std::string path = TempPath("step_graphs.gguf");
    EXPECT_TRUE(WriteTinyGguf(tiny, path));
    StatusOr<LlmModel> model = LoadLlm(path, options);
    EXPECT_EQ(std::remove(path.c_str()), 0);
    return Must(std::move(model));
  }
  // The last prompt takes some steps; then there are steps of 5 rows, of 4 and
  // so on, and it crosses from one split of keys to two.
  static std::vector<DriverRequest> Requests() {
    std::vector<DriverRequest> requests;
    for (int32_t i = 0; i < 5; ++i) {
      DriverRequest& request = requests.emplace_back();
      const int32_t length = i < 4 ? 3 + 5 * i : 252;
      for (int32_t t = 0; t < length; ++t) {
        request.prompt.push_back(3 + (i + t * 37) % 260);
      }
      request.max_tokens = i < 4 ? 8 + i : 8;
      request.sampling.temperature = i % 2 == 0 ? 0.0f : 0.8f;
      request.sampling.seed = static_cast<uint64_t>(i);
      // Drawn on the host, which shows more, or on the device.
      request.sampling.logprobs = i % 2 == 0;
      request.sampling.top_logprobs = i % 2 == 0 ? 3 : 0;
      if (i == 3) request.sampling.top_p = 0.9f;
    }
    return requests;
  }
};

TEST_F(StepGraphsTest, GiveTheBitsOfStepsLaunchedKernelByKernel) {
  std::vector<TinyModel> models(2);
  models[1].sliding_window = 6;
  for (TinyModel& tiny : models) {
    tiny.layers = 1;
    // No more pages than are needed: each of them is somebody's.
    LlmOptions options = Options(true);
    options.settings.max_model_len = 320;
    options.settings.kv_cache_memory_bytes = 9 * 2 * 2 * 64 * 16 * 2;
    LlmModel eager = MustLoad(tiny, options);
    ASSERT_EQ(eager.runner->info().num_pages, 9);
    options.settings.enforce_eager = false;
    LlmModel model = MustLoad(tiny, options);
    int before = GraphRuns();
    const auto want = Drive(*eager.runner, Requests(), {.chunk = 60});
    EXPECT_EQ(GraphRuns(), before);
    EXPECT_EQ(Drive(*model.runner, Requests(), {.chunk = 60}), want);
    EXPECT_EQ(GraphRuns() > before, Emulated());
    // All layouts are known by now; pages are others.
    before = GraphRuns();
    EXPECT_EQ(Drive(*model.runner, Requests(), {.chunk = 60, .page_seed = 9}),
              want);
    EXPECT_EQ(GraphRuns() > before + 5, Emulated());
    EXPECT_EQ(Drive(*model.runner, {Requests()[4]}, {})[0], want[4]) << "alone";
  }
}

// Llama 4 attends in chunks of 24 positions, too, and in layers between to all.
TEST_F(StepGraphsTest, RunExpertsAndChunks) {
  std::vector<DriverRequest> requests = Requests();
  requests.resize(4);
  for (DriverRequest& request : requests) {
    for (int32_t& token : request.prompt) token %= 64;
  }
  for (const char* folder : {"hf_qwen2moe", "hf_llama4"}) {
    LlmOptions options = Options(true);
    std::vector<std::vector<DriverAnswer>> answers;
    for (const bool eager : {true, false}) {
      options.settings.enforce_eager = eager;
      StatusOr<LlmModel> model =
          LoadLlm(std::string("tests/data/") + folder, options);
      ASSERT_TRUE(model.ok()) << model.status().ToString();
      const int before = GraphRuns();
      answers.push_back(Drive(*model->runner, requests, {.chunk = 20}));
      EXPECT_EQ(GraphRuns() > before, Emulated() && !eager);
      EXPECT_EQ(Drive(*model->runner, {requests[3]}, {})[0], answers[0][3])
          << "alone";
    }
    EXPECT_EQ(answers[0], answers[1]) << folder;
  }
}

// While somebody asks when phases ran, steps are launched kernel by kernel with
// marks between them, and give the same bits.
TEST_F(StepGraphsTest, AreNotUsedWhilePhasesAreTimed) {
  TinyModel tiny;
  tiny.layers = 2;
  LlmModel model = MustLoad(tiny, Options(false));
  const auto want = Drive(*model.runner, Requests(), {.chunk = 60});
  StepTrace trace;
  model.runner->TraceSteps(&trace);
  const int runs = GraphRuns();
  const auto begun = std::chrono::steady_clock::now();
  EXPECT_EQ(Drive(*model.runner, Requests(), {.chunk = 60}), want);
  const auto ended = std::chrono::steady_clock::now();
  EXPECT_EQ(GraphRuns(), runs);

  // Of the last step, whose rows the GPU drew; then the host took them.
  ASSERT_EQ(trace.members.size(), 1u);
  using enum StepPhase;
  const std::pair<StepPhase, int32_t> phases[] = {
      {kEmbed, 0},
      {kQkv, 0},
      {kQkv, 0},
      {kAttention, 0},
      {kAttentionOutput, 0},
      {kGateUp, 0},
      {kDown, 0},
      {kQkv, 1},
      {kQkv, 1},
      {kAttention, 1},
      {kAttentionOutput, 1},  // the rows that are kept
      {kAttentionOutput, 1},
      {kGateUp, 1},
      {kDown, 1},
      {kHead, 1},
      {kSample, 1},
      {kSample, 0}};
  const std::vector<PhaseSpan>& spans = trace.members[0];
  ASSERT_EQ(spans.size(), std::size(phases));
  for (size_t i = 0; i < spans.size(); ++i) {
    EXPECT_EQ(spans[i].phase, phases[i].first) << i;
    EXPECT_EQ(spans[i].layer, phases[i].second) << i;
    EXPECT_LE(spans[i].begin, spans[i].end) << i;
    EXPECT_GE(spans[i].begin, i == 0 ? begun : spans[i - 1].end) << i;
  }
  EXPECT_LT(spans[0].begin, spans.back().begin) << "computing takes time";
  EXPECT_LE(spans.back().end, ended);

  model.runner->TraceSteps(nullptr);
  EXPECT_EQ(Drive(*model.runner, Requests(), {.chunk = 60}), want);
  EXPECT_EQ(GraphRuns() > runs, Emulated());
  EXPECT_EQ(trace.members[0].size(), spans.size()) << "nobody asks any more";
}

TEST_F(StepGraphsTest, AFailedMarkIsNoFailedStep) {
  if (!Emulated()) GTEST_SKIP() << "only the emulated GPU fails when told";
  TinyModel tiny;
  tiny.layers = 1;
  LlmModel model = MustLoad(tiny, Options(false));
  const std::vector<DriverRequest> requests = {Requests()[0]};
  const auto want = Drive(*model.runner, requests, {});
  StepTrace trace;
  model.runner->TraceSteps(&trace);
  FailEvents(true);
  EXPECT_EQ(Drive(*model.runner, requests, {}), want);
  EXPECT_EQ(trace.members.at(0).size(), 1u) << "what the host drew";
  FailEvents(false);
  EXPECT_EQ(Drive(*model.runner, requests, {}), want);
  EXPECT_GT(trace.members.at(0).size(), 5u);
}

// Keeps what each step took.
class Accountant final : public Runner {
 public:
  explicit Accountant(Runner& runner) : runner_(runner) {}
  const RunnerInfo& info() const override { return runner_.info(); }
  void InitSlot(const SlotInit& init) override { runner_.InitSlot(init); }
  void Launch(const StepBatch& batch) override {
    begun_ = std::chrono::steady_clock::now();
    runner_.Launch(batch);
  }
  StatusOr<const StepResult*> Wait() override {
    auto result = runner_.Wait();
    const std::chrono::duration<double> took =
        std::chrono::steady_clock::now() - begun_;
    const StepAccount account = runner_.account();
    double sum = 0;
    for (const double each : account.seconds) sum += each;
    EXPECT_GT(sum, 0) << steps.size();
    EXPECT_LT(sum, took.count()) << steps.size();
    steps.push_back(account);
    return result;
  }

  std::vector<StepAccount> steps;

 private:
  Runner& runner_;
  std::chrono::steady_clock::time_point begun_;
};

// Of the seconds between two marks, those of attention.
double ShareOfAttention(const StepAccount& step) {
  using enum StepPhase;
  const auto of = [&](StepPhase phase) {
    return step.seconds[static_cast<size_t>(phase)];
  };
  double sum = 0;
  for (const StepPhase phase :
       {kEmbed, kQkv, kAttention, kAttentionOutput, kGateUp, kDown, kHead}) {
    EXPECT_GT(of(phase), 0) << kStepPhaseNames[static_cast<size_t>(phase)];
    sum += of(phase);
  }
  return of(kAttention) / sum;
}

// Without a capture, too, all steps have their seconds, by phase as in the last
// step that had marks, which runs as a graph like its neighbours.
TEST_F(StepGraphsTest, SecondsByPhaseAreCountedWithoutATrace) {
  TinyModel tiny;
  tiny.layers = 1;
  LlmModel model = MustLoad(tiny, Options(false));
  std::vector<DriverRequest> requests = {Requests()[0]};
  requests[0].max_tokens = 2 * 64 + 2;
  requests[0].sampling.logprobs = false;  // drawn on the device
  requests[0].sampling.top_logprobs = 0;
  Accountant accountant(*model.runner);
  const int before = GraphRuns();
  Drive(accountant, requests, {});
  const std::vector<StepAccount>& steps = accountant.steps;
  ASSERT_EQ(steps.size(), 2 * 64 + 2u);
  EXPECT_EQ(GraphRuns(), before + (Emulated() ? 2 * 64 : 0))
      << "all behind the first of a size";
  // A share changes where a step had marks: behind the prompt the first, then
  // one in 64, first captured and then run again.
  std::vector<size_t> changes;
  double share = 0;
  for (size_t i = 0; i < steps.size(); ++i) {
    const double now = ShareOfAttention(steps[i]);
    if (std::abs(now - share) > 1e-9) changes.push_back(i);
    share = now;
  }
  EXPECT_EQ(changes, (std::vector<size_t>{0, 1, 65, 129}));
}

TEST_F(StepGraphsTest, StepsWithoutEventsHaveNoSeconds) {
  if (!Emulated()) GTEST_SKIP() << "only the emulated GPU fails when told";
  TinyModel tiny;
  tiny.layers = 1;
  LlmModel model = MustLoad(tiny, Options(false));
  const std::vector<DriverRequest> requests = {Requests()[1]};
  const auto want = Drive(*model.runner, requests, {});
  FailEvents(true);
  EXPECT_EQ(Drive(*model.runner, requests, {}), want);
  EXPECT_EQ(model.runner->account().seconds[0], 0);
}

TEST_F(StepGraphsTest, AFailedCaptureIsNoFailedStep) {
  if (!Emulated()) GTEST_SKIP() << "only the emulated GPU fails when told";
  TinyModel tiny;
  tiny.layers = 1;
  LlmModel eager = MustLoad(tiny, Options(true));
  const auto want = Drive(*eager.runner, Requests(), {.chunk = 60});
  LlmModel model = MustLoad(tiny, Options(false));
  const int before = GraphRuns();
  FailCaptures(true);
  EXPECT_EQ(Drive(*model.runner, Requests(), {.chunk = 60}), want);
  EXPECT_EQ(GraphRuns(), before);
  FailCaptures(false);
  EXPECT_EQ(Drive(*model.runner, Requests(), {.chunk = 60}), want);
  EXPECT_EQ(GraphRuns(), before) << "it does not try again";
}

// ---- the padding ----

// One row for each sequence, at these positions.
StepBatch Decodes(const StepLimits& limits, std::span<const int32_t> positions,
                  int32_t rows_each = 1) {
  StepBatch batch(limits);
  for (const int32_t first : positions) {
    const int32_t seq = batch.num_seqs++;
    const auto s = static_cast<size_t>(seq);
    for (int32_t i = 0; i < rows_each; ++i) {
      const auto row = static_cast<size_t>(batch.num_tokens++);
      batch.tokens()[row] = 5;
      batch.positions()[row] = first + i;
      batch.sample_rows()[row] = static_cast<int32_t>(row);
      batch.sample_seqs()[row] = seq;
      batch.score_ids()[row] = kSample;
    }
    batch.q_start()[s + 1] = batch.num_tokens;
    batch.kv_len()[s] = first + rows_each;
    for (int32_t i = 0; i * kPageTokens < batch.kv_len()[s]; ++i) {
      batch.pages(seq)[static_cast<size_t>(i)] = PageId{40 * seq + i};
    }
  }
  batch.num_samples = batch.num_tokens;
  return batch;
}

class StepMessageTest : public testing::Test {
 protected:
  StepMessageTest()
      : message_(Shape(), limits_, cuda::KvFormat::kF16, 64, true) {
    message_.AddWindow(0);
    out_.resize(static_cast<size_t>(message_.most_bytes()) / 4);
  }
  static BackendShape Shape() {
    BackendShape shape;
    shape.heads = 4;
    shape.kv_heads = 2;
    return shape;
  }
  std::vector<int64_t> LayoutOf(const StepBatch& batch,
                                std::span<const cuda::DrawRow> draws = {}) {
    message_.Fill(batch, draws, out_.data());
    return message_.padded ? message_.Layout() : std::vector<int64_t>{};
  }

  const StepLimits limits_ = {.max_tokens = 100,
                              .max_seqs = 40,
                              .max_pages_per_seq = 40,
                              .max_samples = 39};
  StepMessage message_;
  std::vector<int32_t> out_;
};

TEST_F(StepMessageTest, LayoutsComeAgain) {
  const std::vector<int32_t> few(17, 100), more(22, 3);
  const auto layout = LayoutOf(Decodes(limits_, few));
  EXPECT_EQ(message_.num_rows, 24);
  EXPECT_EQ(LayoutOf(Decodes(limits_, more)), layout);
  EXPECT_EQ(LayoutOf(Decodes(limits_, std::vector<int32_t>(8, 3), 3)), layout)
      << "draft tokens are rows as others";
  EXPECT_NE(LayoutOf(Decodes(limits_, std::vector<int32_t>(25, 3))), layout);
  // Where some draw there is one more kernel.
  const std::vector<cuda::DrawRow> draws(22), fewer(17);
  const auto drawn = LayoutOf(Decodes(limits_, more), draws);
  EXPECT_NE(drawn, layout);
  EXPECT_EQ(LayoutOf(Decodes(limits_, few), fewer), drawn);
  // A few rows behind many keys: 2 and 3 splits, then 4 and 4.
  const auto split = LayoutOf(Decodes(limits_, std::vector{300, 600}));
  EXPECT_EQ(message_.work(0).num_items, 8);
  EXPECT_EQ(message_.work(0).num_merges, 2);
  EXPECT_EQ(LayoutOf(Decodes(limits_, std::vector{900, 1000})), split);
  EXPECT_NE(LayoutOf(Decodes(limits_, std::vector{900, 1100})), split);
}

TEST_F(StepMessageTest, PaddingDoesNothing) {
  message_.Fill(Decodes(limits_, std::vector{300, 600, 7}), {}, out_.data());
  ASSERT_TRUE(message_.padded);
  EXPECT_EQ(message_.num_rows, 4);
  EXPECT_EQ(message_.num_samples, 4);
  const auto at = [&](int64_t place, int32_t i) {
    return out_[static_cast<size_t>(place + i)];
  };
  EXPECT_EQ(at(message_.row_pages, 2), 80);
  EXPECT_EQ(at(message_.row_pages, 3), -1);
  EXPECT_EQ(at(message_.tokens, 3), 0);
  EXPECT_EQ(at(message_.positions, 3), 0);
  EXPECT_EQ(at(message_.rows_by_role, 3), 3);
  const StepMessage::Work& work = message_.work(0);
  const auto* items =
      reinterpret_cast<const cuda::AttendItem*>(out_.data() + work.items);
  EXPECT_EQ(work.num_items, 8);
  EXPECT_EQ(items[5].num_rows, 1);
  EXPECT_EQ(items[6].num_rows, 0);
  EXPECT_EQ(items[7].num_rows, 0);
  const auto* merges =
      reinterpret_cast<const cuda::AttendMerge*>(out_.data() + work.merges);
  EXPECT_EQ(work.num_merges, 4);
  EXPECT_EQ(merges[0].num_partials, 3);  // the longest first
  EXPECT_EQ(merges[1].num_partials, 2);
  EXPECT_EQ(merges[2].num_partials, 0);
  EXPECT_EQ(at(message_.pages, 0), 0);
  EXPECT_EQ(at(message_.pages, 5), 40);
}

TEST_F(StepMessageTest, OtherStepsAreNotPadded) {
  const std::vector<int32_t> positions = {3, 9, 4};
  const auto is_padded = [&](auto change) {
    StepBatch batch = Decodes(limits_, positions);
    change(batch);
    message_.Fill(batch, {}, out_.data());
    if (!message_.padded) {
      EXPECT_EQ(message_.num_rows, 3);
      EXPECT_EQ(message_.num_samples, batch.num_samples);
    }
    return message_.padded;
  };
  EXPECT_TRUE(is_padded([](StepBatch&) {}));
  EXPECT_FALSE(is_padded([](StepBatch& b) { b.prompt_rows()[1] = 1; }));
  EXPECT_FALSE(is_padded([](StepBatch& b) { b.num_samples = 2; }));
  EXPECT_FALSE(is_padded([](StepBatch& b) { b.num_copies = 1; }));
  // Limits stay limits: 33 rows would be 40.
  EXPECT_FALSE(LayoutOf(Decodes(limits_, std::vector<int32_t>(33, 1))).empty());
  EXPECT_EQ(message_.num_rows, 39);
  StepMessage eager(Shape(), limits_, cuda::KvFormat::kF16, 64, false);
  eager.Fill(Decodes(limits_, positions), {}, out_.data());
  EXPECT_FALSE(eager.padded);
}

}  // namespace
}  // namespace millrace::models
