#include "server/batches/batch.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "config/base/json.h"

namespace millrace::server {
namespace {

using Json = nlohmann::ordered_json;

// In the order of the API reference.
constexpr const char* kTimes[] = {
    "in_progress_at", "finalizing_at", "completed_at", "failed_at",
    "expired_at",     "cancelling_at", "cancelled_at"};

Json TextOrNull(const std::string& text) {
  return text.empty() ? Json(nullptr) : Json(text);
}

Json ErrorsJson(const Batch& batch) {
  if (batch.errors.empty()) return nullptr;
  Json data = Json::array();
  for (const BatchError& error : batch.errors) {
    data.push_back({{"code", error.code},
                    {"message", error.message},
                    {"param", TextOrNull(error.param)},
                    {"line", error.line > 0 ? Json(error.line) : Json()}});
  }
  return {{"object", "list"}, {"data", std::move(data)}};
}

Json UsageJson(const BatchUsage& usage) {
  return {
      {"input_tokens", usage.input_tokens},
      {"input_tokens_details", {{"cached_tokens", usage.cached_tokens}}},
      {"output_tokens", usage.output_tokens},
      {"output_tokens_details", {{"reasoning_tokens", usage.reasoning_tokens}}},
      {"total_tokens", usage.input_tokens + usage.output_tokens}};
}

Json ToJson(const Batch& batch) {
  Json json = {
      {"id", batch.id},
      {"object", "batch"},
      {"endpoint", batch.endpoint},
      {"model", TextOrNull(batch.model)},
      {"errors", ErrorsJson(batch)},
      {"input_file_id", batch.input_file_id},
      {"completion_window", batch.completion_window},
      {"status", batch.status},
      {"output_file_id", batch.has_output ? Json(batch.output_id) : Json()},
      {"error_file_id", batch.has_errors ? Json(batch.error_id) : Json()},
      {"created_at", batch.created_at},
      {"expires_at", batch.expires_at}};
  for (const char* name : kTimes) {
    const auto found = batch.times.find(name);
    json[name] = found == batch.times.end() ? Json() : Json(found->second);
  }
  json["request_counts"] = {{"total", batch.total},
                            {"completed", batch.completed},
                            {"failed", batch.failed}};
  json["usage"] = UsageJson(batch.usage);
  json["metadata"] = Json::parse(batch.metadata, nullptr, false);
  return json;
}

std::string TextOf(const Json& json, const char* name) {
  return json.at(name).is_null() ? "" : json.at(name).get<std::string>();
}

}  // namespace

bool Batch::ended() const {
  return status == "completed" || status == "failed" || status == "expired" ||
         status == "cancelled";
}

void Batch::Become(std::string_view new_status, int64_t now) {
  status = new_status;
  times[status + "_at"] = now;
}

std::string BatchJson(const Batch& batch) { return DumpJson(ToJson(batch)); }

std::string BatchStateText(const Batch& batch) {
  Json json = ToJson(batch);
  json["tenant"] = batch.tenant;
  json["output_id"] = batch.output_id;
  json["error_id"] = batch.error_id;
  json["output_expires_after"] =
      batch.output_expires_after ? Json(*batch.output_expires_after) : Json();
  json["ending"] = batch.ending;
  json["recorded"] = batch.recorded;
  json["number"] = batch.number;
  return DumpJson(json);
}

StatusOr<Batch> ReadBatchState(const std::string& text) {
  ASSIGN_OR_RETURN(const Json json, ParseJson(text));
  Batch batch;
  try {
    batch.id = json.at("id").get<std::string>();
    batch.tenant = json.at("tenant").get<std::string>();
    batch.endpoint = json.at("endpoint").get<std::string>();
    batch.model = TextOf(json, "model");
    batch.input_file_id = json.at("input_file_id").get<std::string>();
    batch.completion_window = json.at("completion_window").get<std::string>();
    batch.metadata = DumpJson(json.at("metadata"));
    batch.status = json.at("status").get<std::string>();
    batch.created_at = json.at("created_at").get<int64_t>();
    batch.expires_at = json.at("expires_at").get<int64_t>();
    for (const char* name : kTimes) {
      const Json& time = json.at(name);
      if (!time.is_null()) batch.times[name] = time.get<int64_t>();
    }
    if (!json.at("errors").is_null()) {
      for (const Json& error : json.at("errors").at("data")) {
        const Json& line = error.at("line");
        batch.errors.push_back(
            {.code = error.at("code").get<std::string>(),
             .message = error.at("message").get<std::string>(),
             .param = TextOf(error, "param"),
             .line = line.is_null() ? 0 : line.get<int64_t>()});
      }
    }
    const Json& counts = json.at("request_counts");
    batch.total = counts.at("total").get<int64_t>();
    batch.completed = counts.at("completed").get<int64_t>();
    batch.failed = counts.at("failed").get<int64_t>();
    const Json& usage = json.at("usage");
    batch.usage.input_tokens = usage.at("input_tokens").get<int64_t>();
    batch.usage.cached_tokens =
        usage.at("input_tokens_details").at("cached_tokens").get<int64_t>();
    batch.usage.output_tokens = usage.at("output_tokens").get<int64_t>();
    batch.usage.reasoning_tokens =
        usage.at("output_tokens_details").at("reasoning_tokens").get<int64_t>();
    batch.has_output = !json.at("output_file_id").is_null();
    batch.has_errors = !json.at("error_file_id").is_null();
    batch.output_id = json.at("output_id").get<std::string>();
    batch.error_id = json.at("error_id").get<std::string>();
    if (!json.at("output_expires_after").is_null()) {
      batch.output_expires_after =
          json.at("output_expires_after").get<int64_t>();
    }
    batch.ending = json.at("ending").get<std::string>();
    batch.recorded = json.at("recorded").get<bool>();
    batch.number = json.at("number").get<int64_t>();
  } catch (const Json::exception& error) {
    return DataLoss(error.what());
  }
  return batch;
}

}  // namespace millrace::server
