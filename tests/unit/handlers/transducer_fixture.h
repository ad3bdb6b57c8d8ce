// A recogniser with the tiny random RNN-T of tests/data/transducer, its graphs
// computed on threads of their own.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <future>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "config/task_settings.h"
#include "config/transducer_settings.h"
#include "handlers/tensors.h"
#include "handlers/transducer/transducer_recogniser.h"
#include "models/files/npz.h"
#include "models/graph/execution_context.h"
#include "models/graph/import.h"
#include "scheduler/batcher.h"

namespace millrace::handlers {

struct Part {
  std::unique_ptr<scheduler::Batcher> batcher;
  std::unique_ptr<TensorHandler> handler;
};

class Transducer : public ::testing::Test {
 protected:
  void SetUp() override {
    wanted_ =
        nlohmann::json::parse(std::ifstream("tests/data/transducer/rnnt.json"));
    auto arrays = models::ReadNpz("tests/data/audio/silero.npz");
    ASSERT_TRUE(arrays.ok()) << arrays.status().ToString();
    for (models::NamedTensor& each : *arrays) {
      if (each.name == "speech/16000") speech_ = std::move(each.tensor);
    }
    ASSERT_EQ(speech_.dtype(), models::DType::kI16);
    encoder_ = Load("encoder");
    predictor_ = Load("predictor");
    joiner_ = Load("joiner");
    config::TaskSettings task;
    task.kind = config::TaskKind::kTranscribe;
    task.labels = "tokens.txt";
    task.audio.mel = "torchaudio";
    task.audio.mel_log = "piecewise";
    task.audio.max_duration_ms = 5000;
    task_ = std::make_shared<const config::TaskSettings>(task);
    settings_.feature_stats = "global_stats.json";
    settings_.max_symbols = wanted_["max_symbols"];
  }

  Part Load(const std::string& name) {
    models::graph::ImportReport report;
    auto graph = models::graph::ImportGraph(
        "tests/data/transducer/rnnt/1/" + name + ".pt2", &report);
    EXPECT_TRUE(graph.ok()) << graph.status().ToString();
    auto context = models::graph::CreateInstance(*std::move(graph), {});
    EXPECT_TRUE(context.ok()) << context.status().ToString();
    Part part;
    part.batcher = scheduler::Batcher::Create(
        *std::move(context), {.model = name, .max_queue_size = 8}, nullptr);
    part.handler = MakeTensorHandler(
        {.model = name, .batcher = part.batcher.get(), .pool = &pool_});
    return part;
  }

  TransducerGraphs Graphs() const {
    return {.encoder = encoder_.handler.get(),
            .predictor = predictor_.handler.get(),
            .joiner = joiner_.handler.get()};
  }

  TaskParts Parts(int64_t beam_width = 1) {
    TaskParts parts = {.model = "tiny",
                       .path = "tests/data/transducer/rnnt/1/encoder.pt2",
                       .settings = task_,
                       .pool = &pool_};
    parts.answer.transcript.beam_width = beam_width;
    return parts;
  }

  std::unique_ptr<TransducerRecogniser> Recogniser(int64_t beam_width = 1) {
    auto made =
        TransducerRecogniser::Create(Parts(beam_width), settings_, Graphs());
    EXPECT_TRUE(made.ok()) << made.status().ToString();
    return *std::move(made);
  }

  std::vector<float> Samples(const nlohmann::json& clip) const {
    std::vector<float> samples;
    for (int64_t i = clip["samples"][0]; i < clip["samples"][1]; ++i) {
      samples.push_back(static_cast<float>(speech_.data<int16_t>()[i]) / 32768);
    }
    return samples;
  }

  StatusOr<TransducerRecogniser::Result> Run(
      const TransducerRecogniser& recogniser,
      TransducerRecogniser::Request request, std::stop_token stop = {}) {
    std::promise<StatusOr<TransducerRecogniser::Result>> promise;
    recogniser.Run(
        std::move(request),
        [&](auto result) { promise.set_value(std::move(result)); },
        std::move(stop));
    return promise.get_future().get();
  }

  // In chunks of that many samples; what is known after each of them.
  std::vector<Hypothesis> Hear(const TransducerRecogniser& recogniser,
                               const std::vector<float>& samples,
                               size_t chunk) {
    std::vector<Hypothesis> heard;
    TransducerState state;
    for (size_t at = 0; at < samples.size(); at += chunk) {
      const size_t end = std::min(at + chunk, samples.size());
      auto result =
          Run(recogniser,
              {.state = std::move(state),
               .samples = {samples.begin() + static_cast<ptrdiff_t>(at),
                           samples.begin() + static_cast<ptrdiff_t>(end)},
               .is_last = end == samples.size()});
      EXPECT_TRUE(result.ok()) << result.status().ToString();
      if (!result.ok()) return heard;
      state = std::move(result->state);
      heard.push_back(state.hypotheses.empty() ? Hypothesis()
                                               : state.hypotheses.front());
    }
    EXPECT_EQ(state.num_samples, static_cast<int64_t>(samples.size()));
    return heard;
  }

  nlohmann::json wanted_;
  models::Tensor speech_;
  Pool pool_{2, 64, {}};
  Part encoder_, predictor_, joiner_;
  std::shared_ptr<const config::TaskSettings> task_;
  config::TransducerSettings settings_;
};

}  // namespace millrace::handlers
