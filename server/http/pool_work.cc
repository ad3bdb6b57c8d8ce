// Between the I/O thread and the handlers. `model` may be missing where one
// language model is served: clients of single-model servers leave it out.
#include "server/http/pool_work.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <exception>
#include <nlohmann/json.hpp>
#include <utility>

#include "config/base/json.h"
#include "config/base/log.h"
#include "config/base/out_of_memory.h"
#include "handlers/json_fields.h"
#include "server/http/content_coding.h"
#include "server/http/request_deadline.h"

namespace millrace::server::http {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kMaxTimeoutMs = int64_t{7} * 24 * 3600 * 1000;

Status UndoContentCoding(const Site& site, Exchange& exchange) {
  const std::string_view header = exchange.request().Header("content-encoding");
  ASSIGN_OR_RETURN(const ContentCoding coding, ReadContentCoding(header));
  if (coding == ContentCoding::kIdentity) return OkStatus();
  const Exchange::Body body = exchange.TakeBody();
  ASSIGN_OR_RETURN(
      std::string text,
      Decoded(body.text, coding, site.settings.http_max_input_bytes));
  auto charge = std::make_shared<BodyCharge>(site.shared_from_this());
  if (!charge->Add(static_cast<int64_t>(text.size()))) {
    return ResourceExhausted(
               "the bodies of running requests fill the memory that they may "
               "have; try again later")
        .Because("queue_full")
        .RetryAfterMs(1000);
  }
  exchange.ReplaceBody({std::move(text), std::move(charge)});
  return OkStatus();
}

void Run(const Site& site, const std::shared_ptr<Exchange>& exchange,
         PoolWork work, ErrorForm error_form) {
  Status status;
  try {
    status = CatchOutOfMemory([&]() -> Status {
      RETURN_IF_ERROR(UndoContentCoding(site, *exchange));
      return work(site, exchange);
    });
  } catch (const std::exception& error) {
    LogError("request failed",
             {{"id", exchange->trace()->request_id}, {"error", error.what()}});
    status = Internal("the request failed; see the server's log");
  }
  if (!status.ok()) exchange->Send(error_form(status));
}

class HeaderFields final : public RequestFields {
 public:
  explicit HeaderFields(const HttpRequest& request) : request_(request) {}
  std::string_view Header(std::string_view name) const override {
    return request_.Header(name);
  }

 private:
  const HttpRequest& request_;
};

}  // namespace

void RunOnPool(const Site& site, const std::shared_ptr<Exchange>& exchange,
               PoolWork work, ErrorForm error_form) {
  const bool posted = site.services.pool->TryPost(
      [shared = site.shared_from_this(), exchange, work, error_form] {
        Run(*shared, exchange, work, error_form);
      });
  if (posted) return;
  exchange->Send(error_form(
      ResourceExhausted("too many requests wait to be read; try again later")
          .Because("queue_full")
          .RetryAfterMs(1000)));
}

void RunSoon(const Site& site, const std::shared_ptr<Exchange>& exchange,
             PoolWork work, ErrorForm error_form) {
  const HttpRequest& request = exchange->request();
  if (request.body.size() <= kShortBodyBytes &&
      !request.HasHeader("content-encoding")) {
    Run(site, exchange, work, error_form);
  } else {
    RunOnPool(site, exchange, work, error_form);
  }
}

StatusOr<Json> ReadJsonBody(Exchange& exchange) {
  const Exchange::Body bytes = exchange.TakeBody();
  ASSIGN_OR_RETURN(Json body, ParseJson(bytes.text));
  if (!body.is_object()) {
    return InvalidArgument("the body must be a JSON object, not " +
                           handlers::Shown(body));
  }
  return body;
}

StatusOr<ModelHandle> BorrowNamed(const Site& site, const Exchange& exchange,
                                  const std::string& name,
                                  const std::string& version) {
  if (exchange.caller() != nullptr) {
    RETURN_IF_ERROR(exchange.caller()->tenant->MayUse(name));
  }
  const HeaderFields fields(exchange.request());
  return site.services.repository->Borrow(name, version, &fields);
}

bool MayUse(const Exchange& exchange, const std::string& name) {
  return exchange.caller() == nullptr ||
         exchange.caller()->tenant->MayUse(name).ok();
}

int32_t PriorityOf(const Exchange& exchange, int32_t asked) {
  if (exchange.has_lowest_priority()) return INT32_MAX;
  const CallerPtr& caller = exchange.caller();
  return caller == nullptr ? asked : caller->tenant->PriorityOf(asked);
}

handlers::TenantShare ShareOf(const Exchange& exchange) {
  if (exchange.caller() == nullptr) return {};
  const Tenant& tenant = *exchange.caller()->tenant;
  return {tenant.number(), tenant.limits().weight, tenant.alone()};
}

Status TooManyPrompts(size_t count) {
  return InvalidArgument("prompt holds " + std::to_string(count) +
                         " prompts but one request may bring " +
                         std::to_string(kMaxPrompts) +
                         "; send several requests")
      .At("prompt");
}

StatusOr<ModelHandle> BorrowModel(const Site& site, Exchange& exchange,
                                  const Json& body) {
  ASSIGN_OR_RETURN(std::optional<std::string> name,
                   handlers::ReadString(body, "model"));
  if (!name.has_value()) {
    auto servables = site.services.repository->List();
    std::erase_if(servables, [](const auto& each) {
      return each->kind() != ModelKind::kText ||
             !each->facts().parent.empty();  // an adapter is asked for by name
    });
    if (servables.size() > 1) {
      return InvalidArgument(
                 "model is missing and this server has " +
                 std::to_string(servables.size()) +
                 " models; name one of those that GET /v1/models lists")
          .At("model");
    }
    if (servables.empty() &&
        site.services.repository->state() == ServerState::kReady) {
      return NotFound(
                 "this server has no model that generates text; GET /v2/models "
                 "lists what it has")
          .At("model")
          .Because("model_not_found");
    }
    name = servables.empty() ? "" : servables.front()->id();
  }
  name = ServedName(site, *std::move(name));
  exchange.SetModel(*name);
  return BorrowNamed(site, exchange, *name, "");
}

std::string ServedName(const Site& site, std::string name) {
  const Repository& repository = *site.services.repository;
  if (repository.Find(name).status().reason() != "model_not_found") return name;
  const auto any = repository.Find(kAnyName);
  return any.ok() ? (*any)->id() : name;
}

StatusOr<Clock::Time> ReadDeadline(const Exchange& exchange) {
  const auto& accepted =
      exchange.trace()->stamps[static_cast<size_t>(Stage::kAccepted)];
  return ReadDeadline(
      exchange.request(),
      Clock::Time(Clock::Duration(accepted.load(std::memory_order_relaxed))));
}

StatusOr<Clock::Time> ReadDeadline(const HttpRequest& head,
                                   Clock::Time accepted) {
  constexpr std::string_view kHeader = "x-request-timeout-ms";
  if (!head.HasHeader(kHeader)) return kNever;
  const std::string_view text = head.Header(kHeader);
  int64_t ms = 0;
  const auto [end, ec] =
      std::from_chars(text.data(), text.data() + text.size(), ms);
  if (ec != std::errc() || end != text.data() + text.size() || ms < 1 ||
      ms > kMaxTimeoutMs) {
    return InvalidArgument("X-Request-Timeout-Ms is '" + std::string(text) +
                           "' but must be a whole number of milliseconds "
                           "between 1 and " +
                           std::to_string(kMaxTimeoutMs))
        .At("X-Request-Timeout-Ms");
  }
  return accepted + std::chrono::milliseconds(ms);
}

}  // namespace millrace::server::http
