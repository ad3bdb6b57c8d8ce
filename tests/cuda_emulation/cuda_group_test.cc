// Models that are cut among GPUs against the same models on one: ranks are
// threads, GPUs are emulated, and a library stands in for NCCL.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <tuple>

#include "models/gpu/cuda_context.h"
#include "models/llm/cuda/nccl_library.h"
#include "models/llm/group_load.h"
#include "tests/cuda_emulation/scored_logits.h"
#include "tests/data/tiny_gguf.h"
#include "tests/support/temp_path.h"
#include "tests/unit/models/llm/rank_threads.h"
#include "tests/unit/models/llm/step_driver.h"

namespace millrace::models {
namespace {

// The environment that a test wants, as it was before when it ends.
class Environment {
 public:
  ~Environment() {
    for (const auto& [name, value] : before_) {
      if (value.has_value()) {
        setenv(name.c_str(), value->c_str(), 1);
      } else {
        unsetenv(name.c_str());
      }
    }
  }
  void Set(const std::string& name, const std::string& value) {
    const char* before = std::getenv(name.c_str());
    before_.try_emplace(name, before == nullptr
                                  ? std::optional<std::string>()
                                  : std::optional<std::string>(before));
    setenv(name.c_str(), value.c_str(), 1);
  }

 private:
  std::map<std::string, std::optional<std::string>> before_;
};

class CudaGroup : public testing::Test {
 protected:
  CudaGroup() {
    environment_.Set("MILLRACE_CUDA_MODULE", EMULATED_MODULE);
    environment_.Set("MILLRACE_NCCL", FAKE_NCCL);
    SetDevices(8);
  }
  ~CudaGroup() override { SetDevices(1); }

  void SetDevices(int count) {
    environment_.Set("MILLRACE_EMULATED_DEVICES", std::to_string(count));
    EXPECT_TRUE(OpenCudaModule().ok());  // which reads it
  }
  static LlmOptions Options(const std::string& compute, bool eager = false) {
    LlmOptions options = TinyOptions(1);
    options.device = "cuda";
    options.settings.max_model_len = 128;
    options.settings.compute_dtype = compute;
    options.settings.kv_cache_dtype = compute == "f32" ? "f32" : "f16";
    options.settings.enforce_eager = eager;
    options.settings.max_num_batched_tokens = 64;
    options.settings.max_num_seqs = 5;
    return options;
  }

  Environment environment_;
};

// Past a page, and beyond windows.
std::vector<std::vector<float>> LogitsOfAll(LlmModel& model, int32_t chunk) {
  return AllLogits(model, SomeTokens(66, 240), chunk);
}

class CudaGroupFamily
    : public CudaGroup,
      public testing::WithParamInterface<std::tuple<const char*, int>> {};

// Sums in another order: a few roundings of 2^-24 in each of up to 100 terms
// and a handful of layers.
TEST_P(CudaGroupFamily, HasTheLogitsOfOneGpu) {
  const std::string path = "tests/data/" + std::string(std::get<0>(GetParam()));
  StatusOr<LlmModel> one = LoadLlm(path, Options("f32"));
  ASSERT_TRUE(one.ok()) << one.status().ToString();
  RankThreads ranks(std::get<1>(GetParam()));
  StatusOr<LlmModel> model = ranks.Load(path, Options("f32"));
  ASSERT_TRUE(model.ok()) << model.status().ToString();
  const auto logits = LogitsOfAll(*model, 64);
  EXPECT_LT(Difference(logits, LogitsOfAll(*one, 64)), 2e-5);
  // The library here adds in the order of ranks, whatever the steps are.
  if (path.ends_with("llama")) {
    EXPECT_EQ(LogitsOfAll(*model, 23), logits);
  }
}

// A plain one; biases of rank 0 alone and positions; norms behind branches and
// a soft-cap; a scaled residual; norms of heads; a tied head.
INSTANTIATE_TEST_SUITE_P(
    Folders, CudaGroupFamily,
    testing::Values(std::tuple("hf_llama", 2), std::tuple("hf_gpt2", 2),
                    std::tuple("hf_gpt2", 4), std::tuple("hf_gemma2", 2),
                    std::tuple("hf_granite", 2), std::tuple("hf_qwen3", 2)),
    [](const auto& each) {
      return std::get<0>(each.param) + std::string("_of_") +
             std::to_string(std::get<1>(each.param));
    });

std::string Tiny(GgmlType type) {
  const std::string path = TempPath("cuda_group.gguf");
  TinyModel tiny;
  tiny.type = type;
  tiny.tied = type == GgmlType::kQ4_1;
  tiny.ffn = 128;
  tiny.head_dim = 32;
  EXPECT_TRUE(WriteTinyGguf(tiny, path));
  return path;
}

// Activations in int8, and keys in f16, may round to their other neighbour
// where a sum differs in its last bit: 1/127 of the greatest of 32, as on
// cores.
TEST_F(CudaGroup, QuantisedWeightsAreNearOneGpuAndTheSameOnEveryRun) {
  for (const GgmlType type : {GgmlType::kQ8_0, GgmlType::kQ4_1}) {
    const std::string path = Tiny(type);
    StatusOr<LlmModel> one = LoadLlm(path, Options("auto"));
    ASSERT_TRUE(one.ok()) << one.status().ToString();
    const auto expected = LogitsOfAll(*one, 64);
    std::vector<std::vector<float>> first;
    for (int run = 0; run < 2; ++run) {
      RankThreads ranks(2);
      StatusOr<LlmModel> model = ranks.Load(path, Options("auto"));
      ASSERT_TRUE(model.ok()) << model.status().ToString();
      const auto logits = LogitsOfAll(*model, 64);
      EXPECT_LT(Difference(logits, expected), 2e-2);
      if (run == 0) first = logits;
      EXPECT_EQ(logits, first);
    }
    // A part of the weights is on each.
    RankThreads ranks(2);
    StatusOr<LlmModel> model = ranks.Load(path, Options("auto"));
    ASSERT_TRUE(model.ok()) << model.status().ToString();
    EXPECT_LT(model->info.weight_bytes, one->info.weight_bytes);
    EXPECT_EQ(2 * model->info.kv_bytes_per_token, one->info.kv_bytes_per_token);
  }
}

std::vector<DriverRequest> Requests() {
  std::vector<DriverRequest> requests;
  for (int32_t i = 0; i < 5; ++i) {
    DriverRequest& request = requests.emplace_back();
    for (int32_t t = 0; t < 3 + 11 * i; ++t) {
      request.prompt.push_back(3 + (i + t * 37) % 240);
    }
    request.max_tokens = 6 + i;
    request.sampling.seed = static_cast<uint64_t>(i);
    // Greedy, drawn on the GPU, drawn on the host: steps of all three.
    request.sampling.temperature = i == 0 ? 0 : 1;
    request.sampling.logprobs = i == 3;
  }
  return requests;
}

TEST_F(CudaGroup, RequestsRunTheSameHoweverTheyAreBatchedAndLaunched) {
  const std::string path = Tiny(GgmlType::kQ4_1);
  std::vector<DriverAnswer> expected;
  for (const bool eager : {true, false}) {
    RankThreads ranks(2);
    StatusOr<LlmModel> model = ranks.Load(path, Options("auto", eager));
    ASSERT_TRUE(model.ok()) << model.status().ToString();
    const auto together = Drive(*model->runner, Requests(), {.chunk = 64});
    if (eager) expected = together;
    EXPECT_EQ(together, expected) << eager;
    EXPECT_EQ(Drive(*model->runner, Requests(),
                    {.chunk = 5, .page_seed = 3, .preempt_every = 4}),
              expected);
    EXPECT_EQ(Drive(*model->runner, {Requests()[2]}, {.chunk = 64})[0],
              expected[2]);
  }
}

// Greedy steps, then drawn ones: rank 0 alone knows of draws.
TEST_F(CudaGroup, RanksRunTheSameStepsAsGraphs) {
  RankThreads ranks(2);
  StatusOr<LlmModel> model = ranks.Load(Tiny(GgmlType::kQ8_0), Options("auto"));
  ASSERT_TRUE(model.ok()) << model.status().ToString();
  void* module = dlopen(EMULATED_MODULE, RTLD_NOW | RTLD_NOLOAD);
  const auto graph_runs = reinterpret_cast<int (*)()>(
      dlsym(module, "millrace_emulated_graph_runs"));
  const int before = graph_runs();
  for (const float temperature : {0.0f, 1.0f}) {
    DriverRequest request;
    request.prompt = {5, 9};
    request.max_tokens = 7;
    request.sampling.temperature = temperature;
    Drive(*model->runner, {request}, {});
  }
  // 12 steps follow the two prompts. Each rank launches the first one kernel by
  // kernel and the others as graphs, whatever is drawn.
  EXPECT_EQ(graph_runs() - before, 2 * 11);
}

// ---- what goes wrong ----

StatusOr<LlmModel> LoadBy(RankThreads& ranks, const LlmOptions& options) {
  StatusOr<LlmModel> model = ranks.Load(Tiny(GgmlType::kQ8_0), options);
  return model;
}

std::string Refusal(const LlmOptions& options, Status* other = nullptr) {
  RankThreads ranks(2);
  const StatusOr<LlmModel> model = LoadBy(ranks, options);
  ranks.Join();
  EXPECT_FALSE(model.ok());
  if (other != nullptr) *other = ranks.ends()[1];
  return std::string(model.status().message());
}

TEST_F(CudaGroup, NcclThatCannotBeUsedIsOneSentence) {
  environment_.Set("MILLRACE_NCCL", "/nonexistent/libnccl.so.2");
  EXPECT_NE(Refusal(Options("auto")).find("needs NCCL, which cannot be opened"),
            std::string::npos);
  environment_.Set("MILLRACE_NCCL", EMULATED_MODULE);
  EXPECT_NE(Refusal(Options("auto")).find("is no NCCL, it has no function"),
            std::string::npos);
  environment_.Set("MILLRACE_NCCL", FAKE_NCCL);
  environment_.Set("MILLRACE_FAKE_NCCL_VERSION", "21104");
  const std::string old = Refusal(Options("auto"));
  EXPECT_NE(old.find("NCCL 2.11.4 ("), std::string::npos) << old;
  EXPECT_NE(old.find("is too old for tensor_parallel_size above 1, 2.18.0"),
            std::string::npos)
      << old;
}

TEST_F(CudaGroup, ARankWithoutItsGpuIsEverybodysFailure) {
  SetDevices(1);
  Status other;
  const std::string refusal = Refusal(Options("auto"), &other);
  EXPECT_NE(refusal.find("rank 1: cuda:1 cannot serve: there are 1 GPUs"),
            std::string::npos)
      << refusal;
  EXPECT_FALSE(other.ok());
}

TEST_F(CudaGroup, ARankThatCannotConnectBreaksTheLoad) {
  environment_.Set("MILLRACE_FAKE_NCCL_FAIL", "init@1");
  environment_.Set("MILLRACE_FAKE_NCCL_PATIENCE_MS", "300");
  Status other;
  Refusal(Options("auto"), &other);
  EXPECT_EQ(other.code(), StatusCode::kUnavailable);
  EXPECT_NE(other.message().find("NCCL failed to connect the GPU at rank 1 of "
                                 "the tensor-parallel group: system error (as "
                                 "the test wants it)"),
            std::string_view::npos)
      << other.ToString();
}

// Found before the ranks connect, so none of them waits for the timeout.
TEST_F(CudaGroup, ARankWithoutMemoryToConnectIsEverybodysFailure) {
  environment_.Set("MILLRACE_EMULATED_BYTES", "64000000");
  const StatusOr<const cuda::Module*> module = OpenCudaModule();
  ASSERT_TRUE(module.ok()) << module.status().ToString();
  const auto context = CudaContext::Open(*module, 1, {});
  ASSERT_TRUE(context.ok()) << context.status().ToString();
  const auto others = (*context)->Allocate(50'000'000, "another program");
  ASSERT_TRUE(others.ok()) << others.status().ToString();
  LlmOptions options = Options("auto");
  options.settings.tensor_parallel_timeout_ms = 3000;
  Status other;
  const std::string refusal = Refusal(options, &other);
  EXPECT_NE(refusal.find("rank 1: cuda:1 has no memory for NCCL's first sums"),
            std::string::npos)
      << refusal;
  EXPECT_EQ(other.code(), StatusCode::kResourceExhausted) << other.ToString();
  environment_.Set("MILLRACE_EMULATED_BYTES", "1073741824");
}

// A fault of the device once the others wait in NCCL cannot be told them by a
// meeting: UNAVAILABLE ends the rank without one.
TEST_F(CudaGroup, AFaultWhileRanksConnectBreaksTheGroup) {
  auto groups = MakeLocalGroup(1);
  const StatusOr<std::unique_ptr<Device>> device =
      OpenDevice("cuda:0", Options("auto").settings, "auto", {});
  ASSERT_TRUE(device.ok()) << device.status().ToString();
  ASSERT_TRUE((*device)->Join(std::move(groups[0])).ok());
  const StatusOr<GroupKey> key = (*device)->NewGroupKey();
  ASSERT_TRUE(key.ok()) << key.status().ToString();
  void* module = dlopen(EMULATED_MODULE, RTLD_NOW | RTLD_NOLOAD);
  reinterpret_cast<void (*)(int)>(dlsym(module, "millrace_emulated_fail_wait"))(
      0);
  const Status status = (*device)->Connect(*key);
  EXPECT_EQ(status.code(), StatusCode::kUnavailable) << status.ToString();
  EXPECT_NE(status.message().find("an emulated fault"), std::string_view::npos)
      << status.ToString();
}

// A connection that never comes about ends with the timeout.
TEST_F(CudaGroup, AConnectionThatHangsEndsWithTheTimeout) {
  environment_.Set("MILLRACE_FAKE_NCCL_FAIL", "stop@1:3");
  LlmOptions options = Options("auto");
  options.settings.tensor_parallel_timeout_ms = 300;
  environment_.Set("MILLRACE_FAKE_NCCL_PATIENCE_MS", "100");
  EXPECT_NE(Refusal(options).find("within 300 ms at rank 0"),
            std::string::npos);
}

// Sums of a load, one for each size.
constexpr int kSumsOfALoad = 8;

class CudaGroupFailure : public CudaGroup,
                         public testing::WithParamInterface<const char*> {};

// In the third step.
TEST_P(CudaGroupFailure, EndsTheStepAtBothRanks) {
  const std::string what = GetParam();
  const bool by_other = what.find("@1") != std::string::npos;
  const bool gathers = what.starts_with("all_gather");
  environment_.Set(
      "MILLRACE_FAKE_NCCL_FAIL",
      what + ":" + std::to_string(kSumsOfALoad + (gathers ? 3 : 10)));
  environment_.Set("MILLRACE_FAKE_NCCL_PATIENCE_MS", "2000");
  LlmOptions options = Options("auto");
  options.settings.tensor_parallel_timeout_ms = 10000;
  Status broken;
  options.on_group_broken = [&](const Status& status) { broken = status; };
  RankThreads ranks(2);
  StatusOr<LlmModel> model = LoadBy(ranks, options);
  ASSERT_TRUE(model.ok()) << model.status().ToString();
  StepBatch batch(model->runner->info().limits);
  batch.num_tokens = batch.num_seqs = batch.num_samples = 1;
  batch.q_start()[1] = 1;
  batch.kv_len()[0] = 1;
  batch.pages(0)[0] = PageId{0};
  batch.score_ids()[0] = 1;  // scored, so no slot is needed
  int steps = 0;
  Status ended;
  while (ended.ok() && steps < 50) {
    batch.prompt_rows()[0] = 1;  // launched kernel by kernel
    model->runner->Launch(batch);
    ended = model->runner->Wait().status();
    ++steps;
  }
  EXPECT_EQ(steps, 3);
  EXPECT_EQ(ended.code(), StatusCode::kUnavailable) << ended.ToString();
  EXPECT_EQ(broken.message(), ended.message());
  EXPECT_NE(ended.message().find(by_other ? "not end within 10000 ms at rank 0"
                                          : "at rank 0"),
            std::string_view::npos)
      << ended.ToString();
  // The next one fails at once.
  model->runner->Launch(batch);
  EXPECT_EQ(model->runner->Wait().status().message(), ended.message());
  *model = LlmModel{};
  ranks.Join();
  EXPECT_EQ(ranks.ends()[1].code(), StatusCode::kUnavailable);
  EXPECT_NE(ranks.ends()[1].message().find("rank 1"), std::string_view::npos)
      << ranks.ends()[1].ToString();
}

INSTANTIATE_TEST_SUITE_P(Calls, CudaGroupFailure,
                         testing::Values("all_reduce@0", "all_reduce@1",
                                         "all_gather@1", "stop@0", "stop@1"),
                         [](const auto& each) {
                           std::string name = each.param;
                           name.replace(name.find('@'), 1, "_at_");
                           return name;
                         });

TEST_F(CudaGroup, EachRankHasAGpuOfItsOwn) {
  const auto groups = MakeLocalGroup(2);
  const auto device = [&](const std::string& names, size_t rank) {
    const StatusOr<std::string> own = DeviceOfRank(names, *groups[rank]);
    return own.ok() ? *own : std::string(own.status().message());
  };
  EXPECT_EQ(device("cpu", 1), "cpu");
  EXPECT_EQ(device("cuda", 0), "cuda:0");
  EXPECT_EQ(device("cuda:all", 1), "cuda:1");
  EXPECT_EQ(device("cuda:5,cuda:3", 0), "cuda:5");
  EXPECT_EQ(device("cuda:5,cuda:3", 1), "cuda:3");
  EXPECT_EQ(device("cuda:0", 1),
            "device names 1 GPU, but 2 ranks run on this machine; name one for "
            "each, or say cuda: each takes the GPU of its number");
  EXPECT_EQ(device("cuda:1,cuda:1", 0),
            "device names cuda:1 twice; name another GPU for each rank");
  for (const char* wrong : {"auto", "cuda:1,cpu", "cuda:1,", "cuda:x", ""}) {
    EXPECT_NE(device(wrong, 0).find("device is '"), std::string::npos) << wrong;
  }
}

// 25 MB of weights, and half of that at each rank.
TEST_F(CudaGroup, MemoryIsPlannedByTheRanksOwnPart) {
  TinyModel tiny;
  tiny.type = GgmlType::kF32;
  tiny.ffn = 16384;
  const std::string path = TempPath("cuda_group_memory.gguf");
  ASSERT_TRUE(WriteTinyGguf(tiny, path));
  environment_.Set("MILLRACE_EMULATED_BYTES", "60000000");
  SetDevices(8);
  LlmOptions options = Options("f32");
  options.settings.kv_cache_memory_bytes = 0;
  options.settings.gpu_memory_utilization = "0.4";
  const StatusOr<LlmModel> one = LoadLlm(path, options);
  EXPECT_EQ(one.status().code(), StatusCode::kResourceExhausted)
      << one.status().ToString();
  RankThreads ranks(2);
  const StatusOr<LlmModel> model = ranks.Load(path, options);
  EXPECT_TRUE(model.ok()) << model.status().ToString();
  environment_.Set("MILLRACE_EMULATED_BYTES", "1073741824");
  EXPECT_EQ(std::remove(path.c_str()), 0);
}

}  // namespace
}  // namespace millrace::models
