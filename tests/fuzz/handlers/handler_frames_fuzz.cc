// Any bytes as what an external handler sends: framed messages, their tensors,
// inline or in shared memory. The first byte says in how large pieces they
// come; what is read does not depend on it, and no tensor has bytes from
// elsewhere.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "config/base/utf8.h"
#include "handler.pb.h"
#include "handlers/external/frames.h"
#include "models/tensor/strings.h"

namespace {

using millrace::handlers::FrameReader;

constexpr uint64_t kSharedBegin = 4096;

// All that was read, as text.
std::string ReadAll(std::string_view bytes, size_t piece) {
  std::vector<std::byte> shared(256, std::byte{7});
  std::string seen;
  FrameReader reader;
  for (size_t at = 0; at < bytes.size(); at += piece) {
    reader.Add(bytes.substr(at, std::min(piece, bytes.size() - at)));
    while (true) {
      millrace::handler::Message message;
      const auto complete = reader.Next(&message);
      if (!complete.ok()) return seen + "error";
      if (!*complete) break;
      seen += std::to_string(message.id()) + ";";
      if (!millrace::IsValidUtf8(message.error())) {
        std::fprintf(stderr, "handler_frames_fuzz: a text that is no UTF-8\n");
        std::abort();
      }
      for (const auto& tensor : message.tensors()) {
        const auto read =
            millrace::handlers::TensorFrom(tensor, shared, kSharedBegin);
        if (!read.ok()) continue;
        seen += std::to_string(read->tensor.num_bytes()) + ",";
        if (read->tensor.dtype() == millrace::models::kString) {
          seen +=
              std::to_string(millrace::models::NumCharacters(read->tensor)) +
              "c,";
          continue;
        }
        const bool is_shared = tensor.shared_bytes() > 0;
        for (int64_t i = 0; is_shared && i < read->tensor.num_bytes(); ++i) {
          const auto byte = static_cast<int>(read->tensor.bytes()[i]);
          if (byte == 7 || byte == 1) continue;  // 1: of a BOOL
          std::fprintf(stderr, "handler_frames_fuzz: a byte from elsewhere\n");
          std::abort();
        }
      }
      for (const auto& input : message.inputs()) {
        seen += millrace::handlers::SpecFrom(input).ok() ? "s" : "-";
      }
    }
  }
  return seen;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1,
                               size - 1);
  if (ReadAll(bytes, 1 + data[0] % 64) != ReadAll(bytes, size)) {
    std::fprintf(stderr, "handler_frames_fuzz: pieces changed a message\n");
    std::abort();
  }
  return 0;
}
