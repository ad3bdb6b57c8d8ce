#include "server/http/anthropic_models.h"

#include <algorithm>
#include <charconv>
#include <ctime>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/base/json.h"
#include "config/base/utf8.h"
#include "server/http/pool_work.h"
#include "server/http/routes.h"

namespace millrace::server::http {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kUsualPage = 20;
constexpr int64_t kMostPerPage = 1000;

// RFC 3339, of UTC.
std::string TimeText(int64_t unix_seconds) {
  const auto seconds = static_cast<std::time_t>(unix_seconds);
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  char text[32];
  return {text, std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts)};
}

// When it was loaded stands for the day of its release, which no file tells.
Json Entry(const Servable& servable, const std::string& name) {
  const int64_t context = servable.text_facts()->max_model_len;
  return {{"type", "model"},
          {"id", name},
          {"display_name", name},
          {"created_at", TimeText(servable.facts().created_unix)},
          {"lifecycle", "active"},
          {"max_input_tokens", context},
          {"max_tokens", context}};
}

StatusOr<int64_t> Limit(std::string_view query) {
  const std::string_view text = QueryValue(query, "limit");
  if (text.empty()) return kUsualPage;
  int64_t limit = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, limit);
  if (error == std::errc() && stop == end && limit >= 1 &&
      limit <= kMostPerPage) {
    return limit;
  }
  return InvalidArgument("limit is '" + Shortened(text, 100) +
                         "' but must be a whole number between 1 and " +
                         std::to_string(kMostPerPage))
      .At("limit");
}

// The place of the entry that a cursor names; the list's size: there is no
// cursor.
StatusOr<size_t> PlaceOf(std::string_view query, std::string_view cursor,
                         const std::vector<Json>& all) {
  const std::string_view sent = QueryValue(query, cursor);
  if (sent.empty()) return all.size();
  const auto id = PercentDecoded(sent);
  const auto at = std::find_if(all.begin(), all.end(), [&](const Json& entry) {
    return id.has_value() && entry["id"].get<std::string>() == *id;
  });
  if (at != all.end()) return static_cast<size_t>(at - all.begin());
  return InvalidArgument(std::string(cursor) + " is '" + Shortened(sent, 100) +
                         "', which is not in the list")
      .At(cursor);
}

StatusOr<Json> Page(std::string_view query, std::vector<Json> all) {
  ASSIGN_OR_RETURN(const int64_t limit, Limit(query));
  ASSIGN_OR_RETURN(const size_t after, PlaceOf(query, "after_id", all));
  ASSIGN_OR_RETURN(const size_t before, PlaceOf(query, "before_id", all));
  const bool goes_back = before < all.size();
  if (goes_back && after < all.size()) {
    return InvalidArgument(
               "after_id and before_id are both set; a page goes one way, so "
               "leave one of them out")
        .At("before_id");
  }
  const auto most = static_cast<size_t>(limit);
  size_t begin = after < all.size() ? after + 1 : 0;
  size_t end = std::min(begin + most, all.size());
  bool has_more = end < all.size();
  if (goes_back) {
    end = before;
    begin = end - std::min(end, most);
    has_more = begin > 0;
  }
  Json data = Json::array();
  for (size_t i = begin; i < end; ++i) data.push_back(std::move(all[i]));
  const Json first = data.empty() ? Json() : data.front()["id"];
  const Json last = data.empty() ? Json() : data.back()["id"];
  return Json{{"data", std::move(data)},
              {"has_more", has_more},
              {"first_id", first},
              {"last_id", last}};
}

}  // namespace

bool IsAnthropic(const HttpRequest& request) {
  return request.HasHeader("anthropic-version");
}

void ServeAnthropicModels(const Site& site,
                          const std::shared_ptr<Exchange>& exchange) {
  std::vector<Json> all;
  for (const auto& servable : site.services.repository->List()) {
    if (servable->text_facts() == nullptr) continue;
    std::vector<std::string> names = servable->facts().aliases;
    names.insert(names.begin(), servable->id());
    for (const std::string& name : names) {
      if (name == kAnyName || !MayUse(*exchange, name)) continue;
      all.push_back(Entry(*servable, name));
    }
  }
  const auto page = Page(exchange->request().query, std::move(all));
  exchange->Send(page.ok() ? JsonResponse(200, DumpJson(*page))
                           : AnthropicErrorResponse(page.status()));
}

void ServeAnthropicModel(const Site& site,
                         const std::shared_ptr<Exchange>& exchange) {
  const std::string& name = exchange->params().front();
  const auto servable = site.services.repository->Find(name);
  Status refused = exchange->caller()->tenant->MayUse(name);
  if (refused.ok()) refused = servable.status();
  if (refused.ok() && (*servable)->text_facts() == nullptr) {
    refused = NotFound("the model '" + Shortened(name, 100) +
                       "' generates no text; GET /v1/models lists those that "
                       "do")
                  .Because("model_not_found");
  }
  exchange->Send(refused.ok()
                     ? JsonResponse(200, DumpJson(Entry(**servable, name)))
                     : AnthropicErrorResponse(refused));
}

}  // namespace millrace::server::http
