// Graphs over the Open Inference Protocol's REST, as a client sees them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "handlers/place_in_time.h"
#include "tests/support/graph_servable.h"
#include "tests/support/test_graphs.h"
#include "tests/unit/server/http/harness.h"

namespace millrace::server::http {
namespace {

using Json = nlohmann::ordered_json;
using ::testing::HasSubstr;

constexpr char kInfer[] = "/v2/models/sums/infer";

Json Body(const Reply& reply) {
  return Json::parse(reply.body, nullptr, /*allow_exceptions=*/false);
}

std::string Input(const std::string& name, const std::string& data,
                  const std::string& datatype = "FP32",
                  const std::string& shape = "[1,2]") {
  return R"({"name":")" + name + R"(","datatype":")" + datatype +
         R"(","shape":)" + shape + R"(,"data":)" + data + "}";
}

std::string Request(const std::string& a, const std::string& b,
                    const std::string& more = "") {
  return R"({"inputs":[)" + a + "," + b + "]" + more + "}";
}

std::string RawFloats(const std::vector<float>& values) {
  std::string bytes(values.size() * sizeof(float), '\0');
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

class InferTest : public testing::Test {
 protected:
  InferTest() {
    namespace t = ::millrace::support;
    server_.repository.Add(
        t::GraphServable("sums", t::SumGraph(), server_.pool.get()));
    server_.repository.Add(
        t::GraphServable("echo", t::EchoGraph(), server_.pool.get()));
  }
  ~InferTest() override {
    server_.repository.Drain(std::chrono::steady_clock::now() +
                             std::chrono::seconds(20));
  }

  std::string Refusal(
      const std::string& body,
      std::string_view headers = "Content-Type: application/json\r\n") {
    const Reply reply = client_.Post(kInfer, body, headers);
    EXPECT_EQ(reply.status, 400) << reply.body;
    const Json json = Body(reply);
    return json.contains("error") ? json["error"].get<std::string>() : "";
  }

  TestServer server_;
  Client client_{server_.port()};
};

TEST_F(InferTest, AnswersJsonTensors) {
  const Reply reply = client_.Post(
      kInfer,
      Request(Input("b", "[[3,4]]"), Input("a", "[1,2]"),
              R"(,"id":"r7","parameters":{"sequence_id":0,"what":"ever"})"));
  EXPECT_EQ(reply.status, 200) << reply.body;
  EXPECT_EQ(
      reply.body,
      R"({"model_name":"sums","model_version":"1","id":"r7","outputs":[)"
      R"({"name":"sum","datatype":"FP32","shape":[1,2],"data":[4.0,6.0]},)"
      R"({"name":"twice","datatype":"FP32","shape":[1,2],"data":[8.0,12.0]}]})");
}

TEST_F(InferTest, AnswersTheOutputsAskedForAndTheVersionNamed) {
  const Reply reply =
      client_.Post("/v2/models/sums/versions/1/infer",
                   Request(Input("a", "[1,2]"), Input("b", "[3,4]"),
                           R"(,"outputs":[{"name":"twice"}])"));
  EXPECT_EQ(Body(reply)["outputs"].size(), 1u) << reply.body;
  EXPECT_EQ(Body(reply)["outputs"][0]["name"], "twice");
  EXPECT_FALSE(Body(reply).contains("id"));
  EXPECT_EQ(client_.Post("/v2/models/sums/versions/2/infer", "{}").status, 404);
  EXPECT_EQ(client_.Post("/v2/models/none/infer", "{}").status, 404);
}

TEST_F(InferTest, HeadMayStandBehindItsData) {
  const Reply reply = client_.Post(
      kInfer,
      Request(R"({"data":[1,2],"shape":[1,2],"datatype":"FP32","name":"a"})",
              Input("b", "[3,4]")));
  EXPECT_EQ(reply.status, 200) << reply.body;
}

TEST_F(InferTest, CarriesEveryType) {
  const std::vector<std::pair<std::string, std::string>> kValues = {
      {"BOOL", "[true,false]"},
      {"UINT8", "[0,255]"},
      {"UINT16", "[0,65535]"},
      {"UINT32", "[0,4294967295]"},
      {"UINT64", "[0,18446744073709551615]"},
      {"INT8", "[-128,127]"},
      {"INT16", "[-32768,32767]"},
      {"INT32", "[-2147483648,2147483647]"},
      {"INT64", "[-9223372036854775808,9223372036854775807]"},
      {"FP16", "[65504.0,-0.5]"},
      {"BF16", "[1.5,-2.0]"},
      {"FP32", "[0.1,1e+20]"},
      {"FP64", "[0.1,1e+300]"}};
  std::string inputs;
  for (const auto& [type, values] : kValues) {
    inputs +=
        (inputs.empty() ? "" : ",") + Input("i_" + type, values, type, "[2]");
  }
  const Reply reply =
      client_.Post("/v2/models/echo/infer", R"({"inputs":[)" + inputs + "]}");
  EXPECT_EQ(reply.status, 200) << reply.body;
  for (const auto& [type, values] : kValues) {
    EXPECT_THAT(reply.body, HasSubstr(R"("datatype":")" + type +
                                      R"(","shape":[2],"data":)" + values));
  }
}

TEST_F(InferTest, TakesAndGivesBytesBehindTheJson) {
  const auto binary = [](const char* name) {
    return R"({"name":")" + std::string(name) +
           R"(","datatype":"FP32","shape":[1,2],)"
           R"("parameters":{"binary_data_size":8}})";
  };
  const std::string json = Request(
      binary("a"), Input("b", "[3,4]"),
      R"(,"parameters":{"binary_data_output":true},)"
      R"("outputs":[{"name":"twice","parameters":{"binary_data":true}},)"
      R"({"name":"sum","parameters":{"binary_data":false}}])");
  const std::string headers =
      "Content-Type: application/octet-stream\r\n"
      "Inference-Header-Content-Length: " +
      std::to_string(json.size()) + "\r\n";
  const Reply reply = client_.Post(kInfer, json + RawFloats({1, 2}), headers);
  ASSERT_EQ(reply.status, 200) << reply.body;
  const size_t end =
      std::stoul(reply.Header("inference-header-content-length"));
  EXPECT_EQ(reply.Header("content-type"), "application/octet-stream");
  const Json head = Json::parse(reply.body.substr(0, end));
  EXPECT_EQ(head["outputs"][0]["parameters"]["binary_data_size"], 8);
  EXPECT_EQ(head["outputs"][1]["data"], Json::array({4.0, 6.0}));
  EXPECT_EQ(reply.body.substr(end), RawFloats({8, 12}));

  EXPECT_THAT(Refusal(json + "123", headers),
              HasSubstr("binary_data_size of 8 but only 3 bytes"));
  EXPECT_THAT(Refusal(json + RawFloats({1, 2, 3}), headers),
              HasSubstr("4 bytes are left behind the tensors"));
  EXPECT_THAT(Refusal(json, "Inference-Header-Content-Length: 9999\r\n"),
              HasSubstr("within the body"));
  EXPECT_THAT(Refusal(json, "Inference-Header-Content-Length: 0\r\n"),
              HasSubstr("send the JSON that describes the tensors"));
}

TEST_F(InferTest, NamesTheInputAtFault) {
  const std::string b = Input("b", "[3,4]");
  const auto refusal = [&](const std::string& a) {
    return Refusal(Request(a, b));
  };
  EXPECT_THAT(refusal(Input("c", "[1,2]")), HasSubstr("input 'c' is not one"));
  EXPECT_THAT(refusal(Input("b", "[1,2]")), HasSubstr("given twice"));
  EXPECT_THAT(Refusal(R"({"inputs":[)" + b + "]}"),
              HasSubstr("input 'a' is missing; model 'sums' takes a FP32 [n"));
  EXPECT_THAT(refusal(Input("a", "[1]")), HasSubstr("input 'a' has 1 values"));
  EXPECT_THAT(refusal(Input("a", "[1,2,3]", "FP32", "[1,3]")),
              HasSubstr("input 'a' is FP32 [1, 3] but the model takes"));
  EXPECT_THAT(refusal(Input("a", "[1,2]", "INT8")),
              HasSubstr("input 'a' is INT8 [1, 2] but the model takes"));
  EXPECT_THAT(refusal(Input("a", "[\"x\"]", "BYTES", "[1]")),
              HasSubstr("input 'a' is BYTES [1] but the model takes"));
  EXPECT_THAT(refusal(Input("a", "[\"x\"]", "TEXT", "[1]")),
              HasSubstr("input 'a' has datatype 'TEXT'"));
  EXPECT_THAT(refusal(Input("a", "[NaN,2]")),
              HasSubstr("input 'a' has unreadable data"));
  EXPECT_THAT(refusal(Input("a", "[1,-Infinity]")), HasSubstr("'a'"));
  EXPECT_THAT(refusal(Input("a", "[1,1e999]")), HasSubstr("'a'"));
  EXPECT_THAT(refusal(Input("a", "7")), HasSubstr("inputs[0].data must be"));
  EXPECT_THAT(refusal(Input("a", "[1,2]", "FP32", "[-1,2]")),
              HasSubstr("inputs[0].shape[0]"));
  EXPECT_THAT(refusal(Input("a", "[1,2]", "FP32", "[1000000,1000000]")),
              HasSubstr("more elements than the body"));
  EXPECT_THAT(refusal(Input("a", "[]", "FP32", "[0,1000000000000]")),
              HasSubstr("is empty with shape"));
  EXPECT_THAT(refusal(R"({"name":"a","datatype":"FP32","shape":[1,2]})"),
              HasSubstr("neither data nor the parameter binary_data_size"));
  EXPECT_THAT(refusal(R"({"name":"a","shape":[1,2]})"),
              HasSubstr("inputs[0].datatype is missing"));
  EXPECT_THAT(Refusal("{}"), HasSubstr("inputs is missing"));
  EXPECT_THAT(Refusal("[]"), HasSubstr("must be a JSON object"));
  EXPECT_THAT(Refusal(Request(Input("a", "[1,2]"), b,
                              R"(,"outputs":[{"name":"none"}])")),
              HasSubstr("output 'none' is not one of model 'sums'"));
}

TEST_F(InferTest, TensorsMayBeLargerThanATreeOfJson) {
  std::string values = "[0";
  for (int i = 1; i < 1'200'000; ++i) values += ",1";
  values += "]";
  const std::string large = Input("a", values, "FP32", "[600000,2]");
  const Reply reply = client_.Post(
      kInfer, Request(large, Input("b", values, "FP32", "[600000,2]"),
                      R"(,"outputs":[{"name":"sum","parameters":)"
                      R"({"binary_data":true}}])"));
  EXPECT_EQ(reply.status, 200) << reply.body.substr(0, 300);
  EXPECT_GT(reply.body.size(), 4'800'000u);
}

TEST_F(InferTest, KindsOfModelsAreKeptApart) {
  Reply reply = client_.Post(
      "/v1/chat/completions",
      R"({"model":"sums","messages":[{"role":"user","content":"hi"}]})");
  EXPECT_EQ(reply.status, 400);
  EXPECT_EQ(Body(reply)["error"]["code"], "wrong_model_kind");
  EXPECT_EQ(Body(reply)["error"]["param"], "model");
  EXPECT_EQ(client_.Get("/v1/models/sums").status, 400);
  EXPECT_EQ(
      client_.Post("/tokenize", R"({"model":"sums","content":"x"})").status,
      400);
  reply = client_.Post("/v2/models/tiny/infer", R"({"inputs":[]})");
  EXPECT_EQ(reply.status, 400);
  EXPECT_THAT(reply.body, HasSubstr("'text_input' is missing"));
  // A request that names no model means the only language model.
  server_.handler->script = SayHello;
  EXPECT_EQ(client_
                .Post("/v1/chat/completions",
                      R"({"messages":[{"role":"user","content":"hi"}]})")
                .status,
            200);
  EXPECT_EQ(Body(client_.Get("/v1/models"))["data"].size(), 2u);
  EXPECT_EQ(Body(client_.Get("/v2/models"))["models"],
            Json::array({"tiny", "sums", "echo"}));
}

TEST_F(InferTest, TellsTheTensorsOfAGraph) {
  for (const char* path : {"/v2/models/sums", "/v2/models/sums/versions/1"}) {
    const Json metadata = Body(client_.Get(path));
    EXPECT_EQ(metadata["platform"], "millrace_onnx");
    EXPECT_EQ(metadata["inputs"][1]["name"], "b");
    EXPECT_EQ(metadata["inputs"][1]["datatype"], "FP32");
    EXPECT_EQ(metadata["inputs"][1]["shape"], Json::array({-1, 2}));
    EXPECT_EQ(metadata["outputs"][0]["name"], "sum");
  }
  EXPECT_EQ(client_.Get("/v2/models/sums/versions/2").status, 404);
  EXPECT_EQ(client_.Get("/v2/models/sums/versions/1/ready").status, 200);
  EXPECT_EQ(client_.Get("/v2/models/sums/ready").status, 200);
}

TEST_F(InferTest, ModelWithoutAPlaceRefusesBeforeTheBodyComes) {
  auto servable = ::millrace::support::GraphServable(
      "full", ::millrace::support::SumGraph(), server_.pool.get());
  scheduler::Batcher& batcher = servable->batcher();
  server_.repository.Add(std::move(servable));
  std::vector<scheduler::Reservation> all;
  while (true) {
    auto place = batcher.Reserve();
    if (!place.ok()) break;
    all.push_back(*std::move(place));
  }
  client_.Send(
      "POST /v2/models/full/infer HTTP/1.1\r\nHost: test\r\n"
      "Content-Type: application/json\r\nContent-Length: 50000000\r\n\r\n");
  const Reply reply = client_.Read();
  EXPECT_EQ(reply.status, 429) << reply.body;
  EXPECT_NE(reply.Header("retry-after"), "");
  EXPECT_THAT(reply.body, HasSubstr("full"));
  all.clear();
  Client again(server_.port());
  EXPECT_EQ(again
                .Post("/v2/models/full/infer",
                      Request(Input("a", "[1,2]"), Input("b", "[3,4]")))
                .status,
            200);
}

// Answers no deadline in time.
class Late final : public handlers::TimedHandler {
 public:
  void Start(handlers::TensorRequest, Done done, std::stop_token) override {
    done(handlers::TensorResponse());
  }
  Status HasPlaceBy(Clock::Time deadline) const override {
    if (deadline == kNever) return OkStatus();
    const auto left = deadline - Clock::Real().Now();
    return DeadlineExceeded("too late by far: " +
                            std::to_string(left / std::chrono::seconds(10)))
        .RetryAfterMs(3000);
  }
  const std::vector<models::TensorSpec>& inputs() const override {
    return none_;
  }
  const std::vector<models::TensorSpec>& outputs() const override {
    return none_;
  }

 private:
  const std::vector<models::TensorSpec> none_;
};

class LateModel final : public Servable {
 public:
  LateModel() : Servable({.id = "late"}) {}
  ModelKind kind() const override { return ModelKind::kTensors; }
  StatusOr<handlers::GenerateHandler*> ForText() const override {
    return InvalidArgument("it takes tensors");
  }
  StatusOr<handlers::TensorHandler*> ForTensors() const override {
    return &handler_;
  }
  bool Drain(std::chrono::steady_clock::time_point) override { return true; }

 private:
  mutable Late handler_;
};

TEST_F(InferTest, DeadlineTooNearIsRefusedBeforeTheBodyComes) {
  server_.repository.Add(std::make_shared<LateModel>());
  const std::string head =
      "POST /v2/models/late/infer HTTP/1.1\r\nHost: test\r\n"
      "Content-Type: application/json\r\n";
  const std::string timeout = "X-Request-Timeout-Ms: 69000\r\n";
  // A long body is not waited for; a short one is passed over, so that the
  // connection can be used again.
  client_.Send(head + timeout + "Content-Length: 50000000\r\n\r\n");
  const Reply early = client_.Read();
  EXPECT_EQ(early.status, 504) << early.body;
  EXPECT_EQ(early.Header("retry-after"), "3");
  EXPECT_EQ(early.Header("connection"), "close");
  EXPECT_THAT(early.body, HasSubstr("by far: 6"));
  Client again(server_.port());
  for (int i = 0; i < 2; ++i) {
    again.Send(head + timeout + "Content-Length: 9\r\n\r\nnot JSON!");
    EXPECT_EQ(again.Read().status, 504);
  }
  // Without a deadline, and with one that cannot be read, the route answers.
  again.Send(head + "Content-Length: 9\r\n\r\nnot JSON!");
  EXPECT_EQ(again.Read().status, 400);
  again.Send(head +
             "X-Request-Timeout-Ms: soon\r\nContent-Length: 2\r\n\r\n{}");
  const Reply unread = again.Read();
  EXPECT_EQ(unread.status, 400);
  EXPECT_THAT(unread.body, HasSubstr("X-Request-Timeout-Ms is 'soon'"));
}

TEST_F(InferTest, PassedDeadlineIsNotComputed) {
  const Reply reply =
      client_.Post(kInfer, Request(Input("a", "[1,2]"), Input("b", "[3,4]"),
                                   R"(,"parameters":{"timeout":1})"));
  // A microsecond is over by the time that the request is submitted.
  EXPECT_EQ(reply.status, 504) << reply.body;
}

TEST_F(InferTest, TellsItsBatchWhereThatIsAskedFor) {
  const std::string plain =
      client_.Post(kInfer, Request(Input("a", "[1,2]"), Input("b", "[3,4]")))
          .body;
  EXPECT_FALSE(Json::parse(plain).contains("parameters"));
  const Reply reply = client_.Post(
      kInfer, Request(Input("a", "[1,2]"), Input("b", "[3,4]"),
                      R"(,"parameters":{"batch_statistics":true})"));
  ASSERT_EQ(reply.status, 200) << reply.body;
  const Json told = Json::parse(reply.body)["parameters"];
  EXPECT_EQ(told["batch_size"], 1);
  EXPECT_EQ(told["batch_requests"], 1);
  EXPECT_EQ(told["batch_closed"], "full");
  EXPECT_GT(told["compute_infer_ns"], 0);
  EXPECT_GE(told["queue_ns"], 0);
  EXPECT_EQ(
      client_
          .Post(kInfer, Request(Input("a", "[1,2]"), Input("b", "[3,4]"),
                                R"(,"parameters":{"batch_statistics":"yes"})"))
          .status,
      400);
}

}  // namespace
}  // namespace millrace::server::http
