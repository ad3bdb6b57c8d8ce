// A task: bytes in, an answer in JSON out, blind to the wire. Its handler knows
// what the bytes are (a picture, a text) and what the graph behind it takes.
//
//   handler->Start(std::move(request), done, stop_token);
//
// The codecs make parts of whatever they read: a raw body is one part without a
// name, a form has a part for each of its fields, a BYTES tensor one for each
// element.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "config/base/clock.h"
#include "config/base/status.h"
#include "config/base/trace.h"

namespace millrace::handlers {

struct TaskPart {
  std::string name = {};          // of the form's field or the tensor
  std::string content_type = {};  // lower case, no parameters; empty: not given
  std::string bytes = {};
};

struct TaskResponse {
  std::string content_type = "application/json";
  // One for each item that the request asked about (a picture, a text), in
  // their order; a task that answers for all of them together gives one. JSON
  // texts where the content type is JSON.
  std::vector<std::string> results;
  // What a handler in Python says of the answer over HTTP; TorchServe's API
  // heeds it. Headers are checked: they break no message, and none of the
  // server's own is among them.
  int http_status = 200;
  std::vector<std::pair<std::string, std::string>> http_headers = {};
};

struct TaskRequest {
  std::vector<TaskPart> parts;  // in the order of the request
  // What the request says beside its parts: an object, or null for nothing.
  std::shared_ptr<const nlohmann::ordered_json> parameters;
  int32_t priority = 0;
  Clock::Time deadline = kNever;
  std::shared_ptr<Trace> trace;  // never null
  // What a handler answers before the end of its answer, in order, on a thread
  // of its own; short. Null: a handler that does so fails.
  std::function<void(TaskResponse)> on_part = {};
};

// The response as one body: the only result itself, else a JSON list of them.
std::string TaskBody(TaskResponse response);

class TaskHandler {
 public:
  virtual ~TaskHandler() = default;

  // Call it on a thread of the handler pool: parts are read before it returns.
  // `done` is called once, from a thread of the pool, maybe before this
  // returns. Each part is an item, unless the task says otherwise.
  using Done = std::function<void(StatusOr<TaskResponse>)>;
  virtual void Start(TaskRequest request, Done done, std::stop_token stop) = 0;
  // Whether a request that came now would get a place, else the refusal that
  // Start would give it: asked before the request's body is read.
  virtual Status HasPlace() const = 0;
};

}  // namespace millrace::handlers
