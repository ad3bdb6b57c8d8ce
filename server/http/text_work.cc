#include "server/http/text_work.h"

#include <charconv>
#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "config/base/out_of_memory.h"
#include "handlers/json_fields.h"

namespace millrace::server::http {
namespace {

using Json = nlohmann::ordered_json;
using handlers::TextItem;

constexpr int64_t kMaxTruncation = 1 << 20;

Status Missing(const std::string& field, std::string_view what) {
  return InvalidArgument(field + " is missing; send " + std::string(what))
      .At(field);
}

Status CheckCount(const std::string& field, size_t count) {
  constexpr size_t kMost = handlers::TextRequest::kMaxItems;
  if (count >= 1 && count <= kMost) return OkStatus();
  return InvalidArgument(field + " has " + std::to_string(count) +
                         " entries; 1 to " + std::to_string(kMost) +
                         " are allowed")
      .At(field);
}

StatusOr<std::vector<int32_t>> ReadIds(const Json& list,
                                       const std::string& path) {
  std::vector<int32_t> ids;
  ids.reserve(list.size());
  for (size_t i = 0; i < list.size(); ++i) {
    ASSIGN_OR_RETURN(
        const int64_t id,
        handlers::AsInt(list[i], path + "[" + std::to_string(i) + "]",
                        {.min = 0, .max = INT32_MAX}));
    ids.push_back(static_cast<int32_t>(id));
  }
  return ids;
}

}  // namespace

StatusOr<ModelHandle> BorrowForTexts(const Site& site, Exchange& exchange,
                                     const Json& body) {
  ASSIGN_OR_RETURN(std::optional<std::string> name,
                   handlers::ReadString(body, "model"));
  if (!name.has_value()) {
    auto servables = site.services.repository->List();
    std::erase_if(servables,
                  [](const auto& each) { return !each->ForTexts().ok(); });
    if (servables.size() != 1) {
      return InvalidArgument(
                 "model is missing and this server has " +
                 std::to_string(servables.size()) +
                 " models with a task over texts; name one of those that GET "
                 "/v2/models lists")
          .At("model");
    }
    name = servables.front()->id();
  }
  name = ServedName(site, *std::move(name));
  exchange.SetModel(*name);
  return BorrowNamed(site, exchange, *name, "");
}

StatusOr<std::vector<TextItem>> ReadInputs(const Json& body,
                                           const char* field) {
  const std::string name = field;
  const Json* input = handlers::FindField(body, field);
  if (input == nullptr) return Missing(name, "a text or a list of texts");
  std::vector<TextItem> items;
  if (input->is_string()) {
    items.push_back({.text = input->get<std::string>()});
    return items;
  }
  if (!input->is_array()) {
    return handlers::WrongType(
        name, "a text, a list of texts or a list of token ids", *input);
  }
  if (!input->empty() && input->front().is_number()) {
    ASSIGN_OR_RETURN(std::vector<int32_t> ids, ReadIds(*input, name));
    items.push_back({.ids = std::move(ids)});
    return items;
  }
  RETURN_IF_ERROR(CheckCount(name, input->size()));
  for (size_t i = 0; i < input->size(); ++i) {
    const std::string path = name + "[" + std::to_string(i) + "]";
    const Json& item = (*input)[i];
    if (item.is_array()) {
      ASSIGN_OR_RETURN(std::vector<int32_t> ids, ReadIds(item, path));
      items.push_back({.ids = std::move(ids)});
    } else {
      ASSIGN_OR_RETURN(std::string text, handlers::AsString(item, path));
      items.push_back({.text = std::move(text)});
    }
  }
  return items;
}

StatusOr<std::vector<std::string>> ReadTexts(const Json& body,
                                             const char* field) {
  const std::string name = field;
  const Json* input = handlers::FindField(body, field);
  if (input == nullptr) return Missing(name, "a text or a list of texts");
  if (input->is_string()) {
    return std::vector<std::string>{input->get<std::string>()};
  }
  if (!input->is_array()) {
    return handlers::WrongType(name, "a text or a list of texts", *input);
  }
  RETURN_IF_ERROR(CheckCount(name, input->size()));
  std::vector<std::string> texts;
  for (size_t i = 0; i < input->size(); ++i) {
    const std::string path = name + "[" + std::to_string(i) + "]";
    const Json& item = (*input)[i];
    const Json* text = handlers::FindField(item, "text");
    ASSIGN_OR_RETURN(
        std::string read,
        handlers::AsString(text == nullptr ? item : *text,
                           text == nullptr ? path : path + ".text"));
    texts.push_back(std::move(read));
  }
  return texts;
}

Status ReadTruncation(const Json& body, handlers::TextRequest& request) {
  ASSIGN_OR_RETURN(const auto cut, handlers::ReadBool(body, "truncate"));
  request.truncate = cut.value_or(false);
  ASSIGN_OR_RETURN(const auto tokens,
                   handlers::ReadInt(body, "truncate_prompt_tokens",
                                     {.min = -1, .max = kMaxTruncation}));
  if (!tokens) return OkStatus();
  request.truncate = true;
  if (*tokens > 0) request.max_tokens = *tokens;
  return OkStatus();
}

Status WantTask(const handlers::TextTaskFacts& facts, const std::string& model,
                std::initializer_list<config::TaskKind> wanted,
                std::string_view route) {
  std::string names;
  for (const config::TaskKind kind : wanted) {
    if (facts.kind == kind) return OkStatus();
    names.append(names.empty() ? "" : " or ").append(config::TaskName(kind));
  }
  return InvalidArgument("the model '" + model + "' has the task " +
                         std::string(config::TaskName(facts.kind)) + "; " +
                         std::string(route) + " needs " + names)
      .At("model")
      .Because("wrong_model_kind");
}

Status RunTexts(const Site& site, const std::shared_ptr<Exchange>& exchange,
                ModelHandle model, handlers::TextRequest request, TextForm form,
                ErrorForm error) {
  ASSIGN_OR_RETURN(handlers::TextHandler * handler, model->ForTexts());
  ASSIGN_OR_RETURN(request.deadline, ReadDeadline(*exchange));
  request.priority = PriorityOf(*exchange, request.priority);
  request.trace = exchange->trace();
  exchange->trace()->Stamp(Stage::kParsed, site.services.clock->Now());
  // Let go of by the ending itself: the last copy of the closure may die on the
  // model's own thread, which must not be the one to unload it.
  auto held = std::make_shared<std::optional<ModelHandle>>(std::move(model));
  handler->Start(
      std::move(request),
      [exchange, held, handler, error,
       form = std::move(form)](const StatusOr<handlers::TextResponse>& answer) {
        StatusOr<HttpResponse> response =
            CatchOutOfMemory([&]() -> StatusOr<HttpResponse> {
              RETURN_IF_ERROR(answer.status());
              exchange->SetTokens(answer->num_tokens(), -1);
              return form(handler->facts(), *answer);
            });
        exchange->Send(response.ok() ? *std::move(response)
                                     : error(response.status()));
        held->reset();
      },
      exchange->stop_token());
  return OkStatus();
}

Json TextUsage(const handlers::TextResponse& response) {
  const int64_t tokens = response.num_tokens();
  return {{"prompt_tokens", tokens}, {"total_tokens", tokens}};
}

void AppendNumbers(const std::vector<float>& row, std::string& out) {
  char number[32];
  out += '[';
  for (size_t i = 0; i < row.size(); ++i) {
    if (i > 0) out += ',';
    // JSON has no NaN and no infinity.
    const float value = row[i] - row[i] == 0 ? row[i] : 0;
    const auto [end, ec] =
        std::to_chars(number, number + sizeof(number), value);
    out.append(number, static_cast<size_t>(end - number));
  }
  out += ']';
}

int64_t CreatedNow() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace millrace::server::http
