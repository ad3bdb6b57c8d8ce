#include "handlers/texts/text_tensors.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "config/base/deadline.h"
#include "config/base/out_of_memory.h"
#include "handlers/forwarding_handler.h"
#include "handlers/task_forms.h"
#include "handlers/texts/text_ports.h"
#include "models/tensor/strings.h"

namespace millrace::handlers {
namespace {

using config::TaskKind;
using models::DType;

constexpr const char* kOutput = "output-0";
constexpr const char* kScores = "scores";

bool HasTexts(const TensorRequest& request) {
  return std::any_of(request.inputs.begin(), request.inputs.end(),
                     [](const NamedTensor& input) {
                       return input.tensor.dtype() == models::kString;
                     });
}

// What the graph says of the numbers of a row; -1: they vary.
int64_t RowSize(const TensorHandler& graph, TaskKind kind) {
  const StatusOr<TextPorts> ports = TextPorts::Find(graph, kind);
  if (!ports.ok()) return -1;
  for (const models::TensorSpec& spec : graph.outputs()) {
    if (spec.name != ports->output) continue;
    return spec.rank_known && !spec.dims.empty() ? spec.dims.back() : -1;
  }
  return -1;
}

models::TensorSpec Bytes(std::string name, std::vector<int64_t> dims = {}) {
  const bool has_dims = !dims.empty();
  return {.name = std::move(name),
          .dtype = models::kString,
          .dims = std::move(dims),
          .rank_known = has_dims,
          .text = "BYTES"};
}

class TextTensors final : public ForwardingHandler, public HasTaskForms {
 public:
  TextTensors(std::unique_ptr<TensorHandler> graph, TextHandler* texts,
              Pool* pool)
      : ForwardingHandler(std::move(graph)), texts_(texts), pool_(pool) {}

  std::vector<TaskForm> task_forms() const override {
    if (of_tokens()) {
      std::vector<TaskForm> forms = TaskFormsOf(inner());
      forms.push_back({{Bytes("")},
                       {{.name = kOutput,
                         .dtype = DType::kI64,
                         .dims = {-1, 1, -1},
                         .text = "INT64"}}});
      return forms;
    }
    const int64_t size = RowSize(inner(), kind());
    models::TensorSpec rows{.name = kOutput,
                            .dtype = DType::kF32,
                            .dims = {-1, size},
                            .text = "FP32"};
    if (kind() == TaskKind::kClassifyText) {
      models::TensorSpec best{
          .name = kOutput, .dtype = DType::kI64, .dims = {-1}, .text = "INT64"};
      rows.name = kScores;
      return {{{Bytes("")}, {std::move(best), std::move(rows)}}};
    }
    if (kind() != TaskKind::kRerank) {
      return {{{Bytes("")}, {std::move(rows)}}};
    }
    if (size == 1) rows.dims = {-1};
    rows.rank_known = size > 0;
    return {{{Bytes("", {-1, 2})}, {rows}},
            {{Bytes("query"), Bytes("")}, {rows}}};
  }

  void Start(TensorRequest request, Done done, std::stop_token stop) override {
    if (!HasTexts(request) || (of_tokens() && !AsksClasses(request))) {
      return inner().Start(std::move(request), std::move(done),
                           std::move(stop));
    }
    auto texts = CatchOutOfMemory([&] { return Read(request); });
    if (!texts.ok()) return done(texts.status());
    // Texts are encoded on the pool. Shared because its tasks can be copied.
    auto held = std::make_shared<TextRequest>(*std::move(texts));
    pool_->Continue([this, held, outputs = std::move(request.outputs),
                     done = std::move(done), stop = std::move(stop)] {
      texts_->Start(
          std::move(*held),
          [this, outputs, done](const StatusOr<TextResponse>& answer) {
            done(CatchOutOfMemory([&]() -> StatusOr<TensorResponse> {
              RETURN_IF_ERROR(answer.status());
              return Answer(outputs, *answer);
            }));
          },
          stop);
    });
  }

 private:
  TaskKind kind() const { return texts_->facts().kind; }
  bool of_tokens() const { return kind() == TaskKind::kTokenClassify; }

  static bool AsksClasses(const TensorRequest& request) {
    return std::find(request.outputs.begin(), request.outputs.end(), kOutput) !=
           request.outputs.end();
  }

  StatusOr<TextRequest> Read(const TensorRequest& request) const {
    for (const std::string& name : request.outputs) {
      if (name == kOutput) continue;
      if (name == kScores && kind() == TaskKind::kClassifyText) continue;
      return InvalidArgument(
                 "output '" + name +
                 "' is not one of what texts are answered with: '" + kOutput +
                 (kind() == TaskKind::kClassifyText ? "', 'scores'" : "'"))
          .At(name);
    }
    for (const NamedTensor& input : request.inputs) {
      if (input.tensor.dtype() == models::kString) continue;
      return InvalidArgument("input '" + input.name +
                             "' stands beside texts; send texts alone, or the "
                             "tensors of the graph")
          .At(input.name);
    }
    TextRequest texts;
    texts.priority = request.priority;
    texts.deadline =
        EarlierDeadline(request.deadline, request.timeout, Clock::Real());
    texts.trace = request.trace;
    ASSIGN_OR_RETURN(texts.items, kind() == TaskKind::kRerank
                                      ? Pairs(request.inputs)
                                      : Texts(request.inputs));
    return texts;
  }

  static StatusOr<std::vector<TextItem>> Texts(
      const std::vector<NamedTensor>& inputs) {
    if (inputs.size() != 1) {
      return InvalidArgument("there are " + std::to_string(inputs.size()) +
                             " inputs of texts; send one")
          .At("inputs");
    }
    std::vector<TextItem> items;
    for (const std::string_view text : models::StringsIn(inputs[0].tensor)) {
      items.push_back({.text = std::string(text)});
    }
    return items;
  }

  static StatusOr<std::vector<TextItem>> Pairs(
      const std::vector<NamedTensor>& inputs) {
    const models::Tensor* first = &inputs[0].tensor;
    std::vector<TextItem> items;
    if (inputs.size() == 1 && first->shape().rank() == 2 &&
        first->shape()[1] == 2) {
      const auto texts = models::StringsIn(*first);
      for (size_t i = 0; i < texts.size(); i += 2) {
        items.push_back(
            {.text = std::string(texts[i]), .pair = std::string(texts[i + 1])});
      }
      return items;
    }
    const bool is_second = inputs.size() == 2 && inputs[1].name == "query";
    if (inputs.size() != 2 || (!is_second && inputs[0].name != "query")) {
      return InvalidArgument(
                 "the model scores pairs of texts; send BYTES [pairs, 2], or "
                 "two inputs, one of them 'query'")
          .At("inputs");
    }
    const auto queries = models::StringsIn(inputs[is_second ? 1 : 0].tensor);
    const auto texts = models::StringsIn(inputs[is_second ? 0 : 1].tensor);
    if (queries.size() != 1 && queries.size() != texts.size()) {
      return InvalidArgument("input 'query' has " +
                             std::to_string(queries.size()) + " texts and '" +
                             inputs[is_second ? 0 : 1].name + "' " +
                             std::to_string(texts.size()) +
                             "; send one query, or as many as texts")
          .At("query");
    }
    for (size_t i = 0; i < texts.size(); ++i) {
      items.push_back(
          {.text = std::string(queries[queries.size() == 1 ? 0 : i]),
           .pair = std::string(texts[i])});
    }
    return items;
  }

  // [texts, 1, tokens]
  static StatusOr<TensorResponse> ClassesOfTokens(const TextResponse& answer) {
    constexpr int64_t kNoToken = -100;
    int64_t length = 0;
    for (const TextRow& row : answer.rows) {
      length = std::max(length, row.num_tokens);
    }
    const auto num_rows = static_cast<int64_t>(answer.rows.size());
    models::Tensor classes =
        models::Tensor::Make(DType::kI64, {num_rows, 1, length});
    auto* next = classes.data<int64_t>();
    for (const TextRow& row : answer.rows) {
      const auto size = static_cast<int64_t>(row.values.size()) /
                        std::max<int64_t>(row.num_tokens, 1);
      for (int64_t token = 0; token < length; ++token, ++next) {
        const auto scores = row.values.begin() + token * size;
        *next = token < row.num_tokens
                    ? std::max_element(scores, scores + size) - scores
                    : kNoToken;
      }
    }
    TensorResponse response;
    response.outputs.push_back({kOutput, std::move(classes)});
    return response;
  }

  StatusOr<TensorResponse> Answer(const std::vector<std::string>& outputs,
                                  const TextResponse& answer) const {
    if (of_tokens()) return ClassesOfTokens(answer);
    const auto num_rows = static_cast<int64_t>(answer.rows.size());
    const size_t size = answer.rows.empty() ? 0 : answer.rows[0].values.size();
    models::Tensor values = models::Tensor::Make(
        DType::kF32, {num_rows, static_cast<int64_t>(size)});
    models::Tensor best = models::Tensor::Make(DType::kI64, {num_rows});
    auto* next = values.data<float>();
    for (int64_t r = 0; r < num_rows; ++r) {
      const auto& row = answer.rows[static_cast<size_t>(r)].values;
      if (row.size() != size) {
        return Internal("the model gave rows of different sizes");
      }
      next = std::copy(row.begin(), row.end(), next);
      best.data<int64_t>()[r] =
          std::max_element(row.begin(), row.end()) - row.begin();
    }
    if (kind() == TaskKind::kRerank && size == 1) {
      values = values.Reshaped({num_rows});
    }
    TensorResponse response;
    if (kind() != TaskKind::kClassifyText) {
      response.outputs.push_back({kOutput, std::move(values)});
      return response;
    }
    const std::vector<std::string> all = {kOutput, kScores};
    for (const std::string& name : outputs.empty() ? all : outputs) {
      response.outputs.push_back(
          {name, name == kScores ? values.Share() : best.Share()});
    }
    return response;
  }

  TextHandler* const texts_;
  Pool* const pool_;
};

}  // namespace

std::unique_ptr<TensorHandler> MakeTextTensors(
    std::unique_ptr<TensorHandler> graph, TextHandler* texts, Pool* pool) {
  return std::make_unique<TextTensors>(std::move(graph), texts, pool);
}

}  // namespace millrace::handlers
