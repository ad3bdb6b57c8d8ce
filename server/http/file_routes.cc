// /v1/files: files that hold the requests of batches, and those that hold their
// answers, as OpenAI's clients send and read them.
#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <utility>

#include "config/base/json.h"
#include "config/base/utf8.h"
#include "server/http/batch_files.h"
#include "server/http/multipart.h"
#include "server/http/openai_shapes.h"
#include "server/http/pool_work.h"
#include "server/http/routes.h"

namespace millrace::server::http {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kMostListed = 10'000;
constexpr int64_t kLeastExpirySeconds = 3600;
constexpr int64_t kMostExpirySeconds = 30 * 24 * 3600;

std::string FileJson(const StoredFile& file) {
  Json json = {{"id", file.id},
               {"object", "file"},
               {"bytes", file.bytes},
               {"created_at", file.created_at}};
  if (file.expires_at) json["expires_at"] = *file.expires_at;
  json["filename"] = file.filename;
  json["purpose"] = file.purpose;
  json["status"] = "processed";
  json["status_details"] = nullptr;
  return DumpJson(json);
}

StatusOr<int64_t> ToInteger(std::string_view text, const std::string& field) {
  int64_t value = 0;
  const auto [end, ec] =
      std::from_chars(text.data(), text.data() + text.size(), value);
  if (ec == std::errc() && end == text.data() + text.size()) return value;
  return InvalidArgument(field + " is '" + Shortened(text, 100) +
                         "' but must be a whole number")
      .At(field);
}

Status CheckPurpose(const std::vector<FormPart>& parts) {
  const FormPart* const purpose = FindPart(parts, "purpose");
  if (purpose == nullptr) {
    return InvalidArgument("purpose is missing; send the part purpose=batch")
        .At("purpose");
  }
  if (purpose->data == "batch") return OkStatus();
  return InvalidArgument("purpose is '" +
                         ReplaceInvalidUtf8(Shortened(purpose->data, 100)) +
                         "' but this server keeps files of batches only; send "
                         "batch")
      .At("purpose");
}

Status Upload(const Site& site, const std::shared_ptr<Exchange>& exchange) {
  ASSIGN_OR_RETURN(Batches* const batches, BatchesOf(site));
  const Exchange::Body body = exchange->TakeBody();
  ASSIGN_OR_RETURN(
      const std::vector<FormPart> parts,
      ParseFormData(exchange->request().Header("content-type"), body.text));
  RETURN_IF_ERROR(CheckPurpose(parts));
  const FormPart* const file = FindPart(parts, "file");
  if (file == nullptr) {
    return InvalidArgument(
               "file is missing; send the requests, one a line, as the part "
               "file")
        .At("file");
  }
  StoredFile about = {.filename = file->filename.empty()
                                      ? "upload.jsonl"
                                      : ReplaceInvalidUtf8(file->filename),
                      .purpose = "batch",
                      .tenant = TenantName(*exchange)};
  if (const FormPart* after = FindPart(parts, "expires_after[seconds]")) {
    const FormPart* const anchor = FindPart(parts, "expires_after[anchor]");
    ASSIGN_OR_RETURN(const int64_t seconds,
                     ToInteger(after->data, "expires_after[seconds]"));
    ASSIGN_OR_RETURN(about.expires_at,
                     ReadExpiry(anchor == nullptr ? "created_at" : anchor->data,
                                seconds, "expires_after"));
  }
  ASSIGN_OR_RETURN(const StoredFile kept,
                   batches->AddFile(std::move(about), file->data));
  exchange->Send(JsonResponse(200, FileJson(kept)));
  return OkStatus();
}

Status List(const Site& site, const std::shared_ptr<Exchange>& exchange) {
  ASSIGN_OR_RETURN(Batches* const batches, BatchesOf(site));
  const std::string& query = exchange->request().query;
  std::vector<ListItem> items;
  for (const StoredFile& file : batches->files().List(
           TenantName(*exchange), QueryValue(query, "purpose"))) {
    items.push_back({file.id, FileJson(file)});
  }
  if (QueryValue(query, "order") == "asc") {
    std::reverse(items.begin(), items.end());
  }
  ASSIGN_OR_RETURN(std::string page,
                   PageJson(query, items, kMostListed, kMostListed));
  exchange->Send(JsonResponse(200, std::move(page)));
  return OkStatus();
}

StatusOr<StoredFile> Named(const Site& site, const Exchange& exchange) {
  ASSIGN_OR_RETURN(Batches* const batches, BatchesOf(site));
  return batches->files().Find(exchange.params().front(), TenantName(exchange));
}

Status Retrieve(const Site& site, const std::shared_ptr<Exchange>& exchange) {
  ASSIGN_OR_RETURN(const StoredFile file, Named(site, *exchange));
  exchange->Send(JsonResponse(200, FileJson(file)));
  return OkStatus();
}

// The bytes are in memory until the client has them, so they count as those of
// requests do.
Status Content(const Site& site, const std::shared_ptr<Exchange>& exchange) {
  ASSIGN_OR_RETURN(const StoredFile file, Named(site, *exchange));
  auto charge = std::make_shared<BodyCharge>(site.shared_from_this());
  if (!charge->Add(file.bytes)) {
    return ResourceExhausted(
               "the file has " + std::to_string(file.bytes) +
               " bytes, for which there is no memory now; try again later, or "
               "raise http_max_input_size")
        .Because("queue_full")
        .RetryAfterMs(1000);
  }
  HttpResponse response;
  ASSIGN_OR_RETURN(response.body, site.services.batches->files().Read(file.id));
  response.content_type = "application/octet-stream";
  exchange->ReplaceBody({.text = {}, .charge = std::move(charge)});
  exchange->Send(std::move(response));
  return OkStatus();
}

Status Delete(const Site& site, const std::shared_ptr<Exchange>& exchange) {
  ASSIGN_OR_RETURN(Batches* const batches, BatchesOf(site));
  const std::string& id = exchange->params().front();
  RETURN_IF_ERROR(batches->RemoveFile(id, TenantName(*exchange)));
  exchange->Send(JsonResponse(
      200, DumpJson(Json{{"id", id}, {"object", "file"}, {"deleted", true}})));
  return OkStatus();
}

}  // namespace

StatusOr<Batches*> BatchesOf(const Site& site) {
  if (site.services.batches != nullptr) return site.services.batches;
  return FailedPrecondition(
             "this server keeps no files and runs no batches; start it with "
             "--batch-dir FOLDER")
      .At("batch_dir")
      .Because("batches_disabled");
}

const std::string& TenantName(const Exchange& exchange) {
  return exchange.caller()->tenant->name();
}

StatusOr<int64_t> ReadExpiry(std::string_view anchor, int64_t seconds,
                             const std::string& field) {
  if (anchor != "created_at") {
    return InvalidArgument(field + ".anchor is '" +
                           ReplaceInvalidUtf8(Shortened(anchor, 100)) +
                           "' but must be created_at")
        .At(field);
  }
  if (seconds < kLeastExpirySeconds || seconds > kMostExpirySeconds) {
    return InvalidArgument(field + ".seconds is " + std::to_string(seconds) +
                           " but must be between " +
                           std::to_string(kLeastExpirySeconds) + " and " +
                           std::to_string(kMostExpirySeconds))
        .At(field);
  }
  return seconds;
}

StatusOr<std::string> PageJson(std::string_view query,
                               const std::vector<ListItem>& items,
                               int64_t usual_limit, int64_t most) {
  int64_t limit = usual_limit;
  if (const std::string_view text = QueryValue(query, "limit"); !text.empty()) {
    ASSIGN_OR_RETURN(limit, ToInteger(text, "limit"));
    if (limit < 1 || limit > most) {
      return InvalidArgument("limit is " + std::to_string(limit) +
                             " but must be between 1 and " +
                             std::to_string(most))
          .At("limit");
    }
  }
  auto from = items.begin();
  if (const std::string_view after = QueryValue(query, "after");
      !after.empty()) {
    from = std::find_if(
        items.begin(), items.end(),
        [after](const ListItem& item) { return item.id == after; });
    if (from == items.end()) {
      return NotFound("after is '" + Shortened(after, 100) +
                      "', which is not in the list")
          .At("after");
    }
    ++from;
  }
  const auto to = from + std::min<int64_t>(limit, items.end() - from);
  std::string json = "{\"object\":\"list\",\"data\":[";
  for (auto at = from; at != to; ++at) {
    if (at != from) json += ',';
    json += at->json;
  }
  const auto id_of = [&](auto at) {
    return from == to ? "null" : JsonString(at->id);
  };
  return json + "],\"first_id\":" + id_of(from) +
         ",\"last_id\":" + id_of(from == to ? from : to - 1) +
         ",\"has_more\":" + (to == items.end() ? "false" : "true") + "}";
}

Status GuardFiles(const Site& site, const std::vector<std::string>&) {
  return BatchesOf(site).status();
}

void ServeUploadFile(const Site& site,
                     const std::shared_ptr<Exchange>& exchange) {
  RunOnPool(site, exchange, Upload);
}

void ServeFiles(const Site& site, const std::shared_ptr<Exchange>& exchange) {
  RunOnPool(site, exchange, List);
}

void ServeFile(const Site& site, const std::shared_ptr<Exchange>& exchange) {
  RunOnPool(site, exchange, Retrieve);
}

void ServeFileContent(const Site& site,
                      const std::shared_ptr<Exchange>& exchange) {
  RunOnPool(site, exchange, Content);
}

void ServeDeleteFile(const Site& site,
                     const std::shared_ptr<Exchange>& exchange) {
  RunOnPool(site, exchange, Delete);
}

}  // namespace millrace::server::http
