// /v2/models/{id}/sessions: one sequence of requests to a model over a
// WebSocket. Each message has one answer, in their order. The model is borrowed
// for each of them, so that a session that only waits keeps none from leaving.
#include <algorithm>
#include <charconv>
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "config/base/json.h"
#include "config/base/log.h"
#include "config/base/out_of_memory.h"
#include "handlers/sequences/sequence_place.h"
#include "server/http/gatekeeper.h"
#include "server/http/oip_answer.h"
#include "server/http/pool_work.h"
#include "server/http/routes.h"
#include "server/http/session_message.h"
#include "server/lifecycle/repository.h"
#include "server/lifecycle/session_port.h"
#include "server/request_id.h"

namespace millrace::server::http {
namespace {

using Json = nlohmann::ordered_json;

// No client is likely to have chosen it. Fits an INT64.
uint64_t RandomId() {
  constexpr int kDigits = 15;  // below 2^60
  uint64_t id = 0;
  const std::string digits = RandomHex(kDigits);
  std::from_chars(digits.data(), digits.data() + digits.size(), id, 16);
  return id + 1;
}

SocketAnswer ErrorAnswer(const Status& status,
                         const std::optional<std::string>& id = {},
                         SocketClose close = SocketClose::kNone,
                         std::string reason = {}) {
  Json json = Json::object();
  if (id.has_value() && !id->empty()) json["id"] = *id;
  json["error"] = std::string(status.message());
  return {.text = DumpJson(json), .close = close, .reason = std::move(reason)};
}

// Of a model that declares nothing.
const config::SessionSettings& DeclaredBy(const Servable& model) {
  static const config::SessionSettings none;
  const SessionPort* port = model.session_port();
  return port == nullptr ? none : port->settings();
}

double SecondsOf(const handlers::BatchFacts& batch) {
  const Clock::Duration all =
      batch.compute_input + batch.compute_infer + batch.compute_output;
  return std::chrono::duration<double>(all).count() /
         std::max<int32_t>(batch.requests, 1);
}

class InferSession final : public SocketHandler,
                           public std::enable_shared_from_this<InferSession> {
 public:
  InferSession(const Site& site, std::shared_ptr<Exchange> exchange,
               SessionPermit permit)
      : site_(site.shared_from_this()),
        permit_(std::move(permit)),
        exchange_(std::move(exchange)),
        name_(exchange_->params()[0]),
        version_(exchange_->params().size() > 1 ? exchange_->params()[1] : ""),
        id_(RandomId()) {}

  // A client that left without a word leaves no state behind.
  ~InferSession() override {
    if (!begun_) return;
    StatusOr<ModelHandle> model =
        site_->services.repository->Borrow(name_, version_);
    if (!model.ok()) return;  // its states went with it
    const auto handler = (*model)->ForTensors();
    if (!handler.ok()) return;
    if (auto* sequenced = dynamic_cast<handlers::SequencedHandler*>(*handler)) {
      sequenced->EndAt(id_);
    }
  }

  void OnMessage(SocketMessage message, Answer answer,
                 std::stop_token stop) override {
    // A short message may name a large region of shared memory.
    if (message.bytes.size() <= kShortBodyBytes &&
        !(message.is_text && MayNameRegion(message.bytes))) {
      return Handle(message, answer, std::move(stop));
    }
    auto held = std::make_shared<SocketMessage>(std::move(message));
    const bool posted = site_->services.pool->TryPost(
        [self = shared_from_this(), held, answer, stop] {
          self->Handle(*held, answer, stop);
        });
    if (posted) return;
    answer(ErrorAnswer(ResourceExhausted(
        "too many requests wait to be read; try again later")));
  }

 private:
  void Handle(const SocketMessage& message, const Answer& answer,
              std::stop_token stop) {
    std::optional<std::string> id;
    Status status;
    try {
      status = TryHandle(message, answer, std::move(stop), &id);
    } catch (const std::exception& error) {  // out of memory, most likely
      LogError("request failed", {{"id", exchange_->trace()->request_id},
                                  {"error", error.what()}});
      status = Internal("the request failed; see the server's log");
    }
    if (!status.ok()) answer(ErrorAnswer(status, id));
  }

  Status TryHandle(const SocketMessage& message, const Answer& answer,
                   std::stop_token stop, std::optional<std::string>* id) {
    const CallerPtr& caller = exchange_->caller();
    Permit permit;
    if (caller != nullptr) {
      const Status valid = site_->services.auth->CheckStillValid(*caller);
      if (!valid.ok()) {
        answer(ErrorAnswer(valid, {}, SocketClose::kPolicy,
                           "the key is not valid any more"));
        return OkStatus();
      }
      ASSIGN_OR_RETURN(permit, caller->tenant->Admit());
    }
    ASSIGN_OR_RETURN(ModelHandle model,
                     BorrowNamed(*site_, *exchange_, name_, version_));
    ASSIGN_OR_RETURN(handlers::TensorHandler * handler, model->ForTensors());
    const config::SessionSettings& declared = DeclaredBy(*model);
    if (!message.is_text) {
      ASSIGN_OR_RETURN(
          SessionInputs::Binary binary,
          inputs_.Read(message.bytes, declared, handler->inputs()));
      return Infer(std::move(binary), std::move(model), handler,
                   std::move(permit), answer, std::move(stop));
    }
    ASSIGN_OR_RETURN(
        SessionText text,
        ReadSessionText(message.bytes, site_->services.state->regions));
    if (auto* update = std::get_if<SessionUpdate>(&text)) {
      RETURN_IF_ERROR(
          inputs_.Update(std::move(*update), declared, handler->inputs()));
      answer({.text = R"({"type":"session.updated"})"});
      return OkStatus();
    }
    if (std::holds_alternative<SessionEnd>(text)) {
      answer({.text = R"({"type":"session.ended"})",
              .close = SocketClose::kNormal});
      return OkStatus();
    }
    SessionInputs::Binary whole;
    whole.body = std::move(std::get<InferBody>(text));
    *id = whole.body.id;
    return Infer(std::move(whole), std::move(model), handler, std::move(permit),
                 answer, std::move(stop));
  }

  Status Infer(SessionInputs::Binary message, ModelHandle model,
               handlers::TensorHandler* handler, Permit permit,
               const Answer& answer, std::stop_token stop) {
    InferBody& body = message.body;
    handlers::TensorRequest request = std::move(body.request);
    inputs_.AddTo(request);
    request.priority = PriorityOf(*exchange_, request.priority);
    request.trace = std::make_shared<Trace>();
    request.trace->request_id = exchange_->trace()->request_id;
    const handlers::SequencePlace place = {
        .id = id_, .start = !begun_, .end = body.sequence.end};
    InferAnswerShape shape = {.model = name_,
                              .version = model->version(),
                              .id = std::move(body.id),
                              .forms = std::move(body.forms),
                              .batch_statistics = body.batch_statistics};
    // Let go of before the answer: the next message has a model of its own.
    struct Held {
      ModelHandle model;
      Permit permit;
      double seconds;  // of sound
      std::string context;
    };
    auto held = std::make_shared<std::optional<Held>>(
        Held{std::move(model), std::move(permit), message.seconds,
             std::move(message.context)});
    handlers::StartInSequence(
        handler, place, std::move(request),
        [self = shared_from_this(), held, place, answer,
         shape = std::move(shape)](
            const StatusOr<handlers::TensorResponse>& response) {
          SocketAnswer made = self->Finish(place, shape, response);
          if (response.ok()) {
            self->inputs_.Keep(std::move((*held)->context));
            const SessionPort* port = (*held)->model->session_port();
            if (port != nullptr) {
              port->Observe((*held)->seconds, SecondsOf(response->batch));
            }
          }
          held->reset();
          answer(std::move(made));
        },
        std::move(stop));
    return OkStatus();
  }

  SocketAnswer Finish(const handlers::SequencePlace& place,
                      const InferAnswerShape& shape,
                      const StatusOr<handlers::TensorResponse>& response) {
    if (!response.ok()) {
      // The model was loaded anew, or nothing came for so long that it ended
      // the sequence: what follows would have no state.
      const Status& status = response.status();
      const bool lost = begun_ && status.field() == "sequence_start";
      if (lost || place.end) begun_ = false;
      if (lost) {
        return ErrorAnswer(status, shape.id, SocketClose::kServiceRestart,
                           "the sequence's state is gone; open a new session");
      }
      if (status.reason() == "too_many_sequences") {
        return ErrorAnswer(status, shape.id, SocketClose::kTryAgainLater,
                           "the model has no room for another sequence");
      }
      return ErrorAnswer(status, shape.id,
                         place.end ? SocketClose::kNormal : SocketClose::kNone);
    }
    const SocketClose close =
        place.end ? SocketClose::kNormal : SocketClose::kNone;
    begun_ = !place.end;
    StatusOr<HttpResponse> answer = CatchOutOfMemory([&] {
      return InferResponse(shape, *response, site_->services.state->regions);
    });
    if (!answer.ok()) return ErrorAnswer(answer.status(), shape.id, close);
    return {.text = std::move(answer->body), .close = close};
  }

  const std::shared_ptr<const Site> site_;
  const SessionPermit permit_;  // the tenant's
  const std::shared_ptr<Exchange> exchange_;
  const std::string name_;
  const std::string version_;
  const uint64_t id_;  // of the sequence
  // Of the message that is handled, one at a time.
  SessionInputs inputs_;
  bool begun_ = false;
};

}  // namespace

// Never called with a WebSocket: the connection serves those.
void ServeSession(const Site&, const std::shared_ptr<Exchange>& exchange) {
  exchange->Send(OipErrorResponse(
      InvalidArgument("a session is a WebSocket; ask for the upgrade")));
}

StatusOr<std::shared_ptr<SocketHandler>> OpenSession(
    const Site& site, const std::shared_ptr<Exchange>& exchange) {
  const std::vector<std::string>& params = exchange->params();
  exchange->SetModel(params[0]);
  ASSIGN_OR_RETURN(const ModelHandle model,
                   BorrowNamed(site, *exchange, params[0],
                               params.size() > 1 ? params[1] : std::string()));
  RETURN_IF_ERROR(model->ForTensors().status());
  SessionPermit session;
  if (const CallerPtr& caller = exchange->caller(); caller != nullptr) {
    // The request that asks for the upgrade counts for the tenant's rate; its
    // place is free again at once.
    ASSIGN_OR_RETURN(const Permit request, caller->tenant->Admit());
    ASSIGN_OR_RETURN(session, caller->tenant->AdmitSession());
  }
  return std::shared_ptr<SocketHandler>(
      std::make_shared<InferSession>(site, exchange, std::move(session)));
}

}  // namespace millrace::server::http
