#include "handlers/texts/text_parts.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "config/base/json.h"
#include "config/base/out_of_memory.h"
#include "handlers/json_fields.h"
#include "handlers/tasks/class_scores.h"

namespace millrace::handlers {
namespace {

using config::TaskKind;
using Json = nlohmann::ordered_json;

constexpr int64_t kMaxTopK = 1'000'000;

// Items that one result answers.
struct Group {
  size_t size = 1;
  bool is_list = false;
};

struct Items {
  std::vector<TextItem> items;
  std::vector<Group> groups;
};

StatusOr<std::string> Number(float value) {
  if (!std::isfinite(value)) {
    return Internal("the model gave a number that is not finite");
  }
  std::array<char, 32> text;
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value);
  return std::string(text.data(), end.ptr);
}

// The first of these keys that the object has; null: none.
const Json* Any(const Json& object, std::initializer_list<const char*> keys) {
  for (const char* key : keys) {
    if (const Json* value = FindField(object, key)) return value;
  }
  return nullptr;
}

Status NoPair() {
  return InvalidArgument(
             "the model scores pairs of texts; send {\"query\": \"…\", "
             "\"texts\": [\"…\"]} or {\"text\": \"…\", \"text_pair\": \"…\"}")
      .At("inputs");
}

class TextParts final : public TaskHandler {
 public:
  TextParts(TextHandler* texts, const TensorHandler* tensors)
      : texts_(texts), tensors_(tensors) {}

  void Start(TaskRequest request, Done done, std::stop_token stop) override {
    auto texts = CatchOutOfMemory([&] { return Read(request); });
    if (!texts.ok()) return done(texts.status());
    texts_->Start(
        std::move(texts->request),
        [this, groups = std::move(texts->groups), top_k = texts->top_k,
         done = std::move(done)](const StatusOr<TextResponse>& answer) {
          done(CatchOutOfMemory([&]() -> StatusOr<TaskResponse> {
            RETURN_IF_ERROR(answer.status());
            return Answer(groups, top_k, *answer);
          }));
        },
        std::move(stop));
  }

  Status HasPlace() const override { return tensors_->HasPlace(); }

 private:
  struct Asked {
    TextRequest request;
    std::vector<Group> groups;
    int64_t top_k = 0;
  };

  bool takes_pairs() const { return texts_->facts().kind == TaskKind::kRerank; }

  StatusOr<Asked> Read(TaskRequest& request) const {
    Asked asked;
    asked.top_k = texts_->facts().top_k;
    asked.request.priority = request.priority;
    asked.request.deadline = request.deadline;
    asked.request.trace = request.trace;
    if (request.parameters != nullptr) {
      RETURN_IF_ERROR(ReadParameters(*request.parameters, asked));
    }
    const bool is_named =
        takes_pairs() &&
        std::any_of(request.parts.begin(), request.parts.end(),
                    [](const TaskPart& part) { return part.name == "query"; });
    ASSIGN_OR_RETURN(Items items, is_named ? NamedPairs(request.parts)
                                           : Each(request.parts));
    asked.request.items = std::move(items.items);
    asked.groups = std::move(items.groups);
    return asked;
  }

  static Status ReadParameters(const Json& parameters, Asked& asked) {
    TextRequest& request = asked.request;
    ASSIGN_OR_RETURN(const auto cut, ReadBool(parameters, "truncate"));
    request.truncate = cut.value_or(false);
    ASSIGN_OR_RETURN(request.dimensions,
                     ReadInt(parameters, "dimensions", {.min = 1}));
    ASSIGN_OR_RETURN(request.normalize, ReadBool(parameters, "normalize"));
    ASSIGN_OR_RETURN(const auto raw, ReadBool(parameters, "raw_scores"));
    request.raw_scores = raw.value_or(false);
    ASSIGN_OR_RETURN(const auto top_k,
                     ReadInt(parameters, "top_k", {.min = 0, .max = kMaxTopK}));
    asked.top_k = top_k.value_or(asked.top_k);
    return OkStatus();
  }

  // A form's fields or two BYTES tensors: queries and what they are paired
  // with.
  static StatusOr<Items> NamedPairs(std::vector<TaskPart>& parts) {
    std::vector<std::string> queries;
    Items items;
    for (TaskPart& part : parts) {
      if (part.name == "query") {
        queries.push_back(std::move(part.bytes));
      } else {
        items.items.push_back({.pair = std::move(part.bytes)});
      }
    }
    const size_t num_texts = items.items.size();
    if (num_texts == 0) return NoPair();
    if (queries.size() != 1 && queries.size() != num_texts) {
      return InvalidArgument("there are " + std::to_string(queries.size()) +
                             " queries and " + std::to_string(num_texts) +
                             " texts; send one query, or as many as texts")
          .At("query");
    }
    for (size_t i = 0; i < num_texts; ++i) {
      items.items[i].text = queries[queries.size() == 1 ? 0 : i];
    }
    items.groups.resize(num_texts);
    return items;
  }

  StatusOr<Items> Each(std::vector<TaskPart>& parts) const {
    Items all;
    for (TaskPart& part : parts) {
      // Refused by the task over texts, which says how many it takes.
      if (all.items.size() > TextRequest::kMaxItems) break;
      Group group;
      if (part.content_type == "application/json" || takes_pairs()) {
        const auto json = ParseJson(part.bytes);
        if (!json.ok()) return takes_pairs() ? NoPair() : json.status();
        const size_t before = all.items.size();
        ASSIGN_OR_RETURN(group.is_list, AddJson(*json, all.items));
        group.size = all.items.size() - before;
      } else {
        all.items.push_back({.text = std::move(part.bytes)});
      }
      all.groups.push_back(group);
    }
    return all;
  }

  // True: a list of them.
  StatusOr<bool> AddJson(const Json& json, std::vector<TextItem>& items) const {
    const bool is_object = json.is_object();
    const Json* query = is_object ? FindField(json, "query") : nullptr;
    const Json* texts =
        is_object ? Any(json, {"texts", "documents", "text", "data", "body"})
                  : &json;
    const Json* pair = is_object ? FindField(json, "text_pair") : nullptr;
    if (texts == nullptr) {
      if (takes_pairs()) return NoPair();
      return InvalidArgument("text is missing; send {\"text\": \"…\"}")
          .At("text");
    }
    if (query != nullptr) pair = texts;
    if (takes_pairs() != (pair != nullptr)) {
      if (takes_pairs()) return NoPair();
      return InvalidArgument("the model takes single texts, not pairs")
          .At(query != nullptr ? "query" : "text_pair");
    }
    const bool is_list = texts->is_array();
    for (size_t i = 0; i < (is_list ? texts->size() : 1); ++i) {
      const Json& value = is_list ? (*texts)[i] : *texts;
      TextItem item;
      ASSIGN_OR_RETURN(item.text, AsString(value, "text"));
      if (query != nullptr) {
        item.pair = std::move(item.text);
        ASSIGN_OR_RETURN(item.text, AsString(*query, "query"));
      } else if (pair != nullptr) {
        const bool each = is_list && pair->is_array();
        if (each && pair->size() != texts->size()) return NoPair();
        ASSIGN_OR_RETURN(item.pair,
                         AsString(each ? (*pair)[i] : *pair, "text_pair"));
      }
      items.push_back(std::move(item));
    }
    return is_list;
  }

  StatusOr<TaskResponse> Answer(const std::vector<Group>& groups, int64_t top_k,
                                const TextResponse& answer) const {
    TaskResponse response;
    size_t at = 0;
    for (const Group& group : groups) {
      std::string result = group.is_list ? "[" : "";
      for (size_t i = 0; i < group.size; ++i) {
        ASSIGN_OR_RETURN(const std::string one,
                         AnswerOne(answer.rows[at++].values, top_k));
        if (i > 0) result += ',';
        result += one;
      }
      if (group.is_list) result += ']';
      response.results.push_back(std::move(result));
    }
    return response;
  }

  StatusOr<std::string> AnswerOne(const std::vector<float>& row,
                                  int64_t top_k) const {
    const TextTaskFacts& facts = texts_->facts();
    if (facts.kind == TaskKind::kClassifyText) {
      const std::vector<double> scores(row.begin(), row.end());
      ASSIGN_OR_RETURN(const std::vector<ClassScore> best,
                       BestScores(scores, top_k));
      std::string text;
      for (const ClassScore& each : best) {
        const auto class_idx = static_cast<size_t>(each.class_idx);
        ASSIGN_OR_RETURN(const std::string score, Number(row[class_idx]));
        text += (text.empty() ? "{" : ",") +
                DumpJson(LabelOf(facts, class_idx)) + ":" + score;
      }
      return text.empty() ? "{}" : text + "}";
    }
    std::string text;
    for (const float value : row) {
      ASSIGN_OR_RETURN(const std::string number, Number(value));
      text += (text.empty() ? "" : ",") + number;
    }
    if (facts.kind == TaskKind::kRerank && row.size() == 1) return text;
    return "[" + text + "]";
  }

  TextHandler* const texts_;
  const TensorHandler* const tensors_;
};

}  // namespace

std::unique_ptr<TaskHandler> MakeTextParts(TextHandler* texts,
                                           const TensorHandler* tensors) {
  return std::make_unique<TextParts>(texts, tensors);
}

}  // namespace millrace::handlers
