// /v1/audio/transcriptions: a recording as a form, as OpenAI's clients send it.
#include <algorithm>
#include <charconv>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/base/utf8.h"
#include "handlers/task.h"
#include "server/http/message.h"
#include "server/http/multipart.h"
#include "server/http/pool_work.h"
#include "server/http/routes.h"
#include "server/http/task_work.h"

namespace millrace::server::http {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kTask = "transcribe";

// Fields that mean nothing to a model that hears sounds and gives their
// letters.
struct Unsupported {
  std::string_view name;
  std::string_view harmless;  // this value is what is done anyway
  std::string_view remedy;
};
constexpr Unsupported kUnsupported[] = {
    {"prompt", "", "a CTC model takes no prompt; leave it out"},
    {"stream", "false", "the text comes as a whole; leave it out"},
    {"chunking_strategy", "", "recordings are not cut; leave it out"},
    {"include", "", "log-probabilities are not given; leave it out"},
};

// Of a form, lists are written "include[]".
std::string_view FieldName(const FormPart& part) {
  std::string_view name = part.name;
  if (name.ends_with("[]")) name.remove_suffix(2);
  return name;
}

std::string Shown(std::string_view data) {
  return "'" + ReplaceInvalidUtf8(Shortened(data, 100)) + "'";
}

bool Transcribes(const Servable& model) {
  const auto& told = model.facts().parameters;
  return std::find(told.begin(), told.end(),
                   std::pair<std::string, std::string>("task", kTask)) !=
         told.end();
}

// The model that the form names, else the only one with the task.
StatusOr<ModelHandle> BorrowFor(const Site& site, Exchange& exchange,
                                const FormPart* named) {
  std::string name;
  if (named != nullptr) {
    name = ReplaceInvalidUtf8(std::string(named->data));
  } else {
    auto servables = site.services.repository->List();
    std::erase_if(servables, [&](const auto& each) {
      return !Transcribes(*each) || !MayUse(exchange, each->id());
    });
    if (servables.size() != 1) {
      return InvalidArgument("model is missing and this server has " +
                             std::to_string(servables.size()) +
                             " models that transcribe; name one of those that "
                             "GET /v2/models lists")
          .At("model");
    }
    name = servables.front()->id();
  }
  exchange.SetModel(name);
  ASSIGN_OR_RETURN(ModelHandle model, BorrowNamed(site, exchange, name, ""));
  if (Transcribes(*model)) return model;
  return InvalidArgument("the model '" + name +
                         "' does not transcribe; /v1/audio/transcriptions "
                         "needs one with task: transcribe in its config.yaml")
      .At("model")
      .Because("wrong_model_kind");
}

StatusOr<double> ReadTemperature(std::string_view text) {
  double value = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc() && end == text.data() + text.size()) return value;
  return InvalidArgument("temperature is " + Shown(text) +
                         " but must be a number")
      .At("temperature");
}

// The form's fields as parameters of the task.
StatusOr<std::shared_ptr<const Json>> ReadFields(
    const std::vector<FormPart>& parts) {
  Json fields = Json::object();
  for (const FormPart& part : parts) {
    const std::string_view name = FieldName(part);
    const auto refused = std::find_if(
        std::begin(kUnsupported), std::end(kUnsupported),
        [&](const Unsupported& each) { return each.name == name; });
    if (refused != std::end(kUnsupported)) {
      if (part.data.empty() || part.data == refused->harmless) continue;
      return InvalidArgument(std::string(name) + " is " + Shown(part.data) +
                             ", but " + std::string(refused->remedy))
          .At(std::string(name));
    }
    if (name == "temperature") {
      ASSIGN_OR_RETURN(fields["temperature"], ReadTemperature(part.data));
    } else if (name == "timestamp_granularities") {
      fields["timestamp_granularities"].push_back(
          ReplaceInvalidUtf8(std::string(part.data)));
    } else if (name == "response_format" || name == "language") {
      fields[std::string(name)] = ReplaceInvalidUtf8(std::string(part.data));
    }
  }
  return std::make_shared<const Json>(std::move(fields));
}

Status Transcribe(const Site& site, const std::shared_ptr<Exchange>& exchange) {
  handlers::TaskRequest request;
  std::optional<ModelHandle> model;
  {
    const Exchange::Body body = exchange->TakeBody();
    ASSIGN_OR_RETURN(
        const std::vector<FormPart> parts,
        ParseFormData(exchange->request().Header("content-type"), body.text));
    ASSIGN_OR_RETURN(ModelHandle found,
                     BorrowFor(site, *exchange, FindPart(parts, "model")));
    model.emplace(std::move(found));
    ASSIGN_OR_RETURN(request.parameters, ReadFields(parts));
    const FormPart* const file = FindPart(parts, "file");
    if (file == nullptr) {
      return InvalidArgument(
                 "file is missing; send a WAV or a FLAC as the part file")
          .At("file");
    }
    request.parts.push_back({.name = "file", .bytes = std::string(file->data)});
  }
  return RunTask(site, exchange, *std::move(model), std::move(request),
                 ErrorResponse, [](handlers::TaskResponse response) {
                   HttpResponse answer;
                   answer.content_type = response.content_type;
                   answer.body = handlers::TaskBody(std::move(response));
                   return answer;
                 });
}

}  // namespace

void ServeTranscriptions(const Site& site,
                         const std::shared_ptr<Exchange>& exchange) {
  RunOnPool(site, exchange, Transcribe);
}

}  // namespace millrace::server::http
