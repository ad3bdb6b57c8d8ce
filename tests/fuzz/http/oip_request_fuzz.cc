// Any bytes as the body of an infer request: they are refused with a sentence,
// or give tensors of as many bytes as their shapes say, whose answer in JSON is
// a request that gives the same tensors again. What the reader of plain
// requests takes, the reader of all forms reads alike.
//
// The first byte says where the JSON ends: so many bytes before the end.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include "models/tensor/travel_bytes.h"
#include "server/http/oip_answer.h"
#include "server/http/oip_plain.h"
#include "server/http/oip_request.h"

namespace {

using millrace::Status;
using millrace::StatusCode;
using millrace::models::TravelBytes;
using millrace::server::http::InferBody;
using millrace::server::http::ReadInferBody;

void Require(bool condition, const char* why) {
  if (condition) return;
  std::fprintf(stderr, "oip_request_fuzz: %s\n", why);
  std::abort();
}

const millrace::server::SharedRegions& NoRegions() {
  static const millrace::server::SharedRegions regions(false, 0);
  return regions;
}

void CheckRefusal(const Status& status) {
  Require(status.code() == StatusCode::kInvalidArgument ||
              (status.code() == StatusCode::kNotFound &&
               status.field() == "shared_memory_region"),
          "a bad request is INVALID_ARGUMENT");
  Require(!status.message().empty(), "a refusal says why");
}

std::vector<millrace::handlers::NamedTensor> Copies(
    const std::vector<millrace::handlers::NamedTensor>& tensors) {
  std::vector<millrace::handlers::NamedTensor> copies;
  for (const auto& each : tensors) {
    copies.push_back({each.name, each.tensor.Share()});
  }
  return copies;
}

void CheckRoundTrip(const InferBody& body) {
  const auto answer = millrace::server::http::InferResponse(
      {.model = "m", .version = "1", .id = {}, .forms = {}},
      {.outputs = Copies(body.request.inputs)}, NoRegions());
  if (!answer.ok()) {
    Require(answer.status().code() == StatusCode::kFailedPrecondition,
            "only NaN and infinities cannot be said");
    return;
  }
  std::string text = answer->body;
  const size_t key = text.find("\"outputs\":");
  Require(key != text.npos, "an answer has outputs");
  text.replace(key, std::strlen("\"outputs\":"), "\"inputs\":");
  const auto again = ReadInferBody(text, std::nullopt, NoRegions());
  Require(again.ok(), "an answer can be read");
  for (size_t i = 0; i < body.request.inputs.size(); ++i) {
    const auto& before = body.request.inputs[i];
    const auto& after = again->request.inputs[i];
    Require(before.tensor.dtype() == after.tensor.dtype() &&
                before.tensor.shape() == after.tensor.shape() &&
                TravelBytes(before.tensor).view() ==
                    TravelBytes(after.tensor).view(),
            "numbers keep their bits on their way through JSON");
  }
}

// An unknown key makes the plain reader decline.
void CheckPlain(const InferBody& plain, const std::string& json,
                const std::string& tail) {
  const size_t at = json.find('{') + 1;
  const bool is_empty = json[json.find_first_not_of(" \t\r\n", at)] == '}';
  const std::string text = json.substr(0, at) +
                           (is_empty ? "\"-\":1" : "\"-\":1,") +
                           json.substr(at);
  const auto body = ReadInferBody(text + tail, text.size(), NoRegions());
  Require(body.ok(), "the reader of all forms takes it, too");
  Require(body->id == plain.id && body->binary == plain.binary &&
              body->request.outputs == plain.request.outputs &&
              body->forms.size() == plain.forms.size() &&
              body->request.inputs.size() == plain.request.inputs.size(),
          "both read the same");
  for (const auto& [name, form] : plain.forms) {
    Require(body->forms.at(name).binary == form.binary, "forms are the same");
  }
  for (size_t i = 0; i < plain.request.inputs.size(); ++i) {
    const auto& a = plain.request.inputs[i];
    const auto& b = body->request.inputs[i];
    Require(a.name == b.name && a.tensor.dtype() == b.tensor.dtype() &&
                a.tensor.shape() == b.tensor.shape() &&
                TravelBytes(a.tensor).view() == TravelBytes(b.tensor).view(),
            "tensors are the same");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1,
                              size - 1);
  const size_t tail = std::min<size_t>(data[0], text.size());
  const std::string_view json = text.substr(0, text.size() - tail);
  if (const auto plain = millrace::server::http::ReadPlainInfer(
          json, text.substr(json.size()))) {
    CheckPlain(*plain, std::string(json),
               std::string(text.substr(json.size())));
  }
  const auto body = ReadInferBody(text, text.size() - tail, NoRegions());
  if (!body.ok()) {
    CheckRefusal(body.status());
    return 0;
  }
  for (const auto& input : body->request.inputs) {
    // Reads every byte.
    const auto bytes = TravelBytes(input.tensor).view();
    Require(std::string(bytes).size() == bytes.size(), "");
  }
  CheckRoundTrip(*body);
  return 0;
}
