// LoRA adapters on a GPU, or on the CPU that emulates one, beside what peft
// gives and beside the engine on cores: several in a batch, loaded and unloaded
// between steps, and what is said where there is no memory.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "models/cuda/module_api.h"
#include "models/gpu/cuda_context.h"
#include "models/llm/cuda/cuda_lora.h"
#include "models/llm/cuda/lora_step.h"
#include "models/llm/lora.h"
#include "models/llm/teacher_forcing.h"
#include "tests/cuda_emulation/test_module.h"
#include "tests/support/temp_path.h"
#include "tests/unit/models/llm/step_driver.h"

namespace millrace::models {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

constexpr const char* kData = "tests/data/";

class LoraOnGpu : public testing::Test {
 protected:
  LoraOnGpu() { setenv("MILLRACE_CUDA_MODULE", ModuleFile(), 1); }
  ~LoraOnGpu() override {
    SetBytes(int64_t{1} << 30);
    unsetenv("MILLRACE_EMULATED_BYTES");
    unsetenv("MILLRACE_CUDA_MODULE");
    fs::remove_all(stronger_);
  }

  static LlmOptions Options(const char* device, const char* compute) {
    LlmOptions options = TinyOptions(1);
    options.device = device;
    options.settings.compute_dtype = compute;
    options.settings.kv_cache_dtype =
        compute == std::string("f32") ? "f32" : "f16";
    options.settings.max_model_len = 128;
    options.settings.max_num_batched_tokens = 64;
    options.settings.max_num_seqs = 6;
    return options;
  }
  static LlmModel MustLoad(const std::string& base, const LlmOptions& options) {
    LlmModel model = Must(LoadLlm(kData + base, options));
    CHECK(model.lora_base != nullptr, "it takes adapters");
    return model;
  }
  using Adapter = std::shared_ptr<const LoraAdapter>;
  static Adapter MustLoadLora(const std::string& path, const LlmModel& model) {
    return Must(LoadLora(path, *model.lora_base, "named"));
  }
  // The adapter of tests/data with another scale, so that its rows differ.
  const std::string& Stronger() {
    if (fs::exists(stronger_)) return stronger_;
    fs::copy(std::string(kData) + "lora_llama", stronger_,
             fs::copy_options::recursive);
    const std::string path = stronger_ + "/adapter_config.json";
    std::ifstream in(path);
    Json config = Json::parse(in);
    config["lora_alpha"] = 3 * config["lora_alpha"].get<double>();
    std::ofstream(path) << config;
    return stronger_;
  }

  static void SetBytes(int64_t bytes) {
    setenv("MILLRACE_EMULATED_BYTES", std::to_string(bytes).c_str(), 1);
    EXPECT_TRUE(OpenCudaModule().ok());  // which reads it
  }
  static int64_t FreeBytes() {
    cuda::Device device;
    const cuda::Module* const module = Must(OpenCudaModule());
    module->open(0, &device);
    const int64_t bytes = device.free_bytes;
    module->close(&device);
    return bytes;
  }
  // A real GPU does not count them: 0.
  static int GraphRuns() {
    return Emulated() ? EmulatedFunction<int()>("graph_runs")() : 0;
  }

  // With an adapter or without, prompts and completions, greedy and drawn.
  static std::vector<DriverRequest> Requests(
      const std::vector<Adapter>& adapters) {
    std::vector<DriverRequest> requests;
    for (size_t i = 0; i < 6; ++i) {
      DriverRequest& request = requests.emplace_back();
      const auto n = static_cast<int32_t>(i);
      for (int32_t k = 0; k < 3 + 3 * n; ++k) {
        request.prompt.push_back(3 + (11 * n + 5 * k) % 250);
      }
      request.max_tokens = 5;
      request.sampling.temperature = i % 2 == 0 ? 0.0f : 0.8f;
      request.sampling.seed = i;
      request.sampling.logprobs = i % 3 == 0;
      request.adapter = adapters[i % adapters.size()];
    }
    return requests;
  }

  static std::vector<DriverRequest> Few(const std::vector<Adapter>& adapters) {
    std::vector<DriverRequest> requests = Requests(adapters);
    requests.resize(2);
    return requests;
  }

 private:
  const std::string stronger_ = TempPath("stronger_adapter");
};

// Logits that peft gave: in f32 sums differ in their order (1e-4, as on cores).
// With `auto` activations and adapters are in f16 or bf16, keys and values in
// f16: each rounds by 2^-12 to 2^-9, some ten of them one after the other.
TEST_F(LoraOnGpu, LogitsAreThoseOfPeft) {
  struct Case {
    const char* adapter;
    const char* base;
    const char* compute;
  };
  for (const Case& c : {Case{"lora_llama", "hf_llama_yarn", "f32"},
                        Case{"lora_llama", "hf_llama_yarn", "auto"},
                        Case{"lora_phi3", "hf_phi3", "f32"},
                        Case{"lora_phi3", "hf_phi3", "auto"},
                        Case{"lora_gpt2", "hf_gpt2", "f32"},
                        Case{"lora_qwen2", "hf_qwen2", "f32"}}) {
    SCOPED_TRACE(std::string(c.adapter) + " " + c.compute);
    std::ifstream in(std::string(kData) + c.adapter + "/golden.json");
    const Json golden = Json::parse(in);
    const auto tokens = golden["tokens"].get<std::vector<int32_t>>();
    const bool f32 = c.compute == std::string("f32");
    LlmModel model = MustLoad(c.base, Options("cuda:0", c.compute));
    const Adapter adapter = MustLoadLora(kData + std::string(c.adapter), model);
    EXPECT_GT(adapter->num_bytes(), 0);
    int seen = 0;
    double error = 0, size = 0;
    const Status status = ScoreTokens(
        model, tokens, 24,
        [&](int32_t position, std::span<const float> logits) {
          const auto row = golden["logits"].find(std::to_string(position));
          if (row == golden["logits"].end()) return;
          ++seen;
          for (size_t i = 0; i < logits.size(); ++i) {
            const double want = (*row)[i].get<double>();
            error += std::pow(logits[i] - want, 2);
            size += std::pow(want, 2);
            if (!f32) continue;
            ASSERT_NEAR(logits[i], want, 1e-4)
                << "position " << position << ", token " << i;
          }
        },
        0, adapter);
    ASSERT_TRUE(status.ok()) << status.ToString();
    EXPECT_GE(seen, 3);
    EXPECT_LT(std::sqrt(error / size), 1e-2);
  }
}

// Two adapters and none in one batch: the tokens of the
// engine on cores, and the same bits alone, together, in chunks, preempted,
// kernel by kernel and as CUDA graphs.
TEST_F(LoraOnGpu, AnswersDoNotDependOnTheBatch) {
  const std::string weak = std::string(kData) + "lora_llama";
  for (const char* compute : {"f32", "auto"}) {
    const LlmOptions options = Options("cuda:0", compute);
    LlmModel model = MustLoad("hf_llama_yarn", options);
    const auto requests = Requests(
        {nullptr, MustLoadLora(weak, model), MustLoadLora(Stronger(), model)});
    std::vector<DriverAnswer> alone;
    for (const DriverRequest& request : requests) {
      alone.push_back(Drive(*model.runner, {request}, {})[0]);
    }
    DriverRequest plain = requests[2];
    plain.adapter = nullptr;
    EXPECT_NE(Drive(*model.runner, {plain}, {})[0].ids, alone[2].ids);
    plain.adapter = requests[1].adapter;
    EXPECT_NE(Drive(*model.runner, {plain}, {})[0].ids, alone[2].ids)
        << "one adapter in place of another would not show";

    int before = GraphRuns();
    for (const DriverOptions& way :
         {DriverOptions{},
          DriverOptions{.chunk = 5, .page_seed = 3, .preempt_every = 5}}) {
      const auto together = Drive(*model.runner, requests, way);
      for (size_t i = 0; i < requests.size(); ++i) {
        EXPECT_EQ(together[i], alone[i]) << compute << " request " << i;
      }
    }
    EXPECT_EQ(GraphRuns() > before, Emulated());

    LlmOptions without = options;
    without.settings.enforce_eager = true;
    LlmModel eager = MustLoad("hf_llama_yarn", without);
    before = GraphRuns();
    const auto launched = Drive(*eager.runner,
                                Requests({nullptr, MustLoadLora(weak, eager),
                                          MustLoadLora(Stronger(), eager)}),
                                {});
    EXPECT_EQ(GraphRuns(), before);
    for (size_t i = 0; i < requests.size(); ++i) {
      EXPECT_EQ(launched[i], alone[i]) << compute << " request " << i;
    }
    if (compute != std::string("f32")) continue;
    LlmModel cores = MustLoad("hf_llama_yarn", Options("cpu", compute));
    const auto on_cores = Drive(*cores.runner,
                                Requests({nullptr, MustLoadLora(weak, cores),
                                          MustLoadLora(Stronger(), cores)}),
                                {});
    for (size_t i = 0; i < requests.size(); ++i) {
      EXPECT_EQ(alone[i].ids, on_cores[i].ids) << "request " << i;
    }
  }
}

// Adapters come and go while the model serves; the memory of one that has gone
// is free, though its slot was not used since.
TEST_F(LoraOnGpu, ComeAndGoBetweenSteps) {
  const std::string weak = std::string(kData) + "lora_llama";
  LlmModel model = MustLoad("hf_llama_yarn", Options("cuda:0", "auto"));
  // A real GPU gives memory in larger pieces, and others have some of it.
  const int64_t before = FreeBytes();
  const auto expect_free = [&](int64_t bytes) {
    if (Emulated()) {
      EXPECT_EQ(FreeBytes(), bytes);
    }
  };
  Adapter first = MustLoadLora(weak, model);
  expect_free(before - first->num_bytes());
  const auto one = Drive(*model.runner, Few({first}), {});
  const Adapter second = MustLoadLora(Stronger(), model);
  const auto two = Drive(*model.runner, Few({second}), {});
  EXPECT_NE(one, two);
  // The same captured graph, with the factors of the adapters of this step.
  EXPECT_EQ(Drive(*model.runner, Few({first}), {}), one);
  first = nullptr;
  expect_free(before - second->num_bytes());
  const Adapter again = MustLoadLora(weak, model);
  EXPECT_EQ(Drive(*model.runner, Few({again}), {}), one);
  EXPECT_EQ(Drive(*model.runner, Few({second}), {}), two);
}

TEST_F(LoraOnGpu, SaysThatThereIsNoMemory) {
  if (!Emulated()) GTEST_SKIP() << "of an emulated size";
  const std::string path = std::string(kData) + "lora_llama";
  LlmModel model = MustLoad("hf_llama_yarn", Options("cuda:0", "auto"));
  const Adapter first = MustLoadLora(path, model);
  const auto answers = Drive(*model.runner, Few({first, nullptr}), {});
  const int64_t left = FreeBytes();
  const int64_t used = (int64_t{1} << 30) - left;
  // Of a device's memory 1/200 stays free.
  const auto with_room = [&](int64_t room) {
    int64_t bytes = used + room;
    while (bytes - bytes / 200 < used + room) ++bytes;
    return bytes;
  };
  SetBytes(with_room(first->num_bytes() - 1));
  const auto refused = LoadLora(path, *model.lora_base, "other");
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), StatusCode::kResourceExhausted);
  for (const char* words :
       {"the LoRA adapter 'other' takes ", " of cuda:0, which has ",
        " left for adapters: ", ", and adapters hold ",
        "unload another adapter, or lower gpu_memory_utilization or "
        "kv_cache_memory_bytes"}) {
    EXPECT_NE(refused.status().message().find(words), std::string_view::npos)
        << refused.status().message();
  }
  EXPECT_EQ(Drive(*model.runner, Few({first, nullptr}), {}), answers);
  const int64_t enough = with_room(first->num_bytes());
  SetBytes(enough);
  const Adapter second = MustLoadLora(path, model);
  EXPECT_EQ(FreeBytes(), enough / 200);
}

// Keys and values leave room for the adapters that are named at the start.
TEST_F(LoraOnGpu, NamedAdaptersAreCountedBeforeKeysAndValues) {
  if (!Emulated()) GTEST_SKIP() << "of an emulated size";
  const std::string folder = TempPath("named_adapter");
  fs::create_directories(folder);
  const std::string file = folder + "/adapter_model.safetensors";
  std::ofstream(file) << "";
  fs::resize_file(file, 2 << 20);
  const int64_t used = (int64_t{1} << 30) - FreeBytes();
  SetBytes(used + (int64_t{16} << 20));
  LlmOptions options = Options("cuda:0", "auto");
  options.settings.max_num_seqs = 256;
  options.settings.max_model_len = 0;
  int64_t page_bytes = 0;
  const auto pages = [&] {
    const LlmModel model = MustLoad("hf_llama_yarn", options);
    page_bytes = model.info.kv_bytes_per_token * kPageTokens;
    EXPECT_NE(model.info.kv_bound_by.find("of cuda:0"), std::string::npos);
    return model.runner->info().num_pages;
  };
  const int32_t without = pages();
  options.settings.lora_modules = {"one=" + file, "two=" + folder,
                                   "none=/nonexistent"};
  EXPECT_NEAR(without - pages(), static_cast<double>((4 << 20) / page_bytes),
              1);
  fs::remove_all(folder);
}

// ---- the lists of a step ----

TEST(LoraStep, ListsRowsByAdapterAndPadsThem) {
  const auto store = std::make_shared<CudaLoraStore>(nullptr, 0, false);
  const CudaLora adapters[] = {{store, CudaBuffer(), 0, 40},
                               {store, CudaBuffer(), 0, 5}};
  const StepLimits limits = {.max_tokens = 40,
                             .max_seqs = 4,
                             .max_pages_per_seq = 1,
                             .max_samples = 10};
  StepBatch batch(limits);
  batch.num_seqs = 4;
  batch.num_tokens = 14;
  for (int32_t seq = 0; const int32_t begin : {0, 2, 3, 13, 14}) {
    batch.q_start()[static_cast<size_t>(seq++)] = begin;
  }
  batch.num_samples = 3;
  for (size_t i = 0; i < 3; ++i) {
    batch.sample_seqs()[i] = static_cast<int32_t>(i + 1);
  }
  const CudaLora* const of_seq[] = {&adapters[0], nullptr, &adapters[1],
                                    &adapters[0]};
  std::vector<std::byte> out(static_cast<size_t>(LoraStep::MostBytes(limits)));
  const auto order = [&](const LoraStep::Rows& rows, int32_t count) {
    const auto* at = reinterpret_cast<const int32_t*>(out.data() + rows.order);
    return std::vector<int32_t>(at, at + count);
  };
  const auto counts = [&](const LoraStep::Rows& rows) {
    const auto* at =
        reinterpret_cast<const cuda::LoraTile*>(out.data() + rows.tiles);
    std::vector<int32_t> all;
    for (int32_t i = 0; i < rows.num_tiles; ++i) all.push_back(at[i].count);
    return all;
  };
  LoraStep step;
  step.Fill(batch, of_seq, 0, false, out.data());
  EXPECT_TRUE(step.any());
  EXPECT_EQ(step.most_rank(), 48);
  EXPECT_LE(step.bytes(), static_cast<int64_t>(out.size()));
  EXPECT_EQ(step.rows().num_places, 13);
  EXPECT_EQ(counts(step.rows()), (std::vector<int32_t>{3, 8, 2}));
  EXPECT_EQ(order(step.rows(), 13),
            (std::vector<int32_t>{0, 1, 13, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}));
  // Samples are of sequences 1, 2 and 3.
  EXPECT_EQ(counts(step.samples()), (std::vector<int32_t>{1, 1}));
  EXPECT_EQ(order(step.samples(), 2), (std::vector<int32_t>{2, 1}));

  // Four rows, padded to eight.
  batch.num_tokens = 4;
  for (int32_t seq = 0; seq <= 4; ++seq) {
    batch.q_start()[static_cast<size_t>(seq)] = seq;
  }
  step.Fill(batch, of_seq, 8, true, out.data());
  EXPECT_EQ(step.most_rank(), 64);
  EXPECT_EQ(counts(step.rows()),
            (std::vector<int32_t>{2, 1, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(order(step.rows(), 3), (std::vector<int32_t>{0, 3, 2}));
  EXPECT_EQ(step.samples().order, step.rows().order);
  const auto layout = step.Layout();
  const CudaLora* const others[] = {nullptr, nullptr, nullptr, &adapters[0]};
  step.Fill(batch, others, 8, true, out.data());
  EXPECT_EQ(step.Layout(), layout);
  const CudaLora* const small[] = {nullptr, nullptr, nullptr, &adapters[1]};
  step.Fill(batch, small, 8, true, out.data());
  EXPECT_NE(step.Layout(), layout) << "blocks are made for ranks";
  const CudaLora* const none[] = {nullptr, nullptr, nullptr, nullptr};
  step.Fill(batch, none, 8, true, out.data());
  EXPECT_FALSE(step.any());
  EXPECT_NE(step.Layout(), layout);
}

}  // namespace
}  // namespace millrace::models
