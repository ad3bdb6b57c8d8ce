// A recogniser with a tiny random RNN-T beside torchaudio, whose answers stand
// in tests/data/transducer/rnnt.json (make_rnnt.py).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <future>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "config/task_settings.h"
#include "config/transducer_settings.h"
#include "handlers/sequences/sequence_handler.h"
#include "handlers/sequences/sequence_place.h"
#include "handlers/transducer/transducer_handler.h"
#include "handlers/transducer/transducer_recogniser.h"
#include "handlers/transducer/transducer_search.h"
#include "handlers/transducer/transducer_state.h"
#include "tests/unit/handlers/transducer_fixture.h"

namespace millrace::handlers {
namespace {

using Json = nlohmann::json;
using models::DType;
using models::Tensor;
using ::testing::HasSubstr;

constexpr double kScoreTolerance = 1e-3;  // of sums of some hundred float logs
constexpr int kBlank = 28;

std::vector<int> Ids(const Hypothesis& hypothesis) {
  std::vector<int> ids;
  for (const auto& token : hypothesis.tokens) ids.push_back(token.id);
  return ids;
}

void ExpectSame(const Hypothesis& got, const Json& wanted) {
  EXPECT_EQ(Ids(got), wanted["tokens"].get<std::vector<int>>());
  EXPECT_NEAR(got.score, wanted["score"].get<double>(), kScoreTolerance);
}

TEST_F(Transducer, FeaturesAreTorchaudios) {
  const auto features = TransducerFeatures::Create(Parts(), settings_, 80);
  ASSERT_TRUE(features.ok()) << features.status().ToString();
  for (const auto& [name, clip] : wanted_["clips"].items()) {
    std::vector<float> samples = Samples(clip);
    samples.insert(samples.begin(), features->context(), 0.0F);
    samples.resize(features->num_samples());
    const Tensor made = features->Compute(samples);
    ASSERT_EQ(made.shape().ToString(), "[1, 20, 80]");
    for (size_t t = 0; t < clip["features"].size(); ++t) {
      for (size_t m = 0; m < 80; ++m) {
        // torchaudio computes in float.
        EXPECT_NEAR(made.data<float>()[t * 80 + m],
                    clip["features"][t][m].get<double>(), 2e-3)
            << name << " " << t << " " << m;
      }
    }
  }
}

TEST_F(Transducer, GreedyAndBeamAreTorchaudiosSegmentBySegment) {
  constexpr size_t kSegment = 2560;
  for (const int width : {1, 4}) {
    const auto recogniser = Recogniser(width);
    const std::string kind = width == 1 ? "greedy" : "beam4";
    for (const auto& [name, clip] : wanted_["clips"].items()) {
      SCOPED_TRACE(name + " " + kind);
      const Json& wanted = clip[kind];
      const auto heard = Hear(*recogniser, Samples(clip), kSegment);
      ASSERT_FALSE(heard.empty());
      for (size_t i = 0; i + 1 < heard.size(); ++i) {
        SCOPED_TRACE(i);
        ExpectSame(heard[i], wanted[i]);
      }
      ExpectSame(heard.back(), wanted.back());  // with the silence behind
      EXPECT_GT(wanted.back()["tokens"].size(), 4U) << "worth a test";
    }
  }
}

TEST_F(Transducer, ChunksOfAnyLengthMakeTheSameText) {
  const auto recogniser = Recogniser();
  for (const auto& [name, clip] : wanted_["clips"].items()) {
    const std::vector<float> samples = Samples(clip);
    for (const size_t chunk : {size_t{777}, size_t{6001}, samples.size()}) {
      SCOPED_TRACE(name + " " + std::to_string(chunk));
      ExpectSame(Hear(*recogniser, samples, chunk).back(),
                 clip["greedy"].back());
    }
  }
}

TEST_F(Transducer, ABeamOfOneIsTorchaudios) {
  const auto ports = TransducerPorts::Create(Graphs(), settings_, false);
  ASSERT_TRUE(ports.ok()) << ports.status().ToString();
  const auto features = TransducerFeatures::Create(Parts(), settings_, 80);
  const TransducerOptions options = {.num_tokens = 29,
                                     .blank = kBlank,
                                     .greedy = false,
                                     .beam_width = 1,
                                     .max_symbols = settings_.max_symbols};
  const auto ask = [](TensorHandler* graph, std::vector<NamedTensor> inputs) {
    TensorRequest request;
    request.inputs = std::move(inputs);
    request.trace = std::make_shared<Trace>();
    std::promise<StatusOr<TensorResponse>> answer;
    graph->Start(std::move(request),
                 [&](auto got) { answer.set_value(std::move(got)); }, {});
    return *answer.get_future().get();
  };
  const Json& clip = wanted_["clips"]["long"];
  std::vector<float> samples = Samples(clip);
  samples.insert(samples.begin(), features->context(), 0.0F);
  std::vector<Tensor> states = ports->InitialStates();
  std::vector<Hypothesis> kept;
  const size_t num_segments = clip["beam1"].size();
  samples.resize(num_segments * features->step() + features->context());
  for (size_t i = 0; i < num_segments; ++i) {
    auto encoded = *ports->ReadEncoded(
        ask(Graphs().encoder,
            ports->EncoderInputs(
                features->Compute(std::span(samples).subspan(
                    i * features->step(), features->num_samples())),
                states)));
    states = std::move(encoded.states);
    TransducerSearch search(options, std::move(kept), 4);
    while (search.wants() != TransducerSearch::Want::kNothing) {
      if (search.wants() == TransducerSearch::Want::kPredictions) {
        const size_t count = search.asks().size();
        search.GivePredictions(*ports->ReadPredictions(
            ask(Graphs().predictor, ports->PredictorInputs(search.asks())),
            count));
        continue;
      }
      const size_t count = search.alive().size();
      const TensorResponse logits =
          ask(Graphs().joiner,
              ports->JoinerInputs(
                  {encoded.encodings.data<float>() + search.frame() * 32, 32},
                  search.alive()));
      ASSERT_TRUE(
          search.GiveLogits(*ports->ReadLogits(logits, count, 29)).ok());
    }
    kept = search.Take();
    SCOPED_TRACE(i);
    ExpectSame(kept.front(), clip["beam1"][i]);
  }
}

TEST_F(Transducer, SilenceAndNoSoundHaveNoErrors) {
  const auto recogniser = Recogniser(4);
  auto nothing = Run(*recogniser, {.is_last = true});
  ASSERT_TRUE(nothing.ok());
  EXPECT_TRUE(recogniser->TranscriptOf(nothing->state).text.empty());
  auto silence =
      Run(*recogniser, {.samples = std::vector<float>(16000), .is_last = true});
  ASSERT_TRUE(silence.ok()) << silence.status().ToString();
}

TEST_F(Transducer, SoundThatIsTooLongOrNoNumberIsRefused) {
  const auto recogniser = Recogniser();
  auto first = Run(*recogniser, {.samples = std::vector<float>(4 * 16000)});
  ASSERT_TRUE(first.ok());
  const TransducerState& kept = first->state;
  auto refused = Run(*recogniser, {.state = *ReadState(WriteState(kept)),
                                   .samples = std::vector<float>(16001)});
  EXPECT_EQ(refused.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.status().message()),
              HasSubstr("max_duration of the model 'tiny' is 5"));
  // Ending it needs no room.
  EXPECT_TRUE(
      Run(*recogniser, {.state = *ReadState(WriteState(kept)), .is_last = true})
          .ok());
  for (const float bad : {std::nanf(""), INFINITY}) {
    auto odd = Run(*recogniser, {.samples = {0, 0, bad}});
    EXPECT_THAT(std::string(odd.status().message()),
                HasSubstr("sample 2 of the sound is no number"));
  }
}

TEST_F(Transducer, AClientThatLeftStopsTheRun) {
  const auto recogniser = Recogniser();
  std::stop_source stop;
  stop.request_stop();
  auto result = Run(*recogniser, {.samples = std::vector<float>(16000)},
                    stop.get_token());
  EXPECT_EQ(result.status().code(), StatusCode::kCancelled);
  EXPECT_EQ(recogniser->in_flight(), 0);
}

TEST_F(Transducer, GraphsThatDoNotFitAreNamed) {
  const auto refused = [&](const TransducerGraphs& graphs,
                           const config::TransducerSettings& settings) {
    const auto made = TransducerRecogniser::Create(Parts(), settings, graphs);
    EXPECT_FALSE(made.ok());
    return std::string(made.status().message());
  };
  const TransducerGraphs right = Graphs();
  EXPECT_THAT(refused({right.joiner, right.predictor, right.joiner}, settings_),
              HasSubstr("the encoder of the transducer has 2 inputs"));
  EXPECT_THAT(refused({right.encoder, right.encoder, right.joiner}, settings_),
              HasSubstr("the predictor of the transducer takes 'features'"));
  EXPECT_THAT(
      refused({right.encoder, right.predictor, right.predictor}, settings_),
      HasSubstr("the joiner of the transducer has"));
  config::TransducerSettings settings = settings_;
  settings.segment_length = 12;
  EXPECT_THAT(refused(right, settings),
              HasSubstr("expected FP32 [1, 16, mels]"));
  settings = settings_;
  settings.feature_stats = "tokens.txt";
  EXPECT_THAT(refused(right, settings), HasSubstr("feature_stats"));
  settings.feature_stats = "../global_stats.json";
  EXPECT_THAT(refused(right, settings),
              HasSubstr("must be the name of a file"));
}

// As a session asks: the sequence keeps what is heard, and its end flushes.
TEST_F(Transducer, ASequenceIsASession) {
  const auto recogniser = Recogniser();
  auto sessions = MakeSequenceHandler(
      MakeTransducerHandler(recogniser.get()),
      {.model = "tiny",
       .folder = {},
       .settings = std::make_shared<const config::SequenceSettings>(
           TransducerSequences())});
  ASSERT_TRUE(sessions.ok()) << sessions.status().ToString();
  ASSERT_EQ((*sessions)->inputs().size(), 1U);
  const auto ask = [&](SequencePlace place, std::vector<float> samples) {
    TensorRequest request;
    request.trace = std::make_shared<Trace>();
    if (!samples.empty()) {
      request.inputs.push_back(
          {"audio",
           Tensor::From<float>(
               DType::kF32, {static_cast<int64_t>(samples.size())}, samples)});
    }
    std::promise<StatusOr<TensorResponse>> answer;
    StartInSequence(sessions->get(), std::move(place), std::move(request),
                    [&](auto got) { answer.set_value(std::move(got)); }, {});
    return answer.get_future().get();
  };
  const Json& clip = wanted_["clips"]["short"];
  const std::vector<float> samples = Samples(clip);
  auto one = ask({.id = uint64_t{1}, .start = true}, samples);
  ASSERT_TRUE(one.ok()) << one.status().ToString();
  ASSERT_EQ(one->outputs.size(), 3U);
  EXPECT_EQ(*one->outputs[1].tensor.data<uint8_t>(), 0);
  auto two = ask({.id = uint64_t{1}, .end = true}, {});
  ASSERT_TRUE(two.ok()) << two.status().ToString();
  EXPECT_EQ(two->outputs[0].name, "text");
  EXPECT_EQ(*two->outputs[1].tensor.data<uint8_t>(), 1);
  EXPECT_NEAR(*two->outputs[2].tensor.data<float>(),
              clip["greedy"].back()["score"].get<double>(), kScoreTolerance);
  auto three = ask({.id = uint64_t{1}}, samples);
  EXPECT_THAT(std::string(three.status().message()), HasSubstr("START"));
}

}  // namespace
}  // namespace millrace::handlers
