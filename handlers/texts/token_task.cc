// Texts are encoded here, where the places of tokens are known; the task over
// texts takes the ids and gives the scores of each token.
#include "handlers/texts/token_task.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "config/base/json.h"
#include "config/base/out_of_memory.h"
#include "config/base/read_file.h"
#include "config/base/utf8.h"
#include "handlers/json_fields.h"
#include "handlers/tasks/class_scores.h"
#include "handlers/texts/text_files.h"
#include "handlers/texts/text_task.h"
#include "handlers/texts/token_entities.h"
#include "handlers/texts/token_words.h"
#include "models/text/token_spans.h"

namespace millrace::handlers {
namespace {

using Json = nlohmann::ordered_json;
using models::TokenSpan;

constexpr size_t kMaxTokenizerBytes = size_t{256} << 20;

struct Asked {
  Aggregation aggregation = Aggregation::kNone;
  std::vector<std::string> ignored;
  bool truncate = false;
};

// What is kept of a text while its tokens are with the graph.
struct Text {
  std::string text = {};
  std::vector<TokenSpan> tokens = {};  // those that were not cut off
};

// A list of texts, or one text with commas between them.
StatusOr<std::vector<std::string>> ReadLabels(const Json& value) {
  std::vector<std::string> labels;
  if (value.is_array()) {
    for (size_t i = 0; i < value.size(); ++i) {
      ASSIGN_OR_RETURN(
          labels.emplace_back(),
          AsString(value[i], "ignore_labels[" + std::to_string(i) + "]"));
    }
    return labels;
  }
  if (!value.is_string()) {
    return WrongType("ignore_labels", "a list of labels", value);
  }
  std::string_view left = value.get_ref<const std::string&>();
  while (!left.empty()) {
    const size_t comma = left.find(',');
    labels.emplace_back(left.substr(0, comma));
    left = comma == std::string_view::npos ? "" : left.substr(comma + 1);
  }
  return labels;
}

// Characters of a text before a place in its bytes; asked in any order.
class Characters {
 public:
  explicit Characters(std::string_view text) : before_(text.size() + 1) {
    int64_t count = 0;
    for (size_t i = 0; i <= text.size(); ++i) {
      before_[i] = count;
      const bool next_starts =
          i < text.size() && (static_cast<uint8_t>(text[i]) & 0xc0) != 0x80;
      count += next_starts;
    }
  }
  int64_t Before(size_t at) const { return before_[at]; }

 private:
  std::vector<int64_t> before_;
};

class TokenTask final : public TaskHandler {
 public:
  TokenTask(TaskParts parts, TextFiles files,
            std::unique_ptr<const models::SpanEncoder> encoder,
            TokenWords words, std::unique_ptr<TextHandler> texts)
      : parts_(std::move(parts)),
        files_(std::move(files)),
        encoder_(std::move(encoder)),
        words_(std::move(words)),
        texts_(std::move(texts)),
        num_before_(NumBefore(files_.form)) {}

  void Start(TaskRequest request, Done done, std::stop_token stop) override {
    auto asked = ReadAsked(request.parameters.get());
    if (!asked.ok()) return done(asked.status());
    TextRequest texts;
    texts.priority = request.priority;
    texts.deadline = request.deadline;
    texts.trace = request.trace;
    const auto kept = std::make_shared<std::vector<Text>>();
    const bool is_one = request.parts.size() == 1;
    for (TaskPart& part : request.parts) {
      if (stop.stop_requested()) return done(Cancelled("the client left"));
      if (kept->size() >= TextRequest::kMaxItems) break;  // refused below
      Text text{.text = std::move(part.bytes)};
      auto ids = Encode(*asked, text);
      if (!ids.ok()) {
        return done(is_one ? ids.status()
                           : ids.status().Prefixed(
                                 "text " + std::to_string(kept->size())));
      }
      kept->push_back(std::move(text));
      texts.items.push_back({.ids = *std::move(ids)});
    }
    if (request.parts.empty() || request.parts.size() > kept->size()) {
      return done(InvalidArgument(
                      "the request has " +
                      std::to_string(request.parts.size()) + " texts; 1 to " +
                      std::to_string(TextRequest::kMaxItems) + " are allowed")
                      .At("inputs"));
    }
    texts_->Start(
        std::move(texts),
        [this, kept, asked = *std::move(asked),
         done = std::move(done)](const StatusOr<TextResponse>& answer) {
          done(CatchOutOfMemory([&]() -> StatusOr<TaskResponse> {
            RETURN_IF_ERROR(answer.status());
            return Answer(*kept, asked, *answer);
          }));
        },
        std::move(stop));
  }

  Status HasPlace() const override { return parts_.tensors->HasPlace(); }
  TextHandler* scores() const { return texts_.get(); }

 private:
  // Tokens that stand before a text's own.
  static size_t NumBefore(const models::PostProcessor& form) {
    constexpr int32_t kMark = -7;  // no token's id
    const int32_t ids[] = {kMark};
    const std::vector<int32_t> all = form.Of(ids, 1 << 20).ids;
    return static_cast<size_t>(std::find(all.begin(), all.end(), kMark) -
                               all.begin());
  }

  StatusOr<Asked> ReadAsked(const Json* parameters) const {
    const config::EntitySettings& settings = parts_.answer.entities;
    Asked asked{.ignored = settings.ignore_labels,
                .truncate = parts_.settings->text.auto_truncate};
    std::string name = settings.aggregation_strategy;
    if (parameters != nullptr) {
      ASSIGN_OR_RETURN(const auto given,
                       ReadString(*parameters, "aggregation_strategy"));
      if (given.has_value()) name = *given;
      ASSIGN_OR_RETURN(const auto cut, ReadBool(*parameters, "truncate"));
      asked.truncate = cut.value_or(asked.truncate);
      if (const Json* labels = FindField(*parameters, "ignore_labels")) {
        ASSIGN_OR_RETURN(asked.ignored, ReadLabels(*labels));
      }
    }
    const auto aggregation = AggregationFromName(name);
    if (!aggregation.has_value()) {
      return InvalidArgument("aggregation_strategy is '" + Shortened(name, 60) +
                             "' but must be one of: none, simple, first, "
                             "average, max")
          .At("aggregation_strategy");
    }
    asked.aggregation = *aggregation;
    return asked;
  }

  StatusOr<std::vector<int32_t>> Encode(const Asked& asked, Text& text) const {
    if (!IsValidUtf8(text.text)) {
      return InvalidArgument("the text is not valid UTF-8 at byte " +
                             std::to_string(ValidUtf8Prefix(text.text)) +
                             "; send text, not a file of another kind")
          .At("inputs");
    }
    ASSIGN_OR_RETURN(text.tokens, encoder_->Encode(text.text));
    const int64_t around = files_.form.NumAdded(false);
    const int64_t limit = texts_->facts().max_tokens;
    const int64_t whole = static_cast<int64_t>(text.tokens.size()) + around;
    if (whole > limit && !asked.truncate) {
      return InvalidArgument("the text has " + std::to_string(whole) +
                             " tokens but model '" + parts_.model + "' takes " +
                             std::to_string(limit) +
                             "; shorten it, or ask for truncation (truncate)")
          .At("inputs")
          .Because("context_length_exceeded");
    }
    if (whole > limit) {
      text.tokens.resize(
          static_cast<size_t>(std::max<int64_t>(limit - around, 0)));
    }
    std::vector<int32_t> ids;
    for (const TokenSpan& token : text.tokens) ids.push_back(token.id);
    ids = files_.form.Of(ids, limit).ids;
    if (!ids.empty()) return ids;
    return InvalidArgument("a text has no tokens; send one that is not empty")
        .At("inputs");
  }

  StatusOr<TaskResponse> Answer(const std::vector<Text>& texts,
                                const Asked& asked,
                                const TextResponse& answer) const {
    TaskResponse response;
    for (size_t i = 0; i < texts.size(); ++i) {
      ASSIGN_OR_RETURN(std::string entities,
                       AnswerOne(texts[i], asked, answer.rows[i]));
      response.results.push_back(std::move(entities));
    }
    return response;
  }

  StatusOr<std::string> AnswerOne(const Text& text, const Asked& asked,
                                  const TextRow& row) const {
    const size_t num_labels =
        row.values.size() / static_cast<size_t>(row.num_tokens);
    std::vector<std::string> labels;
    for (size_t i = 0; i < num_labels; ++i) {
      labels.push_back(LabelOf(texts_->facts(), i));
    }
    const Characters characters(text.text);
    std::vector<LabelledToken> tokens;
    for (size_t i = 0; i < text.tokens.size(); ++i) {
      const size_t at = num_before_ + i;
      LabelledToken token = Labelled(text, text.tokens[i], characters);
      token.index = static_cast<int64_t>(at);
      const auto scores =
          std::span(row.values).subspan(at * num_labels, num_labels);
      token.scores.assign(scores.begin(), scores.end());
      Activate("softmax", token.scores);
      if (std::any_of(token.scores.begin(), token.scores.end(),
                      [](double score) { return std::isnan(score); })) {
        return Internal("the model's scores of token " + std::to_string(at) +
                        " are no numbers");
      }
      tokens.push_back(std::move(token));
    }
    Json answer = Json::array();
    for (const Entity& entity :
         EntitiesOf(tokens, asked.aggregation, labels, words_)) {
      if (std::find(asked.ignored.begin(), asked.ignored.end(), entity.label) ==
          asked.ignored.end()) {
        answer.push_back(JsonOf(entity));
      }
    }
    return DumpJson(answer);
  }

  LabelledToken Labelled(const Text& text, const TokenSpan& span,
                         const Characters& characters) const {
    LabelledToken token;
    token.start = characters.Before(span.begin);
    token.end = characters.Before(span.end);
    if (words_.IsUnknown(span.id)) {
      token.word = text.text.substr(span.begin, span.end - span.begin);
      return token;
    }
    token.word = words_.Of(span.id);
    if (words_.knows_words()) {
      // "##able" is longer than the text that it stands for.
      const Characters word(token.word);
      token.is_subword =
          word.Before(token.word.size()) != token.end - token.start;
    } else {
      token.is_subword =
          span.begin > 0 && text.text[span.begin - 1] != ' ' &&
          (span.begin == text.text.size() || text.text[span.begin] != ' ');
    }
    return token;
  }

  static Json JsonOf(const Entity& entity) {
    const bool is_token = entity.index >= 0;
    Json json = {{is_token ? "entity" : "entity_group", entity.label},
                 {"score", entity.score}};
    if (is_token) json["index"] = entity.index;
    json["word"] = entity.word;
    json["start"] = entity.start;
    json["end"] = entity.end;
    return json;
  }

  const TaskParts parts_;
  const TextFiles files_;
  const std::unique_ptr<const models::SpanEncoder> encoder_;
  const TokenWords words_;
  const std::unique_ptr<TextHandler> texts_;
  const size_t num_before_;
};

// Of a graph that tells how many labels it has, each has a name or none does.
Status CheckLabels(const TaskParts& parts, const TextFiles& files) {
  if (files.labels.empty()) return OkStatus();
  const auto num_names = static_cast<int64_t>(files.labels.size());
  for (const models::TensorSpec& spec : parts.tensors->outputs()) {
    if (!spec.rank_known || spec.dims.size() != 3) continue;
    if (spec.dims[2] < 0 || spec.dims[2] == num_names) return OkStatus();
  }
  std::string found;
  for (const models::TensorSpec& spec : parts.tensors->outputs()) {
    if (!spec.rank_known) return OkStatus();
    found += (found.empty() ? "'" : ", '") + spec.name + "' " + spec.text;
  }
  return InvalidArgument(
             "there are names of " + std::to_string(num_names) +
             " labels (labels, or id2label of config.json), but no output "
             "has so many: " +
             found)
      .At("labels");
}

}  // namespace

TextHandler* TokenScores(TaskHandler* task) {
  const auto* tokens = dynamic_cast<const TokenTask*>(task);
  return tokens == nullptr ? nullptr : tokens->scores();
}

StatusOr<std::unique_ptr<TaskHandler>> MakeTokenTask(const TaskParts& parts) {
  ASSIGN_OR_RETURN(TextFiles files, ReadTextFiles(parts));
  ASSIGN_OR_RETURN(
      const std::string path,
      FindTaskFile(parts, "tokenizer", parts.settings->text.tokenizer));
  ASSIGN_OR_RETURN(const std::string json,
                   ReadFileOf("tokenizer", path, kMaxTokenizerBytes));
  auto encoder = models::SpanEncoder::Create(*files.tokenizer, json);
  if (!encoder.ok()) return encoder.status().Prefixed("'" + path + "'");
  auto words = TokenWords::Create(*files.tokenizer, json);
  if (!words.ok()) return words.status().Prefixed("'" + path + "'");
  ASSIGN_OR_RETURN(std::unique_ptr<TextHandler> texts,
                   MakeTextHandler(parts, files));
  RETURN_IF_ERROR(CheckLabels(parts, files));
  return std::make_unique<TokenTask>(parts, std::move(files),
                                     *std::move(encoder), *std::move(words),
                                     std::move(texts));
}

}  // namespace millrace::handlers
