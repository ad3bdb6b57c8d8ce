// POST /v1/chat/completions and /v1/completions: the body becomes one neutral
// request for each prompt, with n completions each. In `prompt`, a list of
// numbers is one prompt of token ids, and a list of strings is one prompt for
// each.
#include <chrono>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "handlers/chat_messages.h"
#include "handlers/json_fields.h"
#include "handlers/request_fields.h"
#include "server/http/answer.h"
#include "server/http/pool_work.h"
#include "server/http/routes.h"
#include "server/request_id.h"

namespace millrace::server::http {
namespace {

using Json = nlohmann::ordered_json;
using handlers::GenerateRequest;
using Prompt = decltype(GenerateRequest::prompt);

Status ReadStreamFields(const Json& body, AnswerShape& shape) {
  ASSIGN_OR_RETURN(const auto stream, handlers::ReadBool(body, "stream"));
  shape.stream = stream.value_or(false);
  ASSIGN_OR_RETURN(const auto timings,
                   handlers::ReadBool(body, "timings_per_token"));
  shape.timings_per_token = timings.value_or(false);
  ASSIGN_OR_RETURN(const Json* options,
                   handlers::ReadObject(body, "stream_options"));
  if (options == nullptr) return OkStatus();
  if (!shape.stream) {
    return InvalidArgument(
               "stream_options is set but stream is false; set stream to true "
               "or leave stream_options out")
        .At("stream_options");
  }
  ASSIGN_OR_RETURN(const auto usage,
                   handlers::ReadBool(*options, "include_usage"));
  ASSIGN_OR_RETURN(const auto continuous,
                   handlers::ReadBool(*options, "continuous_usage_stats"));
  shape.include_usage = usage.value_or(false);
  shape.continuous_usage = shape.include_usage && continuous.value_or(false);
  return OkStatus();
}

StatusOr<handlers::TokenPrompt> ReadIds(const Json& array,
                                        const std::string& path) {
  handlers::TokenPrompt prompt;
  prompt.ids.reserve(array.size());
  for (size_t i = 0; i < array.size(); ++i) {
    if (array[i].is_number_integer() && array[i] >= 0 &&
        array[i] <= INT32_MAX) {  // the path is made for failures only
      prompt.ids.push_back(array[i].get<int32_t>());
      continue;
    }
    ASSIGN_OR_RETURN(
        const int64_t id,
        handlers::AsInt(array[i], path + "[" + std::to_string(i) + "]",
                        {.min = 0, .max = INT32_MAX}));
    prompt.ids.push_back(static_cast<int32_t>(id));
  }
  return prompt;
}

StatusOr<std::vector<Prompt>> ReadPrompts(const Json& body) {
  const Json* prompt = handlers::FindField(body, "prompt");
  if (prompt == nullptr) {
    return InvalidArgument(
               "prompt is missing; send a string, a list of token "
               "ids, or a list of either")
        .At("prompt");
  }
  std::vector<Prompt> prompts;
  if (prompt->is_string()) {
    prompts.emplace_back(
        handlers::TextPrompt{prompt->get_ref<const std::string&>()});
    return prompts;
  }
  if (!prompt->is_array() || prompt->empty()) {
    return handlers::WrongType(
        "prompt", "a string, a list of token ids, or a list of either",
        *prompt);
  }
  if (prompt->front().is_number()) {
    ASSIGN_OR_RETURN(handlers::TokenPrompt ids, ReadIds(*prompt, "prompt"));
    prompts.emplace_back(std::move(ids));
    return prompts;
  }
  if (prompt->size() > kMaxPrompts) return TooManyPrompts(prompt->size());
  for (size_t i = 0; i < prompt->size(); ++i) {
    const Json& item = (*prompt)[i];
    const std::string path = "prompt[" + std::to_string(i) + "]";
    if (item.is_array()) {
      ASSIGN_OR_RETURN(handlers::TokenPrompt ids, ReadIds(item, path));
      prompts.emplace_back(std::move(ids));
    } else {
      ASSIGN_OR_RETURN(std::string text, handlers::AsString(item, path));
      prompts.emplace_back(handlers::TextPrompt{std::move(text)});
    }
  }
  return prompts;
}

// Starts one request for each prompt; their sinks share one answer. Choices
// stand in the order of the prompts, those of one prompt together.
Status Start(const Site& site, const std::shared_ptr<Exchange>& exchange,
             const Json& body, AnswerShape shape,
             const handlers::GenerateOptions& options,
             std::vector<Prompt> prompts) {
  ASSIGN_OR_RETURN(const Clock::Time deadline, ReadDeadline(*exchange));
  ASSIGN_OR_RETURN(ModelHandle model, BorrowModel(site, *exchange, body));
  ASSIGN_OR_RETURN(handlers::GenerateHandler * handler, model->ForText());
  exchange->trace()->Stamp(Stage::kParsed, site.services.clock->Now());
  shape.model = exchange->facts().model;
  shape.logprobs = options.logprobs.has_value();
  shape.id = (shape.chat ? "chatcmpl-" : "cmpl-") + RandomHex(32);
  shape.created_unix =
      std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  shape.clock = site.services.clock;
  shape.choices_per_prompt = options.n;
  shape.num_choices = static_cast<int>(prompts.size()) * options.n;
  const auto answer =
      std::make_shared<Answer>(std::move(shape), exchange, std::move(model));
  for (size_t i = 0; i < prompts.size(); ++i) {
    GenerateRequest request;
    request.prompt = std::move(prompts[i]);
    request.options = options;
    request.options.priority = PriorityOf(*exchange, options.priority);
    request.deadline = deadline;
    request.tenant = ShareOf(*exchange);
    request.trace = exchange->trace();
    if (options.n == 1) {
      handler->Start(std::move(request), answer->Choice(static_cast<int>(i)),
                     exchange->stop_token());
      continue;
    }
    std::vector<std::shared_ptr<handlers::GenerateSink>> sinks;
    for (int k = 0; k < options.n; ++k) {
      sinks.push_back(answer->Choice(static_cast<int>(i) * options.n + k));
    }
    handler->StartSiblings(std::move(request), std::move(sinks),
                           exchange->stop_token());
  }
  return OkStatus();
}

Status Chat(const Site& site, const std::shared_ptr<Exchange>& exchange) {
  ASSIGN_OR_RETURN(const Json body, ReadJsonBody(*exchange));
  AnswerShape shape;
  shape.chat = true;
  ASSIGN_OR_RETURN(handlers::ChatPrompt chat, handlers::ReadChatPrompt(body));
  ASSIGN_OR_RETURN(
      const handlers::GenerateOptions options,
      handlers::ReadGenerateOptions(body, handlers::FieldDialect::kChat));
  RETURN_IF_ERROR(ReadStreamFields(body, shape));
  std::vector<Prompt> prompts;
  prompts.emplace_back(std::move(chat));
  return Start(site, exchange, body, std::move(shape), options,
               std::move(prompts));
}

Status Completions(const Site& site,
                   const std::shared_ptr<Exchange>& exchange) {
  ASSIGN_OR_RETURN(const Json body, ReadJsonBody(*exchange));
  AnswerShape shape;
  shape.chat = false;
  ASSIGN_OR_RETURN(std::vector<Prompt> prompts, ReadPrompts(body));
  ASSIGN_OR_RETURN(const handlers::GenerateOptions options,
                   handlers::ReadGenerateOptions(
                       body, handlers::FieldDialect::kCompletions));
  RETURN_IF_ERROR(ReadStreamFields(body, shape));
  return Start(site, exchange, body, std::move(shape), options,
               std::move(prompts));
}

}  // namespace

void ServeChatCompletions(const Site& site,
                          const std::shared_ptr<Exchange>& exchange) {
  RunOnPool(site, exchange, Chat);
}

void ServeCompletions(const Site& site,
                      const std::shared_ptr<Exchange>& exchange) {
  RunOnPool(site, exchange, Completions);
}

}  // namespace millrace::server::http
