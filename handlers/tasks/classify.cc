// Labels that stand for several classes (ImageNet has two cranes) are told
// apart by the class's number, for the answer is an object.
#include <nlohmann/json.hpp>
#include <unordered_set>
#include <utility>

#include "config/base/json.h"
#include "handlers/json_fields.h"
#include "handlers/tasks/class_scores.h"
#include "handlers/tasks/image_task.h"
#include "handlers/tasks/labels.h"

namespace millrace::handlers {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kMaxTopK = 1 << 20;

class ClassifyAnswer final : public ImageAnswer {
 public:
  ClassifyAnswer(Labels labels, int64_t top_k, std::string activation)
      : labels_(std::move(labels)),
        top_k_(top_k),
        activation_(std::move(activation)) {}

  Status Check(const Json& parameters) const override {
    return TopK(parameters).status();
  }

  StatusOr<std::string> Make(const TensorResponse& outputs,
                             const models::ImagePlacement&,
                             const Json& parameters) const override {
    ASSIGN_OR_RETURN(const int64_t top_k, TopK(parameters));
    ASSIGN_OR_RETURN(std::vector<double> scores,
                     Reals(outputs.outputs.front().tensor));
    Activate(activation_, scores);
    ASSIGN_OR_RETURN(const std::vector<ClassScore> best,
                     BestScores(scores, top_k));
    // Appended, for the object looks for a name from its front.
    using Members = Json::object_t::Container;
    Json answer = Json::object();
    auto& members = static_cast<Members&>(answer.get_ref<Json::object_t&>());
    std::unordered_set<std::string> taken;
    for (const ClassScore& each : best) {
      std::string name = labels_.NameOf(each.class_idx);
      if (taken.contains(name)) {
        name += " (" + std::to_string(each.class_idx) + ")";
      }
      if (!taken.insert(name).second) continue;
      members.emplace_back(std::move(name), each.score);
    }
    return DumpJson(answer);
  }

 private:
  StatusOr<int64_t> TopK(const Json& parameters) const {
    ASSIGN_OR_RETURN(const auto asked,
                     ReadInt(parameters, "top_k", {.min = 0, .max = kMaxTopK}));
    return asked.value_or(top_k_);
  }

  const Labels labels_;
  const int64_t top_k_;
  const std::string activation_;
};

}  // namespace

StatusOr<std::unique_ptr<ImageAnswer>> MakeClassifyAnswer(
    const TaskParts& parts) {
  ASSIGN_OR_RETURN(Labels labels, Labels::Load(parts));
  const models::TensorSpec& scores = parts.tensors->outputs().front();
  if (scores.dtype != models::DType::kF32 &&
      scores.dtype != models::DType::kF64) {
    return InvalidArgument(
               "task 'classify' needs scores of classes as the "
               "first output, and '" +
               scores.name + "' is " + scores.text)
        .At("task");
  }
  return std::make_unique<ClassifyAnswer>(
      std::move(labels), parts.settings->top_k, parts.settings->activation);
}

}  // namespace millrace::handlers
