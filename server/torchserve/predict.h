// Predictions of registered models, whichever wire asked for them. A model's
// task gets the parts where it has one (pictures, texts), else its tensors;
// both through its batcher.
//
//   ASSIGN_OR_RETURN(Prediction prediction, FindPrediction(…));
//   RETURN_IF_ERROR(StartPrediction(std::move(prediction), std::move(call),
//   done));
//
// Call the Start functions on a thread of the handler pool: they read the
// parts.
#pragma once

#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/base/clock.h"
#include "config/base/status.h"
#include "config/base/trace.h"
#include "handlers/sequences/sequence_place.h"
#include "handlers/task.h"
#include "server/lifecycle/repository.h"
#include "server/torchserve/registry.h"

namespace millrace::server::torchserve {

struct Prediction {
  Registered model;
  ModelHandle handle;
  std::string version = {};         // as asked for; empty: the default one
  MetricLog* metric_log = nullptr;  // may be null
};

// Lends a version of a model that the caller may use.
using Borrow = std::function<StatusOr<ModelHandle>(const std::string& name,
                                                   const std::string& version)>;

// The default version where `version` is empty. NOT_FOUND as Registry::Find;
// UNAVAILABLE: the version has no worker, or is being loaded.
StatusOr<Prediction> FindPrediction(const Registry& registry,
                                    const std::string& name,
                                    const std::string& version,
                                    const Borrow& borrow);

// Whether every version that shall have workers serves.
bool IsHealthy(const Registry& registry, const Repository& repository);

// What a request says beside its parts.
struct PredictionCall {
  const Clock* clock = nullptr;
  Clock::Time deadline = kNever;  // of the client; the model has its own, too
  int32_t priority = 0;
  std::shared_ptr<Trace> trace;  // never null; stamped "parsed"
  std::stop_token stop;
  // A handler in Python is to explain instead; graphs cannot.
  bool explain = false;
  // A handler in Python is to tell of itself (customized=true).
  bool describe = false;
  // Of the request, names in lower case; a handler in Python reads them.
  std::vector<std::pair<std::string, std::string>> headers = {};
  // What a handler in Python answers before the end, in order; short. Null: all
  // of it is the answer's text.
  std::function<void(std::string)> on_part = {};
  // For models that keep a state between requests; the others take no notice.
  handlers::SequencePlace sequence = {};
};

struct PredictionBody {
  std::string content_type = "application/json";
  std::string text;
  // As a handler in Python chose them.
  int http_status = 200;
  std::vector<std::pair<std::string, std::string>> http_headers = {};
  Clock::Time computed = {};  // when the model's results were there
};

// TorchServe's headers and inputs that tell of sequences.
inline constexpr std::string_view kSequenceId = "ts_request_sequence_id";
inline constexpr std::string_view kSequenceStart = "ts_request_sequence_start";
inline constexpr std::string_view kSequenceEnd = "ts_request_sequence_end";
// The place of a request of the sequence `id`, which starts one that is not
// there; `start` and `end` are "true" or anything else.
handlers::SequencePlace PlaceIn(std::string_view id, std::string_view start,
                                std::string_view end);

// Called once, on any thread. The model is lent until it returns.
using PredictionDone = std::function<void(StatusOr<PredictionBody>)>;

// An error it returns is the end: `done` is not called then.
Status StartPrediction(Prediction prediction,
                       std::vector<handlers::TaskPart> parts,
                       PredictionCall call, PredictionDone done);

// KServe v1: {"instances": […]} in, {"predictions": […]} out, or
// {"explanations": […]}.
Status StartInstances(Prediction prediction, std::string body,
                      PredictionCall call, PredictionDone done);
// KServe v2's explanations, by a handler in Python.
Status StartExplainedTensors(Prediction prediction, std::string body,
                             PredictionCall call, PredictionDone done);

// UNIMPLEMENTED unless the model's handler, in Python, may explain.
Status CheckExplains(const Prediction& prediction);

}  // namespace millrace::server::torchserve
