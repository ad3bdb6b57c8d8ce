// Bodies of uploaded files, and what is read of them: lines of a batch's input.
// The boundary is "b". What is taken lies within the body.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "server/batches/validate_batch.h"
#include "server/http/multipart.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace::server;
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  // The first line may be the type; else it is the usual one.
  const size_t line = body.find('\n');
  if (line != std::string_view::npos) {
    static_cast<void>(
        http::ParseFormData(body.substr(0, line), body.substr(line + 1)));
  }
  const auto parts =
      http::ParseFormData("multipart/form-data; boundary=b", body);
  if (!parts.ok()) return 0;
  if (parts->size() > http::kMostFormParts) std::abort();
  for (const http::FormPart& part : *parts) {
    const std::string_view text = part.data;
    if (text.data() < body.data() ||
        text.data() + text.size() > body.data() + body.size()) {
      std::abort();
    }
    const BatchCheck check = ValidateBatch(text, "/v1/completions", 100);
    if (check.errors.empty() && check.total == 0) std::abort();
  }
  return 0;
}
