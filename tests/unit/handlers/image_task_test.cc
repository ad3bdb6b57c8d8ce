// Pictures through the handler of a task, before a graph that is faked: it
// answers with the mean of each channel.
#include "handlers/tasks/image_task.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <future>
#include <mutex>
#include <new>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "config/base/base64.h"
#include "handlers/tasks/class_scores.h"
#include "handlers/tasks/labels.h"
#include "models/files/npz.h"

namespace millrace::handlers {
namespace {

using models::DType;
using models::Tensor;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class MeansHandler final : public TensorHandler {
 public:
  MeansHandler(std::vector<int64_t> dims, DType dtype) {
    inputs_.push_back({.name = "pixels",
                       .dtype = dtype,
                       .dims = std::move(dims),
                       .text = "FP32 [...]"});
    outputs_.push_back({.name = "scores", .dims = {-1, 3}, .text = "FP32 [3]"});
  }
  void Start(TensorRequest request, Done done, std::stop_token stop) override {
    if (stop.stop_requested()) return done(Cancelled("stopped"));
    if (full) return done(ResourceExhausted("full"));
    if (throws) throw std::bad_alloc();
    {
      const std::lock_guard lock(mu);
      shapes.push_back(request.inputs.front().tensor.shape().ToString());
    }
    const Tensor& pixels = request.inputs.front().tensor;
    const int64_t rows = pixels.shape()[0];
    Tensor scores = Tensor::Make(DType::kF32, {rows, 3});
    const int64_t plane = pixels.num_elements() / 3 / rows;
    for (int64_t i = 0; i < pixels.num_elements(); ++i) {
      scores.data<float>()[i / plane] +=
          pixels.data<float>()[i] / static_cast<float>(plane);
    }
    TensorResponse response;
    response.outputs.push_back({"scores", std::move(scores)});
    if (!hold) return done(std::move(response));
    held.emplace_back(std::move(done), std::move(response));
  }
  // Answers what was held, the last first.
  void Release() {
    for (; !held.empty(); held.pop_back()) {
      held.back().first(std::move(held.back().second));
    }
  }
  Status HasPlace() const override { return OkStatus(); }
  const std::vector<models::TensorSpec>& inputs() const override {
    return inputs_;
  }
  const std::vector<models::TensorSpec>& outputs() const override {
    return outputs_;
  }

  std::mutex mu;  // of shapes
  bool hold = false;
  bool full = false;
  bool throws = false;
  std::vector<std::string> shapes;
  std::vector<std::pair<Done, TensorResponse>> held;

 private:
  std::vector<models::TensorSpec> inputs_;
  std::vector<models::TensorSpec> outputs_;
};

// A file of tests/data/image/images.npz.
std::string File(const std::string& name) {
  static const auto arrays = models::ReadNpz("tests/data/image/images.npz");
  for (const models::NamedTensor& array : *arrays) {
    if (array.name == "file/" + name) {
      return {reinterpret_cast<const char*>(array.tensor.bytes()),
              static_cast<size_t>(array.tensor.num_bytes())};
    }
  }
  ADD_FAILURE() << name;
  return {};
}

class ImageTaskTest : public testing::Test {
 protected:
  StatusOr<std::unique_ptr<TaskHandler>> Make(
      config::TaskSettings settings, std::vector<int64_t> dims = {-1, 3, 4, 4},
      DType dtype = DType::kF32) {
    settings.kind = config::TaskKind::kClassify;
    graph_ = std::make_unique<MeansHandler>(std::move(dims), dtype);
    return MakeTaskHandler(
        {.model = "m",
         .path = "none/1/model.onnx",
         .settings = std::make_shared<config::TaskSettings>(settings),
         .tensors = graph_.get()});
  }
  std::string Unfit(config::TaskSettings settings,
                    std::vector<int64_t> dims = {-1, 3, 4, 4}) {
    return std::string(
        Make(std::move(settings), std::move(dims)).status().message());
  }
  // The body, or the error in brackets; empty while there is none.
  std::string Ask(TaskHandler& handler, std::vector<std::string> files,
                  const char* parameters = nullptr, std::stop_token stop = {}) {
    TaskRequest request;
    request.trace = std::make_shared<Trace>();
    for (std::string& file : files) {
      request.parts.push_back({.bytes = std::move(file)});
    }
    if (parameters != nullptr) {
      request.parameters = std::make_shared<const nlohmann::ordered_json>(
          nlohmann::ordered_json::parse(parameters));
    }
    handler.Start(
        std::move(request),
        [this](StatusOr<TaskResponse> response) {
          ++num_answers_;
          answer_ = response.ok()
                        ? TaskBody(*std::move(response))
                        : "(" + std::string(response.status().message()) + ")";
        },
        std::move(stop));
    return answer_;
  }

  std::unique_ptr<TaskHandler> MakeMicro(config::MicroBatchingSettings stages,
                                         int64_t max_rows,
                                         std::vector<int64_t> dims = {-1, 3, 4,
                                                                      4}) {
    config::TaskSettings settings;
    settings.kind = config::TaskKind::kClassify;
    settings.activation = "none";
    settings.image.rescale_factor = "1";
    graph_ = std::make_unique<MeansHandler>(std::move(dims), DType::kF32);
    auto handler = MakeTaskHandler(
        {.model = "m",
         .path = "none/1/model.onnx",
         .settings = std::make_shared<config::TaskSettings>(settings),
         .tensors = graph_.get(),
         .max_rows = max_rows,
         .micro_batching =
             std::make_shared<config::MicroBatchingSettings>(stages)});
    EXPECT_TRUE(handler.ok()) << handler.status().ToString();
    return *std::move(handler);
  }
  // As Ask, of a handler that answers from threads of its own.
  static std::string AskAndWait(TaskHandler& handler,
                                std::vector<std::string> files,
                                std::stop_token stop = {}) {
    TaskRequest request;
    request.trace = std::make_shared<Trace>();
    for (std::string& file : files) {
      request.parts.push_back({.bytes = std::move(file)});
    }
    // Shared: this may return before set_value does.
    const auto answer = std::make_shared<std::promise<std::string>>();
    handler.Start(
        std::move(request),
        [answer](StatusOr<TaskResponse> response) {
          answer->set_value(
              response.ok()
                  ? TaskBody(*std::move(response))
                  : "(" + std::string(response.status().message()) + ")");
        },
        std::move(stop));
    return answer->get_future().get();
  }

  std::unique_ptr<MeansHandler> graph_;
  std::string answer_;
  int num_answers_ = 0;
};

config::TaskSettings Plain() {
  config::TaskSettings settings;
  settings.activation = "none";
  settings.image.rescale_factor = "1";
  return settings;
}

config::TaskSettings Classify() {
  config::TaskSettings settings = Plain();
  settings.kind = config::TaskKind::kClassify;
  return settings;
}

TEST_F(ImageTaskTest, OnePictureGivesOneObjectBestFirst) {
  auto handler = Make(Plain());
  ASSERT_TRUE(handler.ok()) << handler.status().ToString();
  const auto answer = nlohmann::ordered_json::parse(
      Ask(**handler, {File("png/rgb8")}, R"({"top_k": 2})"));
  ASSERT_EQ(answer.size(), 2u);
  EXPECT_GE(answer.front().get<double>(), answer.back().get<double>());
  EXPECT_THAT(graph_->shapes, ElementsAre("[1, 3, 4, 4]"));
}

// Needs more memory than there is, every second time.
class GreedyAnswer final : public ImageAnswer {
 public:
  Status Check(const nlohmann::ordered_json&) const override {
    return OkStatus();
  }
  StatusOr<std::string> Make(const TensorResponse&,
                             const models::ImagePlacement&,
                             const nlohmann::ordered_json&) const override {
    if (++num_made_ % 2 == 1) throw std::bad_alloc();
    return std::string("fine");
  }

 private:
  mutable std::atomic<int> num_made_{0};
};

TEST_F(ImageTaskTest, MemoryThatIsNotThereForAnAnswerEndsTheRequestAlone) {
  ASSERT_TRUE(Make(Plain()).ok());  // the graph
  config::MicroBatchingSettings stages;
  for (const bool is_micro : {false, true}) {
    auto handler = MakeImageTask(
        {.model = "m",
         .path = "none/1/model.onnx",
         .settings = std::make_shared<config::TaskSettings>(Plain()),
         .tensors = graph_.get(),
         .micro_batching =
             is_micro ? std::make_shared<config::MicroBatchingSettings>(stages)
                      : nullptr},
        std::make_unique<GreedyAnswer>());
    ASSERT_TRUE(handler.ok()) << handler.status().ToString();
    EXPECT_THAT(AskAndWait(**handler, {File("png/rgb8")}),
                HasSubstr("(the server has no memory for this request"));
    EXPECT_EQ(AskAndWait(**handler, {File("png/rgb8")}), "fine");
  }
}

TEST_F(ImageTaskTest, MemoryThatIsNotThereForAnInputEndsTheRequestAlone) {
  auto handler = Make(Plain());
  ASSERT_TRUE(handler.ok()) << handler.status().ToString();
  graph_->throws = true;
  EXPECT_THAT(Ask(**handler, {File("png/rgb8"), File("png/rgb8")}),
              HasSubstr("(picture 0: the server has no memory for this"));
  EXPECT_EQ(num_answers_, 1);
  graph_->throws = false;
  EXPECT_THAT(Ask(**handler, {File("png/rgb8")}), HasSubstr("{"));
}

TEST_F(ImageTaskTest, MemoryThatIsNotThereForAMicroBatchEndsItsRequestAlone) {
  for (const int64_t max_rows : {1, 4}) {
    auto micro = MakeMicro({.micro_batch_size = 2}, max_rows);
    graph_->throws = true;
    EXPECT_THAT(AskAndWait(*micro, {File("png/rgb8"), File("png/rgb8")}),
                HasSubstr("(the server has no memory for this request"));
    graph_->throws = false;
    EXPECT_THAT(AskAndWait(*micro, {File("png/rgb8")}), HasSubstr("{"));
  }
}

TEST_F(ImageTaskTest, AnswersStandInTheOrderOfTheParts) {
  auto handler = Make(Plain());
  ASSERT_TRUE(handler.ok()) << handler.status().ToString();
  const std::string one = Ask(**handler, {File("png/rgb8")});
  const std::string two = Ask(**handler, {File("jpeg/420")});
  graph_->hold = true;
  num_answers_ = 0;
  Ask(**handler, {File("png/rgb8"), File("jpeg/420"), File("png/rgb8")});
  EXPECT_EQ(num_answers_, 0);
  graph_->Release();
  EXPECT_EQ(num_answers_, 1);
  EXPECT_EQ(answer_, "[" + one + "," + two + "," + one + "]");
}

TEST_F(ImageTaskTest, MicroBatchesAnswerWithTheSameBits) {
  const std::vector<std::string> names = {"png/rgb8", "jpeg/420", "png/rgb8",
                                          "png/rgb8", "jpeg/420"};
  std::vector<std::string> files;
  for (const std::string& name : names) files.push_back(File(name));
  auto plain = Make(Plain());
  ASSERT_TRUE(plain.ok()) << plain.status().ToString();
  const std::string wanted = Ask(**plain, files);
  for (const int64_t size : {1, 2, 3, 5, 64}) {
    for (const int64_t max_rows : {1, 4, 32}) {
      auto micro = MakeMicro({.micro_batch_size = size,
                              .preprocess = 2,
                              .inference = 2,
                              .postprocess = 2},
                             max_rows);
      EXPECT_EQ(AskAndWait(*micro, files), wanted);
      const int64_t rows = std::min<int64_t>(size, max_rows);
      const std::string first =
          "[" + std::to_string(std::min<int64_t>(rows, 5)) + ", 3, 4, 4]";
      EXPECT_THAT(graph_->shapes, ::testing::Contains(first));
    }
  }
}

TEST_F(ImageTaskTest, AMicroBatchOfSeveralSizesAnswersWithTheSameBits) {
  const std::vector<int64_t> any_size = {-1, 3, -1, -1};
  // 17 x 23, 29 x 37, 1 x 1 (height x width)
  for (const std::vector<std::string>& names :
       {std::vector<std::string>{"png/rgb8", "png/1x1", "jpeg/420"},
        std::vector<std::string>{"png/1x1", "jpeg/420", "png/1x1"},
        std::vector<std::string>{"png/rgb8", "png/rgb8", "png/1x1"}}) {
    std::vector<std::string> files;
    for (const std::string& name : names) files.push_back(File(name));
    auto plain = Make(Plain(), any_size);
    ASSERT_TRUE(plain.ok()) << plain.status().ToString();
    const std::string wanted = Ask(**plain, files);
    const std::vector<std::string> shapes = graph_->shapes;
    auto micro = MakeMicro({.micro_batch_size = 3}, 32, any_size);
    EXPECT_EQ(AskAndWait(*micro, files), wanted);
    EXPECT_EQ(graph_->shapes, shapes);
  }
}

TEST_F(ImageTaskTest, PicturesOfTooManyBytesTogetherAreRefused) {
  constexpr int64_t kPictureBytes = int64_t{3} * 4 * 4 * 4;
  ASSERT_TRUE(Make(Plain()).ok());  // the graph
  for (const bool is_micro : {false, true}) {
    auto handler = MakeTaskHandler(
        {.model = "m",
         .path = "none/1/model.onnx",
         .settings = std::make_shared<config::TaskSettings>(Classify()),
         .tensors = graph_.get(),
         .max_input_bytes = 2 * kPictureBytes,
         .micro_batching =
             is_micro ? std::make_shared<config::MicroBatchingSettings>()
                      : nullptr});
    ASSERT_TRUE(handler.ok()) << handler.status().ToString();
    const std::string file = File("png/rgb8");
    EXPECT_TRUE(AskAndWait(**handler, {file, file}).starts_with('['));
    EXPECT_THAT(AskAndWait(**handler, {file, file, file}),
                HasSubstr("become more than 384 bytes of input"));
  }
}

TEST_F(ImageTaskTest, AFailureEndsAMicroBatchedRequestOnce) {
  auto micro = MakeMicro({.micro_batch_size = 2}, 4);
  EXPECT_THAT(
      AskAndWait(*micro, {File("png/rgb8"), File("png/rgb8"), "no picture"}),
      HasSubstr("picture 2: the picture is no JPEG"));
  EXPECT_THAT(AskAndWait(*micro, {"no picture"}),
              HasSubstr("(the picture is no JPEG"));
  graph_->full = true;
  EXPECT_EQ(AskAndWait(*micro, {File("png/rgb8")}), "(full)");
  EXPECT_THAT(AskAndWait(*micro, {}), HasSubstr("0 pictures but 1 to 64"));
  std::stop_source stop;
  stop.request_stop();
  graph_->shapes.clear();
  EXPECT_EQ(AskAndWait(*micro, {File("png/rgb8")}, stop.get_token()),
            "(the client left)");
  EXPECT_TRUE(graph_->shapes.empty());
}

TEST_F(ImageTaskTest, TheFirstFailureEndsTheRequestOnce) {
  auto handler = Make(Plain());
  ASSERT_TRUE(handler.ok()) << handler.status().ToString();
  graph_->hold = true;
  Ask(**handler, {File("png/rgb8"), "no picture", File("png/rgb8")});
  EXPECT_EQ(num_answers_, 0);  // the first is still computed
  graph_->Release();
  EXPECT_EQ(num_answers_, 1);
  EXPECT_THAT(answer_, HasSubstr("picture 1: the picture is no JPEG"));
  EXPECT_EQ(graph_->shapes.size(), 1u);

  graph_->hold = false;
  graph_->full = true;
  num_answers_ = 0;
  Ask(**handler, {File("png/rgb8"), File("png/rgb8")});
  EXPECT_EQ(num_answers_, 1);
  EXPECT_EQ(answer_, "(full)");
}

TEST_F(ImageTaskTest, AClientThatLeftIsNotComputed) {
  auto handler = Make(Plain());
  ASSERT_TRUE(handler.ok()) << handler.status().ToString();
  std::stop_source stop;
  stop.request_stop();
  Ask(**handler, {File("png/rgb8")}, nullptr, stop.get_token());
  EXPECT_EQ(num_answers_, 1);
  EXPECT_TRUE(graph_->shapes.empty());
}

TEST_F(ImageTaskTest, NumbersOfPicturesAndParametersAreChecked) {
  auto handler = Make(Plain());
  ASSERT_TRUE(handler.ok()) << handler.status().ToString();
  EXPECT_THAT(Ask(**handler, {}), HasSubstr("0 pictures but 1 to 64"));
  EXPECT_THAT(Ask(**handler, std::vector<std::string>(65, "x")),
              HasSubstr("65 pictures"));
  EXPECT_THAT(Ask(**handler, {"x"}, R"({"top_k": "all"})"), HasSubstr("top_k"));
  EXPECT_TRUE(graph_->shapes.empty());
}

TEST_F(ImageTaskTest, SizesAndLayoutFollowFromTheGraph) {
  config::TaskSettings settings = Plain();
  auto handler = Make(settings, {1, 6, 5, 3});
  ASSERT_TRUE(handler.ok()) << handler.status().ToString();
  Ask(**handler, {File("png/rgb8")});
  EXPECT_THAT(graph_->shapes, ElementsAre("[1, 6, 5, 3]"));
  settings.image.resize = {"8"};
  handler = Make(settings, {-1, 3, -1, -1});
  ASSERT_TRUE(handler.ok()) << handler.status().ToString();
  Ask(**handler, {File("png/rgb8")});  // 23 x 17
  EXPECT_THAT(graph_->shapes, ElementsAre("[1, 3, 8, 10]"));
}

TEST_F(ImageTaskTest, WhatDoesNotFitIsRefusedAtLoad) {
  EXPECT_THAT(Unfit(Plain(), {2, 3, 4, 4}), HasSubstr("1 or varying"));
  EXPECT_THAT(Unfit(Plain(), {3, 4, 4}), HasSubstr("four dimensions"));
  EXPECT_THAT(Unfit(Plain(), {1, 3, 4, 3}), HasSubstr("layout is auto"));
  EXPECT_THAT(Unfit(Plain(), {1, 5, 4, 4}), HasSubstr("layout is auto"));
  config::TaskSettings settings = Plain();
  settings.image.layout = "nchw";
  EXPECT_THAT(Unfit(settings, {1, 5, 4, 4}), HasSubstr("gives 3 channels"));
  settings = Plain();
  settings.image.resize = {"5", "4"};
  EXPECT_THAT(Unfit(settings), HasSubstr("resize makes pictures of 5 x 4"));
  settings.image.resize = {"0"};
  EXPECT_THAT(Unfit(settings), HasSubstr("resize has '0'"));
  settings = Plain();
  settings.labels = "none.txt";
  EXPECT_THAT(Unfit(settings), HasSubstr("none/1/none.txt"));
}

TEST(Labels, ThreeForms) {
  const auto object =
      Labels::Parse(R"({"1": ["n1", "dog"], "0": "cat"})", "labels.json");
  ASSERT_TRUE(object.ok()) << object.status().ToString();
  EXPECT_EQ(object->NameOf(0), "cat");
  EXPECT_EQ(object->NameOf(1), "dog");
  EXPECT_EQ(object->NameOf(2), "2");
  EXPECT_EQ(Labels::Parse(R"( ["a", "b"])", "x")->NameOf(1), "b");
  EXPECT_EQ(Labels::Parse("a\r\nb c\n", "x")->NameOf(1), "b c");
  EXPECT_EQ(Labels::Parse("", "x")->size(), 0);
  for (const char* text : {R"({"a": "b"})", R"({"-1": "b"})", "[1]", "[",
                           R"({"99999999": "b"})", R"({"0": {}})", "[[]]"}) {
    const auto labels = Labels::Parse(text, "labels.json");
    ASSERT_FALSE(labels.ok()) << text;
    EXPECT_THAT(std::string(labels.status().message()),
                HasSubstr("labels.json"));
  }
}

TEST(ClassScores, ActivationsAndOrder) {
  std::vector<double> scores = {0, 1000, 1000};
  Activate("softmax", scores);
  EXPECT_THAT(scores, ElementsAre(0, 0.5, 0.5));
  const auto best = BestScores(scores, 2);
  ASSERT_TRUE(best.ok());
  EXPECT_EQ((*best)[0].class_idx, 1);
  EXPECT_EQ((*best)[1].class_idx, 2);
  EXPECT_EQ(BestScores(scores, 0)->size(), 3u);
  EXPECT_EQ(BestScores(scores, 9)->size(), 3u);
  scores = {0};
  Activate("sigmoid", scores);
  EXPECT_THAT(scores, ElementsAre(0.5));
  scores = {0, std::nan("")};
  EXPECT_FALSE(BestScores(scores, 1).ok());
}

TEST(Base64, RoundsAndRefusals) {
  EXPECT_EQ(DecodeBase64("aGVsbG8="), "hello");
  EXPECT_EQ(DecodeBase64("aGVs\nbG8"), "hello");
  EXPECT_EQ(DecodeBase64("/+8="), "\xff\xef");
  EXPECT_EQ(DecodeBase64(""), "");
  for (const char* text : {"a", "a#==", "aGVs=bG8", "aa===", "aGVsb"}) {
    EXPECT_FALSE(DecodeBase64(text).has_value()) << text;
  }
}

}  // namespace
}  // namespace millrace::handlers
