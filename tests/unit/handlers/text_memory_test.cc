// Memory that is not there for one of a request's groups of texts.
#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "handlers/make_task.h"
#include "handlers/texts/text_files.h"
#include "handlers/texts/text_task.h"
#include "tests/unit/handlers/fakes.h"

namespace millrace::handlers {
namespace {

using models::DType;
using models::Tensor;

// Answers when the test says so; one request finds no memory.
class ScarceGraph final : public TensorHandler {
 public:
  explicit ScarceGraph(int64_t throws_at) : throws_at_(throws_at) {}
  void Start(TensorRequest request, Done done, std::stop_token) override {
    if (num_started++ == throws_at_) throw std::bad_alloc();
    Tensor scores = Tensor::Make(DType::kF32,
                                 {request.inputs.front().tensor.shape()[0], 2});
    TensorResponse response;
    response.outputs.push_back({"logits", std::move(scores)});
    held_.emplace_back(std::move(done), std::move(response));
  }
  void AnswerAll() {
    while (!held_.empty()) {
      auto [done, response] = std::move(held_.front());
      held_.pop_front();
      done(std::move(response));
    }
  }
  Status HasPlace() const override { return OkStatus(); }
  const std::vector<models::TensorSpec>& inputs() const override {
    return inputs_;
  }
  const std::vector<models::TensorSpec>& outputs() const override {
    return outputs_;
  }

  int64_t num_started = 0;

 private:
  const int64_t throws_at_;
  std::deque<std::pair<Done, TensorResponse>> held_;
  const std::vector<models::TensorSpec> inputs_ = {{.name = "input_ids",
                                                    .dtype = DType::kI64,
                                                    .dims = {-1, -1},
                                                    .text = ""}};
  const std::vector<models::TensorSpec> outputs_ = {
      {.name = "logits", .dims = {-1, 2}, .text = ""}};
};

// Each text is a group: without a mask those of other lengths are apart. Two
// groups begin with the request, the others when one before them has ended.
TEST(TextMemory, AGroupThatCannotBeginEndsItsRequestOnce) {
  for (int64_t throws_at = 0; throws_at <= 4; ++throws_at) {
    SCOPED_TRACE(throws_at);
    ScarceGraph graph(throws_at);
    auto settings = std::make_shared<config::TaskSettings>();
    settings->kind = config::TaskKind::kClassifyText;
    TextFiles files;
    files.tokenizer = ByteTokenizer();
    const auto handler = MakeTextHandler({.model = "m",
                                          .path = "",
                                          .settings = settings,
                                          .tensors = &graph,
                                          .max_rows = 8},
                                         std::move(files));
    ASSERT_TRUE(handler.ok()) << handler.status().ToString();
    struct TextRequest request;
    request.trace = std::make_shared<Trace>();
    for (size_t length = 1; length <= 4; ++length) {
      request.items.push_back({.ids = std::vector<int32_t>(length, 1)});
    }
    std::vector<Status> endings;
    // As a route holds the model until the ending.
    auto held = std::make_shared<int>(0);
    (*handler)->Start(std::move(request),
                      [&endings, held](const StatusOr<TextResponse>& answer) {
                        endings.push_back(answer.status());
                      },
                      {});
    graph.AnswerAll();
    ASSERT_EQ(endings.size(), 1U);
    EXPECT_EQ(held.use_count(), 1);
    if (throws_at == 4) {  // none does
      EXPECT_TRUE(endings[0].ok()) << endings[0].ToString();
      EXPECT_EQ(graph.num_started, 4);
    } else {
      EXPECT_EQ(endings[0].code(), StatusCode::kUnavailable);
      EXPECT_LE(graph.num_started, throws_at + 2);
    }
  }
}

}  // namespace
}  // namespace millrace::handlers
