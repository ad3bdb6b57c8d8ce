// What clients of a model's session send (README.md, "Sessions"):
//
//   {"inputs": [...], "parameters": {...}}      an infer request of KServe v2
//   {"type": "session.update", "inputs": [...], "input": "x",
//    "encoding": "pcm16", "context": 64, "sample_rate": 16000}
//                                               how binary messages are read
//   {"type": "session.end"}                     no more comes
//   binary                                      the values of one input
//
// Pure functions but for SessionInputs, which one thread uses at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "config/base/status.h"
#include "config/session_settings.h"
#include "handlers/messages.h"
#include "models/tensor/tensor_spec.h"
#include "server/http/oip_request.h"

namespace millrace::server::http {

// Of the tensors that a session keeps: an idle one should cost little.
inline constexpr int64_t kMaxKeptBytes = 64 << 10;

// What it leaves out is as the model declares it.
struct SessionUpdate {
  std::vector<handlers::NamedTensor> inputs;  // of each later request
  std::optional<std::string> input;           // of binary messages
  std::optional<bool> pcm16;
  std::optional<int64_t> context;      // values
  std::optional<int64_t> sample_rate;  // Hz
};
struct SessionEnd {};
using SessionText = std::variant<InferBody, SessionUpdate, SessionEnd>;

// INVALID_ARGUMENT also for what a session does not take: a sequence id,
// outputs as bytes, more kept tensors than kMaxKeptBytes.
StatusOr<SessionText> ReadSessionText(std::string_view text,
                                      const SharedRegions& regions);

// What stands beside each request of a session, and how binary messages become
// requests.
class SessionInputs {
 public:
  // Checks that the model has them; nothing is changed where an error comes
  // back.
  Status Update(SessionUpdate update, const config::SessionSettings& declared,
                const std::vector<models::TensorSpec>& specs);
  // Adds those that the request leaves out.
  void AddTo(handlers::TensorRequest& request) const;

  struct Binary {
    InferBody body;
    double seconds = 0;   // of sound; 0: no sample rate is known
    std::string context;  // the last values, for Keep
  };
  // A binary message as a request. `declared` is the model's.
  StatusOr<Binary> Read(std::string_view bytes,
                        const config::SessionSettings& declared,
                        const std::vector<models::TensorSpec>& specs) const;
  // The message of that context was computed: the next one follows it.
  void Keep(std::string context) { context_ = std::move(context); }

 private:
  // The input that binary messages fill.
  StatusOr<const models::TensorSpec*> ChunkOf(
      const std::string& name,
      const std::vector<models::TensorSpec>& specs) const;

  SessionUpdate now_;
  std::string context_;  // as the input has values; empty: zeros
};

}  // namespace millrace::server::http
