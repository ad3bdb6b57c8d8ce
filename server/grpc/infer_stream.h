// ModelStreamInfer: many requests on one stream. Answers of language models
// come interleaved under their ids, those of graphs in the order of the
// requests.
#pragma once

#include <memory>
#include <vector>

#include "config/base/mutex.h"
#include "server/grpc/infer_parts.h"

namespace grpc {
class CallbackServerContext;
template <class Request, class Response>
class ServerBidiReactor;
}  // namespace grpc

namespace inference {
class ModelStreamInferResponse;
}

namespace millrace::server {

// The open streams, so that a shutdown can end those that only wait for another
// request. Thread-safe.
class InferStreams {
 public:
  class Stream {
   public:
    virtual ~Stream() = default;
    // Ends with UNAVAILABLE once nothing is in flight.
    virtual void Drain() = 0;
  };

  void Add(const std::shared_ptr<Stream>& stream);
  // All there are now, and each that is added later.
  void Drain();

 private:
  Mutex mu_;
  bool draining_ GUARDED_BY(mu_) = false;
  std::vector<std::weak_ptr<Stream>> streams_ GUARDED_BY(mu_);
};

::grpc::ServerBidiReactor<inference::ModelInferRequest,
                          inference::ModelStreamInferResponse>*
StartStreamInfer(const InferParts& parts, CallInfo info, InferStreams* streams);

}  // namespace millrace::server
