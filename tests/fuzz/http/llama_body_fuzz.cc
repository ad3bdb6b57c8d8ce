// Any bytes as a body of llama.cpp's /completion, of its /infill with a model
// that has tokens for files, or with one that has only those of a gap (the
// first byte says which): refused with a sentence that names a field, or turned
// into options that the scheduler takes and a prompt whose special tokens are
// the server's own.
#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "config/base/json.h"
#include "server/http/llama_input.h"
#include "tests/fuzz/refusal.h"
#include "tests/support/byte_handler.h"

namespace {

using Json = nlohmann::ordered_json;
using millrace::ByteHandler;
using millrace::CheckRefusal;
using millrace::Require;
namespace http = millrace::server::http;

void CheckBody(const ByteHandler& handler, const Json& body) {
  const auto wanted = http::ReadLlamaBody(handler, body);
  if (!wanted.ok()) return CheckRefusal(wanted.status());
  const auto& options = wanted->options;
  Require(wanted->n_predict >= -1, "n_predict");
  Require(!options.max_tokens || *options.max_tokens >= 1, "a token at least");
  Require(options.max_tokens.has_value() == (wanted->n_predict >= 0),
          "a limit where one is asked for");
  Require(options.clip_to_context, "the context ends it");
  Require(options.n >= 1 && options.n <= 128, "completions");
  Require(!options.logprobs || *options.logprobs <= 20, "logprobs");
  Require(!options.echo, "the prompt is not repeated");
  for (const auto& [id, bias] : options.logit_bias) {
    Require(id >= 0 && bias >= -100 && bias <= 100, "a logit bias");
  }
}

void CheckInfill(const ByteHandler& handler, size_t num_special,
                 const Json& body) {
  const auto prompt = http::ReadInfillPrompt(handler, body, "m");
  if (!prompt.ok()) return CheckRefusal(prompt.status());
  const auto& ids = prompt->ids;
  for (int32_t id = 256; id < 259; ++id) {
    Require(std::ranges::count(ids, id) == 1, "a mark of the gap");
  }
  const auto extra = body.find("input_extra");
  const size_t files =
      extra != body.end() && extra->is_array() ? extra->size() : 0;
  const auto marks = static_cast<size_t>(
      std::ranges::count_if(ids, [](int32_t id) { return id >= 259; }));
  Require(marks == (num_special > 3 && files > 0 ? files + 2 : 0),
          "a mark for each file and the two around them");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const ByteHandler of_gap(
      {"<fim_prefix>", "<fim_suffix>", "<fim_middle>"});
  static const ByteHandler of_files({"<|fim_prefix|>", "<|fim_suffix|>",
                                     "<|fim_middle|>", "<|repo_name|>",
                                     "<|file_sep|>"});
  if (size == 0) return 0;
  const auto body = millrace::ParseJson(
      std::string_view(reinterpret_cast<const char*>(data) + 1, size - 1));
  // Routes refuse what is no object before they look at it.
  if (!body.ok() || !body->is_object()) return 0;
  if (data[0] % 3 == 0) CheckBody(of_gap, *body);
  if (data[0] % 3 == 1) CheckInfill(of_gap, 3, *body);
  if (data[0] % 3 == 2) CheckInfill(of_files, 5, *body);
  if (data[0] % 3 != 0) CheckBody(of_gap, http::WithoutInfillSampler(*body));
  return 0;
}
