// Texts through the handler of a task, before a graph that is faked: its rows
// are those that the test says.
#include "handlers/texts/text_task.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "handlers/make_task.h"
#include "handlers/texts/text_files.h"
#include "tests/unit/handlers/fakes.h"

namespace millrace::handlers {
namespace {

using config::TaskKind;
using models::DType;
using models::Tensor;
using ::testing::HasSubstr;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

using Rows = std::vector<std::vector<float>>;

// A row for each text: the id of its first token says which.
class RowsHandler final : public TensorHandler {
 public:
  RowsHandler(TaskKind kind, Rows rows)
      : rows_(std::move(rows)),
        inputs_{{.name = "input_ids",
                 .dtype = DType::kI64,
                 .dims = {-1, -1},
                 .text = ""}},
        outputs_{
            {.name = kind == TaskKind::kEmbed ? "sentence_embedding" : "logits",
             .dtype = DType::kF32,
             .dims = {-1, -1},
             .text = ""}} {}

  void Start(TensorRequest request, Done done, std::stop_token) override {
    const Tensor& ids = request.inputs.front().tensor;
    const int64_t num_texts = ids.shape()[0];
    Tensor out = Tensor::Make(
        DType::kF32, {num_texts, static_cast<int64_t>(rows_[0].size())});
    float* to = out.data<float>();
    for (int64_t i = 0; i < num_texts; ++i) {
      const int64_t id = ids.data<int64_t>()[i * ids.shape()[1]];
      to = std::ranges::copy(rows_[static_cast<size_t>(id)], to).out;
    }
    TensorResponse response;
    response.outputs.push_back({outputs_[0].name, std::move(out)});
    done(std::move(response));
  }
  Status HasPlace() const override { return OkStatus(); }
  const std::vector<models::TensorSpec>& inputs() const override {
    return inputs_;
  }
  const std::vector<models::TensorSpec>& outputs() const override {
    return outputs_;
  }

 private:
  const Rows rows_;
  const std::vector<models::TensorSpec> inputs_;
  const std::vector<models::TensorSpec> outputs_;
};

// The rows of so many texts, or why there are none.
StatusOr<Rows> Ask(TaskKind kind, const Rows& rows,
                   const std::string& activation = "none") {
  RowsHandler graph(kind, rows);
  auto settings = std::make_shared<config::TaskSettings>();
  settings->kind = kind;
  settings->activation = activation;
  TextFiles files;
  files.tokenizer = ByteTokenizer();
  files.normalize = false;
  auto handler = MakeTextHandler({.model = "m",
                                  .path = "",
                                  .settings = settings,
                                  .tensors = &graph,
                                  .max_rows = 8},
                                 std::move(files));
  RETURN_IF_ERROR(handler.status());
  struct TextRequest request;
  request.trace = std::make_shared<Trace>();
  for (size_t i = 0; i < rows.size(); ++i) {
    request.items.push_back({.ids = std::vector{static_cast<int32_t>(i)}});
  }
  std::optional<StatusOr<Rows>> answer;
  (*handler)->Start(std::move(request),
                    [&](const StatusOr<TextResponse>& response) {
                      if (!response.ok()) {
                        answer = response.status();
                        return;
                      }
                      Rows given;
                      for (const TextRow& row : response->rows)
                        given.push_back(row.values);
                      answer = std::move(given);
                    },
                    {});
  EXPECT_TRUE(answer.has_value());
  return *std::move(answer);
}

std::string Refusal(TaskKind kind, const Rows& rows) {
  const auto answer = Ask(kind, rows);
  EXPECT_EQ(answer.status().code(), StatusCode::kInternal);
  return std::string(answer.status().message());
}

TEST(TextTask, NumbersThatAreNoneAreNoAnswer) {
  const auto vectors = Ask(TaskKind::kEmbed, {{1, 2}, {3, 4}});
  ASSERT_TRUE(vectors.ok()) << vectors.status().ToString();
  EXPECT_EQ(*vectors, (Rows{{1, 2}, {3, 4}}));
  EXPECT_EQ(Refusal(TaskKind::kEmbed, {{1, kNan}}),
            "model 'm' gave NaN or infinity");
  EXPECT_THAT(Refusal(TaskKind::kEmbed, {{1, 2}, {3, kInfinity}}),
              HasSubstr("for text 1"));
  EXPECT_THAT(Refusal(TaskKind::kRerank, {{1}, {-kInfinity}, {2}}),
              HasSubstr("for text 1"));
  EXPECT_THAT(Refusal(TaskKind::kClassifyText, {{1, kNan}}),
              HasSubstr("gave NaN"));
}

TEST(TextTask, AClassMayHaveNoProbability) {
  const auto raw = Ask(TaskKind::kClassifyText, {{1, -kInfinity}});
  ASSERT_TRUE(raw.ok()) << raw.status().ToString();
  EXPECT_EQ(*raw, (Rows{{1, -kInfinity}}));
  const auto scores =
      Ask(TaskKind::kClassifyText, {{1, -kInfinity}}, "softmax");
  ASSERT_TRUE(scores.ok()) << scores.status().ToString();
  EXPECT_EQ(*scores, (Rows{{1, 0}}));
}

}  // namespace
}  // namespace millrace::handlers
