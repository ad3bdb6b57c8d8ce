// The open streams, for a shutdown.
#include <algorithm>
#include <memory>
#include <vector>

#include "server/grpc/infer_stream.h"

namespace millrace::server {

void InferStreams::Add(const std::shared_ptr<Stream>& stream) {
  bool draining;
  {
    MutexLock lock(mu_);
    draining = draining_;
    streams_.erase(
        std::remove_if(streams_.begin(), streams_.end(),
                       [](const auto& weak) { return weak.expired(); }),
        streams_.end());
    streams_.push_back(stream);
  }
  if (draining) stream->Drain();
}

void InferStreams::Drain() {
  std::vector<std::weak_ptr<Stream>> streams;
  {
    MutexLock lock(mu_);
    draining_ = true;
    streams = streams_;
  }
  for (const auto& weak : streams) {
    if (auto stream = weak.lock()) stream->Drain();
  }
}

}  // namespace millrace::server
