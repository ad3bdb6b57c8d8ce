// Any bytes as messages of a session: the first byte says how the rest is cut
// into a text, which may set inputs, and a binary message.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "server/http/session_message.h"
#include "server/tensor_bytes.h"

namespace {

using millrace::models::DType;
using millrace::models::TensorSpec;
namespace handlers = millrace::handlers;
namespace http = millrace::server::http;

const millrace::config::SessionSettings kDeclared = {.sample_rate = 8000};

void Require(bool condition, const char* why) {
  if (condition) return;
  std::fprintf(stderr, "session_message_fuzz: %s\n", why);
  std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  static const millrace::server::SharedRegions regions(false, 0);
  static const std::vector<TensorSpec> specs = {
      {.name = "x", .dtype = DType::kF32, .dims = {-1, 2}, .text = "FP32"},
      {.name = "n", .dtype = DType::kI64, .dims = {}, .text = "INT64"}};
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1,
                               size - 1);
  const size_t cut = bytes.size() - std::min<size_t>(bytes.size(), data[0]);
  http::SessionInputs inputs;
  auto text = http::ReadSessionText(bytes.substr(0, cut), regions);
  if (text.ok()) {
    if (auto* update = std::get_if<http::SessionUpdate>(&*text)) {
      static_cast<void>(inputs.Update(std::move(*update), kDeclared, specs));
    }
  } else {
    Require(!text.status().message().empty(), "a refusal without a sentence");
  }
  const std::string_view binary = bytes.substr(cut);
  for (int i = 0; i < 2; ++i) {
    auto read = inputs.Read(binary, kDeclared, specs);
    if (!read.ok()) return 0;
    handlers::TensorRequest& request = read->body.request;
    Require(request.inputs.size() == 1, "not one input");
    const int64_t bytes = request.inputs[0].tensor.num_bytes() -
                          static_cast<int64_t>(read->context.size());
    const auto sent = static_cast<int64_t>(binary.size());
    Require(bytes == sent || bytes == 2 * sent, "bytes were lost");
    Require(read->seconds >= 0, "time runs backwards");
    inputs.AddTo(request);
    inputs.Keep(std::move(read->context));
  }
  return 0;
}
