// Bytes of an external handler to messages, and their tensors to ours. The
// handler is foreign code: every length and offset is checked.
//
//   FrameReader reader;
//   reader.Add(bytes);
//   while (true) {
//     ASSIGN_OR_RETURN(const bool complete, reader.Next(&message));
//     if (!complete) break; ...
//   }
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/base/status.h"
#include "handlers/messages.h"
#include "models/tensor/tensor_spec.h"

namespace millrace::handler {
class Message;
class Tensor;
}  // namespace millrace::handler

namespace millrace::handlers {

// Messages are smaller: large tensors go through shared memory or in several
// requests.
inline constexpr size_t kMaxFrameBytes = size_t{64} << 20;

class FrameReader {
 public:
  void Add(std::string_view bytes);
  // False: the next message has not come whole. Its texts are UTF-8: what was
  // none became U+FFFD, so that a client's bytes in them end no process.
  // INVALID_ARGUMENT: what came is no message; nothing more can be read.
  StatusOr<bool> Next(handler::Message* message);
  // Bytes that Next has not given yet.
  size_t size() const { return bytes_.size() - begin_; }

 private:
  std::string bytes_;
  size_t begin_ = 0;
};

// Length and message. INVALID_ARGUMENT when it is too large.
StatusOr<std::string> Framed(const handler::Message& message);

// A copy of what the handler sent. `shared` is the part of the memory that its
// tensors may lie in, which begins at `shared_begin`.
StatusOr<NamedTensor> TensorFrom(const handler::Tensor& tensor,
                                 std::span<const std::byte> shared,
                                 uint64_t shared_begin);
// What a handler says of its inputs or outputs.
StatusOr<models::TensorSpec> SpecFrom(const handler::Tensor& tensor);

// Name, type and shape alone.
void SetHead(const std::string& name, const models::Tensor& tensor,
             handler::Tensor* message);

}  // namespace millrace::handlers
