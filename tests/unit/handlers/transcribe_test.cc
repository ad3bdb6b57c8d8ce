// Recordings through the handler of a task, before a graph that is faked: each
// frame of 160 samples has the label that its first sample names.
#include "handlers/tasks/transcribe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "handlers/tasks/ctc.h"
#include "handlers/tasks/labels.h"
#include "handlers/tasks/subtitles.h"
#include "handlers/tasks/transcript.h"

namespace millrace::handlers {
namespace {

using Json = nlohmann::ordered_json;
using models::DType;
using models::Tensor;
using models::TensorSpec;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// ---- CTC --------------------------------------------------------------------

std::vector<int64_t> LabelsOf(const std::vector<CtcToken>& tokens) {
  std::vector<int64_t> labels;
  for (const CtcToken& token : tokens) labels.push_back(token.label);
  return labels;
}

TEST(Ctc, GreedyJoinsRepeatsAndDropsBlanks) {
  // Labels 1 1 0 1 2 2, each with probability 0.8 of three; 0 is the blank.
  std::vector<float> logits;
  for (const int best : {1, 1, 0, 1, 2, 2}) {
    for (int label = 0; label < 3; ++label) {
      logits.push_back(std::log(label == best ? 0.8F : 0.1F));
    }
  }
  const auto tokens = GreedyCtc({logits, 3}, 0);
  ASSERT_TRUE(tokens.ok());
  EXPECT_THAT(LabelsOf(*tokens), ElementsAre(1, 1, 2));
  EXPECT_EQ((*tokens)[0].first_frame, 0);
  EXPECT_EQ((*tokens)[0].end_frame, 2);
  EXPECT_EQ((*tokens)[1].first_frame, 3);
  EXPECT_EQ((*tokens)[2].end_frame, 6);
  EXPECT_NEAR((*tokens)[0].log_prob, std::log(0.8), 1e-6);
}

TEST(Ctc, BeamAddsThePathsOfAText) {
  // "a" twice with 0.4: paths "a-", "-a" and "aa" have 0.64, "--" has 0.36.
  const std::vector<float> logits = {std::log(0.6F), std::log(0.4F),
                                     std::log(0.6F), std::log(0.4F)};
  EXPECT_TRUE(GreedyCtc({logits, 2}, 0)->empty());
  EXPECT_THAT(LabelsOf(*BeamCtc({logits, 2}, 0, 4)), ElementsAre(1));
}

// The most probable labels, by all paths there are.
std::vector<int64_t> BestOfAllPaths(const std::vector<float>& logits,
                                    size_t num_labels, size_t num_frames,
                                    int64_t blank) {
  std::map<std::vector<int64_t>, double> sums;
  size_t num_paths = 1;
  for (size_t t = 0; t < num_frames; ++t) num_paths *= num_labels;
  for (size_t path = 0; path < num_paths; ++path) {
    std::vector<int64_t> labels;
    double product = 1;
    int64_t last = blank;
    size_t rest = path;
    for (size_t t = 0; t < num_frames; ++t, rest /= num_labels) {
      const size_t label = rest % num_labels;
      double sum = 0;
      for (size_t i = 0; i < num_labels; ++i) {
        sum += std::exp(double{logits[t * num_labels + i]});
      }
      product *= std::exp(double{logits[t * num_labels + label]}) / sum;
      const auto id = static_cast<int64_t>(label);
      if (id != blank && id != last) labels.push_back(id);
      last = id;
    }
    sums[labels] += product;
  }
  return std::max_element(sums.begin(), sums.end(),
                          [](auto& a, auto& b) { return a.second < b.second; })
      ->first;
}

TEST(Ctc, AWideBeamFindsWhatAllPathsSay) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal(0, 1);
  int differs_from_greedy = 0;
  for (int round = 0; round < 60; ++round) {
    std::vector<float> logits(5 * 3);
    for (float& x : logits) x = normal(random);
    const int64_t blank = round % 3;
    const auto beam = BeamCtc({logits, 3}, blank, 1000);
    ASSERT_TRUE(beam.ok());
    EXPECT_EQ(LabelsOf(*beam), BestOfAllPaths(logits, 3, 5, blank)) << round;
    const auto greedy = LabelsOf(*GreedyCtc({logits, 3}, blank));
    if (greedy != LabelsOf(*beam)) ++differs_from_greedy;
  }
  EXPECT_GT(differs_from_greedy, 5);
}

TEST(Ctc, ScoresThatAreNoNumbersAreAnError) {
  const std::vector<float> logits = {0, 1, NAN, 1};
  EXPECT_THAT(std::string(GreedyCtc({logits, 2}, 0).status().message()),
              HasSubstr("frame 1 are no numbers"));
  EXPECT_FALSE(BeamCtc({logits, 2}, 0, 4).ok());
  EXPECT_TRUE(GreedyCtc({{}, 2}, 0)->empty());
  EXPECT_TRUE(BeamCtc({{}, 2}, 0, 4)->empty());
}

// ---- texts ------------------------------------------------------------------

std::vector<CtcToken> Tokens(std::vector<int64_t> labels) {
  std::vector<CtcToken> tokens;
  for (const int64_t label : labels) {
    const auto at = static_cast<int64_t>(tokens.size());
    tokens.push_back({.label = label,
                      .first_frame = 2 * at,
                      .end_frame = 2 * at + 1,
                      .log_prob = -0.5});
  }
  return tokens;
}

TEST(Transcript, WordsStandBetweenDelimiters) {
  const auto labels = *Labels::Parse(R"({"<pad>":0,"|":1,"a":2,"b":3})", "f");
  const auto transcript =
      MakeTranscript(Tokens({1, 2, 3, 1, 1, 3, 0}), labels, "|", 0.02);
  EXPECT_EQ(transcript.text, "ab b");
  ASSERT_EQ(transcript.words.size(), 2u);
  EXPECT_NEAR(transcript.words[0].start, 0.04, 1e-9);
  EXPECT_NEAR(transcript.words[0].end, 0.10, 1e-9);
  EXPECT_NEAR(transcript.words[1].start, 0.20, 1e-9);
  EXPECT_EQ(transcript.mean_log_prob, -0.5);
}

TEST(Transcript, SentencePiecesBeginWords) {
  const auto labels = *Labels::Parse("\u2581he\nllo\n\u2581\nyou\n<unk>", "f");
  EXPECT_EQ(MakeTranscript(Tokens({0, 1, 2, 3, 4}), labels, "|", 1).text,
            "hello you");
}

TEST(Labels, AVocabularyNamesItsNumbers) {
  const auto labels = Labels::Parse(R"({"b": 1, "a": 0})", "vocab.json");
  ASSERT_TRUE(labels.ok());
  EXPECT_EQ(labels->NameOf(1), "b");
  EXPECT_THAT(
      std::string(
          Labels::Parse(R"({"b": 1, "a": -1})", "f").status().message()),
      HasSubstr("has 'a' without a class's number"));
}

// ---- the task ---------------------------------------------------------------

class FakeGraph final : public TensorHandler {
 public:
  FakeGraph(std::vector<TensorSpec> inputs, std::vector<TensorSpec> outputs)
      : inputs_(std::move(inputs)), outputs_(std::move(outputs)) {}
  void Start(TensorRequest request, Done done, std::stop_token) override {
    shapes.clear();
    for (const NamedTensor& input : request.inputs) {
      shapes.push_back(input.name + input.tensor.shape().ToString());
    }
    const Tensor& samples = request.inputs.front().tensor;
    const int64_t frames = samples.num_elements() / 160;
    Tensor scores = Tensor::Make(DType::kF32, {1, frames, 4});
    for (int64_t t = 0; t < frames; ++t) {
      const auto label =
          std::lround(samples.data<float>()[t * 160] * 32768) & 3;
      scores.data<float>()[t * 4 + label] = 5;
    }
    TensorResponse response;
    response.outputs.push_back({"logits", std::move(scores)});
    done(std::move(response));
  }
  Status HasPlace() const override { return OkStatus(); }
  const std::vector<TensorSpec>& inputs() const override { return inputs_; }
  const std::vector<TensorSpec>& outputs() const override { return outputs_; }

  std::vector<std::string> shapes;

 private:
  std::vector<TensorSpec> inputs_;
  std::vector<TensorSpec> outputs_;
};

TensorSpec Spec(std::string name, DType dtype, std::vector<int64_t> dims) {
  return {.name = std::move(name),
          .dtype = dtype,
          .dims = std::move(dims),
          .text = "(its type)"};
}

// 16000 samples a second, 16 bits; each label fills a frame of 160 samples.
std::string Wav(const std::vector<int>& labels) {
  std::string data;
  for (const int label : labels) {
    for (int i = 0; i < 160; ++i) {
      data += static_cast<char>(i == 0 ? label : 0);
      data += '\0';
    }
  }
  const auto u32 = [](size_t value) {
    std::string bytes;
    for (int i = 0; i < 4; ++i) bytes += static_cast<char>(value >> (8 * i));
    return bytes;
  };
  return "RIFF" + u32(36 + data.size()) + "WAVEfmt " + u32(16) +
         std::string("\1\0\1\0", 4) + u32(16000) + u32(32000) +
         std::string("\2\0\20\0", 4) + "data" + u32(data.size()) + data;
}

class TranscribeTest : public testing::Test {
 protected:
  TranscribeTest() {
    folder_ = std::filesystem::path(testing::TempDir()) / "transcribe_test";
    std::filesystem::create_directories(folder_ / "1");
    std::ofstream(folder_ / "vocab.json") << R"(["<pad>", "|", "a", "b"])";
    std::ofstream(folder_ / "three.txt") << "|\na\nb\n";
    settings_.kind = config::TaskKind::kTranscribe;
    settings_.labels = "vocab.json";
  }

  Status Make() {
    graph_ = std::make_unique<FakeGraph>(inputs_, outputs_);
    auto made = MakeTranscribeTask(
        {.model = "m",
         .path = folder_ / "1" / "model.onnx",
         .settings = std::make_shared<config::TaskSettings>(settings_),
         .answer = answer_,
         .tensors = graph_.get()});
    if (!made.ok()) return made.status();
    task_ = *std::move(made);
    return OkStatus();
  }
  std::string Unfit() { return std::string(Make().message()); }

  // The results, or the error in brackets.
  std::string Ask(std::vector<std::string> files,
                  const char* parameters = "{}") {
    if (const Status made = Make(); !made.ok()) return made.ToString();
    TaskRequest request;
    request.trace = std::make_shared<Trace>();
    for (std::string& file : files) {
      request.parts.push_back({.bytes = std::move(file)});
    }
    request.parameters = std::make_shared<const Json>(Json::parse(parameters));
    std::string answer;
    task_->Start(std::move(request),
                 [&](StatusOr<TaskResponse> response) {
                   if (!response.ok()) {
                     answer =
                         "[" + std::string(response.status().message()) + "]";
                     return;
                   }
                   type_ = response->content_type;
                   answer = TaskBody(*std::move(response));
                 },
                 {});
    return answer;
  }

  std::filesystem::path folder_;
  config::TaskSettings settings_;
  config::AnswerSettings answer_;
  std::vector<TensorSpec> inputs_ = {Spec("x", DType::kF32, {1, -1})};
  std::vector<TensorSpec> outputs_ = {Spec("logits", DType::kF32, {1, -1, 4})};
  std::unique_ptr<FakeGraph> graph_;
  std::unique_ptr<TaskHandler> task_;
  std::string type_;
};

TEST_F(TranscribeTest, ARecordingBecomesAText) {
  const std::string file = Wav({2, 2, 0, 2, 1, 3});
  EXPECT_EQ(Ask({file}),
            R"({"text":"aa b","usage":{"type":"duration","seconds":1}})");
  EXPECT_THAT(graph_->shapes, ElementsAre("x[1, 960]"));
  EXPECT_EQ(Ask({file}, R"({"response_format": "text"})"), "aa b\n");
  EXPECT_EQ(type_, "text/plain; charset=utf-8");
  const Json two = Json::parse(Ask({file, Wav({3})}));
  EXPECT_EQ(two[0]["text"], "aa b");
  EXPECT_EQ(two[1]["text"], "b");
}

TEST_F(TranscribeTest, WordsHaveTimes) {
  const Json json =
      Json::parse(Ask({Wav({2, 2, 0, 2, 1, 3})},
                      R"({"response_format": "verbose_json", "language": "en",
          "timestamp_granularities": ["word"]})"));
  EXPECT_EQ(json["duration"], 0.06);
  EXPECT_EQ(json["language"], "en");
  EXPECT_EQ(json["words"].dump(), R"([{"word":"aa","start":0.0,"end":0.04},)"
                                  R"({"word":"b","start":0.05,"end":0.06}])");
  EXPECT_FALSE(json.contains("segments"));
}

TEST_F(TranscribeTest, WordsBecomeSubtitles) {
  const std::string file = Wav({2, 2, 0, 2, 1, 3});
  EXPECT_EQ(Ask({file}, R"({"response_format": "srt"})"),
            "1\n00:00:00,000 --> 00:00:00,060\naa b\n\n");
  EXPECT_EQ(type_, "text/plain; charset=utf-8");
  EXPECT_EQ(Ask({file}, R"({"response_format": "vtt"})"),
            "WEBVTT\n\n00:00:00.000 --> 00:00:00.060\naa b\n\n");
  EXPECT_EQ(type_, "text/vtt; charset=utf-8");
}

TEST(Subtitles, ACueEndsAtItsLengthItsTimeAndAPause) {
  const std::string ten = "0123456789";
  // 42 characters fit a line, 43 do not; ä is one character.
  EXPECT_EQ(SubRip({{ten, 0, 1},
                    {ten, 1, 2},
                    {ten, 2, 3},
                    {"12345678\u00e4", 3, 4},
                    {"x", 4, 4.5}}),
            "1\n00:00:00,000 --> 00:00:04,000\n" + ten + " " + ten + " " + ten +
                " 12345678\u00e4\n\n" +
                "2\n00:00:04,000 --> 00:00:04,500\nx\n\n");
  EXPECT_EQ(SubRip({{"a", 0, 4}, {"b", 4, 7}, {"c", 7, 7.001}}),
            "1\n00:00:00,000 --> 00:00:07,000\na b\n\n"
            "2\n00:00:07,000 --> 00:00:07,001\nc\n\n");
  EXPECT_EQ(SubRip({{"a", 0, 1}, {"b", 1.999, 2}, {"c", 3, 4}}),
            "1\n00:00:00,000 --> 00:00:02,000\na b\n\n"
            "2\n00:00:03,000 --> 00:00:04,000\nc\n\n");
}

TEST(Subtitles, OddWordsKeepTheirForm) {
  EXPECT_EQ(SubRip({}), "");
  EXPECT_EQ(WebVtt({}), "WEBVTT\n\n");
  // A cue is never empty in time, a word never ends it, hours are whole.
  EXPECT_EQ(WebVtt({{"a-->b\n\nc & <i>", 360000.5, 360000.5}}),
            "WEBVTT\n\n100:00:00.500 --> 100:00:00.501\n"
            "a--&gt;b  c &amp; &lt;i&gt;\n\n");
}

TEST_F(TranscribeTest, LengthsAndMasksAreFilledIn) {
  inputs_.push_back(Spec("x_lengths", DType::kI64, {-1}));
  inputs_.push_back(Spec("attention_mask", DType::kI32, {1, -1}));
  settings_.audio.chunk_length_ms = 100;
  Ask({Wav({2})});
  EXPECT_THAT(graph_->shapes, ElementsAre("x[1, 1600]", "x_lengths[1]",
                                          "attention_mask[1, 1600]"));
  EXPECT_THAT(Ask({Wav(std::vector<int>(11, 2))}),
              HasSubstr("1760 samples at 16000 Hz but the model takes at most "
                        "1600"));
}

TEST_F(TranscribeTest, TheBlankIsTheLabelThatIsLeftOver) {
  settings_.labels = "three.txt";
  // 3 is the blank now: the file names 0 to 2.
  EXPECT_THAT(Ask({Wav({1, 3, 1, 0, 2})}), HasSubstr("\"aa b\""));
  answer_.transcript.blank = "a";
  EXPECT_THAT(Ask({Wav({1, 2, 1, 2})}), HasSubstr("\"bb\""));
  answer_.transcript.blank = "7";
  EXPECT_THAT(Unfit(), HasSubstr("blank is '7' but must be one of the 4"));
}

TEST_F(TranscribeTest, GraphsThatDoNotFitAreRefusedAtLoad) {
  settings_.labels = "";
  EXPECT_THAT(Unfit(), HasSubstr("labels is missing"));
  settings_.labels = "vocab.json";
  outputs_[0].dims[2] = 9;
  EXPECT_THAT(Unfit(), HasSubstr("labels has 4 names"));
  outputs_[0] = Spec("y", DType::kI64, {1});
  EXPECT_THAT(Unfit(), HasSubstr("needs an output FP32"));
  inputs_.push_back(Spec("z", DType::kF32, {1}));
  EXPECT_THAT(Unfit(), HasSubstr("does not know what to put into the input "
                                 "'z'"));
  inputs_ = {Spec("x", DType::kF32, {1, 80, 80})};
  EXPECT_THAT(Unfit(), HasSubstr("n_mels is not given"));
  inputs_ = {Spec("x", DType::kF32, {1, 64, -1})};
  settings_.audio.n_mels = 80;
  EXPECT_THAT(Unfit(), HasSubstr("n_mels is 80"));
  settings_.audio.features = "waveform";
  EXPECT_THAT(Unfit(), HasSubstr("needs an input FP32 [1, samples]"));
}

TEST_F(TranscribeTest, SpectrogramsOfBothLayouts) {
  inputs_ = {Spec("x", DType::kF32, {1, 64, -1})};
  Ask({Wav({1, 1, 1, 1, 1})});
  EXPECT_THAT(graph_->shapes, ElementsAre("x[1, 64, 5]"));
  inputs_ = {Spec("x", DType::kF32, {1, -1, 64})};
  settings_.audio.mel = "torchaudio";
  Ask({Wav({1, 1, 1, 1, 1})});
  EXPECT_THAT(graph_->shapes, ElementsAre("x[1, 6, 64]"));
  // A fixed number of frames pads.
  inputs_ = {Spec("x", DType::kF32, {1, 64, 11})};
  settings_.audio.n_mels = 64;
  Ask({Wav({1})});
  EXPECT_THAT(graph_->shapes, ElementsAre("x[1, 64, 11]"));
}

TEST_F(TranscribeTest, ParametersWithoutSenseAreRefused) {
  const std::string file = Wav({2});
  answer_.transcript.language = "en";
  EXPECT_THAT(Ask({file}, R"({"response_format": "ssa"})"),
              HasSubstr("must be one of: json, text, srt, verbose_json, vtt"));
  EXPECT_THAT(Ask({file}, R"({"timestamp_granularities": ["word"]})"),
              HasSubstr("needs response_format verbose_json"));
  EXPECT_THAT(Ask({file}, R"({"timestamp_granularities": ["hour"]})"),
              HasSubstr("has 'hour'"));
  EXPECT_THAT(Ask({file}, R"({"language": "de"})"),
              HasSubstr("transcribes 'en'"));
  EXPECT_THAT(Ask({file}, R"({"temperature": 0.5})"),
              HasSubstr("temperature is 0.5"));
  for (const std::string format : {"text", "srt", "vtt"}) {
    const std::string asked = R"({"response_format": ")" + format + R"("})";
    EXPECT_THAT(Ask({file, file}, asked.c_str()),
                HasSubstr(format + ", which is for one recording"));
  }
  EXPECT_THAT(Ask({}), HasSubstr("0 recordings but 1 to 16"));
  EXPECT_THAT(Ask({file, "noise"}),
              HasSubstr("recording 1: the recording is no WAV"));
}

}  // namespace
}  // namespace millrace::handlers
