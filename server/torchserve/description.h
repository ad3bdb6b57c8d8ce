// What TorchServe's DescribeModel answers, whichever wire asked: what the
// server knows of a model and, where the client wants it (customized), what the
// model's handler in Python says of itself.
#pragma once

#include <functional>
#include <string>

#include "config/base/status.h"
#include "server/torchserve/management.h"
#include "server/torchserve/predict.h"

namespace millrace::server::torchserve {

struct DescriptionRequest {
  std::string name;
  std::string version;  // empty: the default one; "all"
  bool customized = false;
};

// A JSON list. Called once, on any thread.
using DescriptionDone = std::function<void(StatusOr<std::string>)>;

// `call` is for the handler; it says itself that it asks for a description. An
// error that this returns is the end: `done` is not called then. A handler is
// asked for one version only, and only while that serves.
Status StartDescription(const Management& management, const Registry& registry,
                        const DescriptionRequest& request, const Borrow& borrow,
                        PredictionCall call, DescriptionDone done);

}  // namespace millrace::server::torchserve
