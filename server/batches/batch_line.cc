#include "server/batches/batch_line.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "config/base/json.h"
#include "server/batches/file_store.h"

namespace millrace::server {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMaxCustomIdBytes = 512;

Status Bad(std::string_view code, std::string_view param,
           std::string_view message) {
  return InvalidArgument(message).At(param).Because(code);
}

// The text of a member, or why there is none.
StatusOr<std::string> TextAt(const Json& line, const char* name) {
  const auto found = line.find(name);
  if (found == line.end() || found->is_null()) {
    return Bad("missing_required_parameter", name,
               std::string("Missing required parameter: '") + name + "'.");
  }
  if (!found->is_string()) {
    return Bad("invalid_type", name,
               std::string("'") + name + "' must be a string.");
  }
  return found->get<std::string>();
}

int64_t NumberAt(const Json& object, const char* name) {
  if (!object.is_object()) return 0;
  const auto found = object.find(name);
  return found != object.end() && found->is_number_integer()
             ? found->get<int64_t>()
             : 0;
}

const Json& MemberOf(const Json& object, const char* name) {
  static const Json kNothing;
  if (!object.is_object()) return kNothing;
  const auto found = object.find(name);
  return found == object.end() ? kNothing : *found;
}

// Of an answer of /v1/chat/completions, /v1/completions or /v1/embeddings.
BatchUsage UsageOf(const Json& body) {
  const Json& usage = MemberOf(body, "usage");
  return {
      .input_tokens = NumberAt(usage, "prompt_tokens"),
      .cached_tokens =
          NumberAt(MemberOf(usage, "prompt_tokens_details"), "cached_tokens"),
      .output_tokens = NumberAt(usage, "completion_tokens"),
      .reasoning_tokens = NumberAt(MemberOf(usage, "completion_tokens_details"),
                                   "reasoning_tokens")};
}

// The beginning and the end of a line of the results.
std::string Wrapped(std::string_view custom_id, std::string_view response,
                    std::string_view error) {
  std::string line = "{\"id\":\"" + NewId("batch_req_") + "\",\"custom_id\":" +
                     DumpJson(Json(std::string(custom_id)));
  line.append(",\"response\":").append(response);
  line.append(",\"error\":").append(error).append("}\n");
  return line;
}

}  // namespace

StatusOr<BatchLine> ReadBatchLine(std::string_view text,
                                  std::string_view endpoint) {
  const StatusOr<Json> parsed = ParseJson(text);
  if (!parsed.ok()) {
    return Bad("invalid_json_line", "",
               "This line is not parseable as valid JSON: " +
                   std::string(parsed.status().message()));
  }
  const Json& line = *parsed;
  if (!line.is_object()) {
    return Bad("invalid_json_line", "", "This line is not a JSON object.");
  }
  BatchLine request;
  ASSIGN_OR_RETURN(request.custom_id, TextAt(line, "custom_id"));
  if (request.custom_id.empty() ||
      request.custom_id.size() > kMaxCustomIdBytes) {
    return Bad("invalid_custom_id", "custom_id",
               "'custom_id' has " + std::to_string(request.custom_id.size()) +
                   " bytes; it must have 1 to " +
                   std::to_string(kMaxCustomIdBytes) + ".");
  }
  ASSIGN_OR_RETURN(const std::string method, TextAt(line, "method"));
  if (method != "POST") {
    return Bad("invalid_method", "method",
               "The method must be POST, which is the only one that the "
               "endpoints of batches take.");
  }
  ASSIGN_OR_RETURN(const std::string url, TextAt(line, "url"));
  if (url != endpoint) {
    return Bad("mismatched_url", "url",
               "The url of this line does not match the batch's endpoint, '" +
                   std::string(endpoint) + "'.");
  }
  const auto body = line.find("body");
  if (body == line.end() || body->is_null()) {
    return Bad("missing_required_parameter", "body",
               "Missing required parameter: 'body'.");
  }
  if (!body->is_object()) {
    return Bad("invalid_type", "body", "'body' must be a JSON object.");
  }
  if (const auto stream = body->find("stream");
      stream != body->end() && *stream == true) {
    return Bad("invalid_request", "body.stream",
               "A batch cannot stream; leave 'stream' out.");
  }
  if (const auto model = body->find("model");
      model != body->end() && model->is_string()) {
    request.model = model->get<std::string>();
  }
  request.body = DumpJson(*body);
  return request;
}

Status ForEachLine(
    std::string_view text,
    const std::function<Status(std::string_view line, int64_t number)>& each) {
  int64_t number = 0;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    RETURN_IF_ERROR(each(line, number));
  }
  return OkStatus();
}

std::string AnswerLine(std::string_view custom_id, const LineAnswer& answer) {
  std::string response =
      "{\"status_code\":" + std::to_string(answer.status) +
      ",\"request_id\":" + DumpJson(Json(answer.request_id)) + ",\"body\":";
  // Ours are compact; what is not, would break the line.
  const bool one_line = answer.body.find('\n') == std::string::npos;
  if (one_line && !answer.body.empty()) {
    response += answer.body;
  } else {
    const StatusOr<Json> body = ParseJson(answer.body);
    response += body.ok() ? DumpJson(*body) : DumpJson(Json(answer.body));
  }
  return Wrapped(custom_id, response + "}", "null");
}

std::string UnansweredLine(std::string_view custom_id, std::string_view code,
                           std::string_view message) {
  const Json error = {{"code", std::string(code)},
                      {"message", std::string(message)}};
  return Wrapped(custom_id, "null", DumpJson(error));
}

StatusOr<RecordedLine> ReadRecordedLine(std::string_view text) {
  // A line that this server wrote: vectors of texts are millions of numbers.
  ASSIGN_OR_RETURN(
      const Json line,
      ParseJson(text, {.max_depth = 128,
                       .max_values = std::numeric_limits<int64_t>::max()}));
  const Json& custom_id = MemberOf(line, "custom_id");
  if (!custom_id.is_string()) return DataLoss("a result has no custom_id");
  return RecordedLine{custom_id.get<std::string>(),
                      UsageOf(MemberOf(MemberOf(line, "response"), "body"))};
}

}  // namespace millrace::server
