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
  const std::string_view type = "multipart/form-data; boundary=b";
  const auto parts = http::ParseFormData(type, body);
  // What is well-formed by strict rules is so by TorchServe's, too.
  const auto loose =
      http::ParseFormData(type, body, {.max_parts = 1000, .strict = false});
  if (parts.ok() && !loose.ok()) std::abort();
  for (size_t i = 0; parts.ok() && i < parts->size(); ++i) {
    if (loose->size() != parts->size() ||
        (*loose)[i].data.data() != (*parts)[i].data.data() ||
        (*loose)[i].data.size() != (*parts)[i].data.size()) {
      std::abort();
    }
  }
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
