// A request of a batch has the lowest priority there is: the engine takes those
// of online requests first and preempts it for them. How many run is bounded,
// and each online request of the model takes one away, down to one.
#include "server/http/batch_executor.h"

#include <algorithm>
#include <optional>
#include <stop_token>
#include <utility>

#include "config/base/utf8.h"
#include "server/http/gatekeeper.h"
#include "server/http/router.h"
#include "server/request_id.h"

namespace millrace::server::http {
namespace {

constexpr const char* kEndpoints[] = {"/v1/chat/completions", "/v1/completions",
                                      "/v1/embeddings"};

const Route* RouteOf(const std::string& endpoint) {
  return FindRoute(ServingRoutes(), "POST", endpoint).route;
}

// One request under way. Shared by its exchange's wake-up and the task that
// takes the answer, which lets it go.
struct Flight {
  struct Stop {
    Exchange* exchange;
    void operator()() const { exchange->RequestStop(); }
  };
  LineExecutor::Done done;
  Permit permit;
  std::shared_ptr<Exchange> exchange;
  std::optional<std::stop_callback<Stop>> on_stop;
};

LineAnswer Refused(const Status& status) {
  const HttpResponse response = ErrorResponse(status);
  return {.status = response.status,
          .request_id = "req-" + RandomHex(24),
          .body = response.body,
          .retry_after_ms = status.retry_after_ms()};
}

class BatchExecutor final : public LineExecutor {
 public:
  explicit BatchExecutor(std::shared_ptr<const Site> site)
      : site_(std::move(site)) {}

  void Start(LineRequest request, std::stop_token stop, Done done) override {
    const StatusOr<CallerPtr> caller =
        site_->services.auth->CallerOf(request.tenant);
    if (!caller.ok()) return done(Refused(caller.status()));
    // Its tenant's limits are those of its other requests.
    StatusOr<Permit> permit = (*caller)->tenant->Admit();
    if (!permit.ok()) return done(Refused(permit.status()));
    const Route* const route = RouteOf(request.endpoint);
    if (route == nullptr) {
      return done(Refused(CheckBatchEndpoint(request.endpoint)));
    }
    auto trace = std::make_shared<Trace>();
    trace->Stamp(Stage::kAccepted, site_->services.clock->Now());
    trace->request_id = "req-" + RandomHex(24);
    HttpRequest http;
    http.method = "POST";
    http.target = http.path = request.endpoint;
    http.headers = {{"content-type", "application/json"}};
    http.body = std::move(request.body);
    auto flight = std::make_shared<Flight>();
    flight->done = std::move(done);
    flight->permit = *std::move(permit);
    flight->exchange =
        std::make_shared<Exchange>(std::move(http), std::vector<std::string>(),
                                   std::move(trace), nullptr, *caller);
    flight->exchange->SetLowestPriority();
    flight->on_stop.emplace(std::move(stop),
                            Flight::Stop{flight->exchange.get()});
    // Woken under the exchange's lock, so that it is looked at elsewhere.
    flight->exchange->SetWake([pool = site_->services.pool, flight] {
      pool->Continue([flight] { Finish(*flight); });
    });
    route->serve(*site_, flight->exchange);
  }

  Status CheckModel(const std::string& model,
                    const std::string& tenant) override {
    ASSIGN_OR_RETURN(const CallerPtr caller,
                     site_->services.auth->CallerOf(tenant));
    RETURN_IF_ERROR(caller->tenant->MayUse(model));
    return site_->services.repository->Find(model).status();
  }

  bool HasRoom(const std::string& model, int running) override {
    const Repository& repository = *site_->services.repository;
    if (repository.state() != ServerState::kReady) return false;
    const std::shared_ptr<Servable> servable = Named(model);
    // It answers that there is no such model.
    if (servable == nullptr) return running < 1;
    const TextFacts* const facts = servable->text_facts();
    const int64_t seats = facts == nullptr ? 1 : facts->max_num_seqs;
    const int64_t asked = site_->settings.batch_concurrency;
    const int64_t most = asked > 0 ? asked : std::max<int64_t>(seats / 2, 1);
    const int64_t online =
        std::max<int64_t>(servable->gate().in_flight() - running, 0);
    return running < std::max<int64_t>(most - online, 1);
  }

 private:
  static void Finish(Flight& flight) {
    Exchange::Output output = flight.exchange->Take();
    if (!output.ended) return;  // never: these answers are whole
    flight.exchange->Detach();  // which holds the flight
    flight.on_stop.reset();
    const Exchange::Facts facts = flight.exchange->facts();
    if (facts.prompt_tokens >= 0) {
      flight.permit.Spend(facts.prompt_tokens +
                          std::max<int64_t>(facts.completion_tokens, 0));
    }
    flight.permit = Permit();
    LineAnswer answer;
    answer.request_id = flight.exchange->trace()->request_id;
    if (output.head.has_value()) {
      answer.status = output.head->status;
      answer.body = std::move(output.head->body);
      answer.retry_after_ms = output.head->error.retry_after_ms();
    }
    flight.exchange.reset();
    flight.done(std::move(answer));
  }

  std::shared_ptr<Servable> Named(const std::string& model) const {
    const Repository& repository = *site_->services.repository;
    if (!model.empty()) {
      StatusOr<std::shared_ptr<Servable>> found = repository.Find(model);
      return found.ok() ? *std::move(found) : nullptr;
    }
    for (std::shared_ptr<Servable>& each : repository.List()) {
      if (each->kind() == ModelKind::kText) return std::move(each);
    }
    return nullptr;
  }

  const std::shared_ptr<const Site> site_;
};

}  // namespace

Status CheckBatchEndpoint(const std::string& endpoint) {
  std::string offered;
  for (const char* each : kEndpoints) {
    if (RouteOf(each) == nullptr) continue;
    if (endpoint == each) return OkStatus();
    offered.append(offered.empty() ? "" : ", ").append(each);
  }
  return InvalidArgument("endpoint is '" + Shortened(endpoint, 100) +
                         "' but a batch of this server may have one of " +
                         offered)
      .At("endpoint");
}

std::unique_ptr<LineExecutor> MakeBatchExecutor(
    std::shared_ptr<const Site> site) {
  return std::make_unique<BatchExecutor>(std::move(site));
}

}  // namespace millrace::server::http
