// ModelInfer for a graph over loopback: raw and typed tensors, metadata, and
// every refusal that names its tensor.
#include <gmock/gmock.h>

#include <cstring>
#include <string>
#include <vector>

#include "tests/support/graph_servable.h"
#include "tests/support/test_graphs.h"
#include "tests/unit/server/grpc/fixture.h"

namespace millrace::server::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Request = inference::ModelInferRequest;

template <typename T>
std::string Raw(const std::vector<T>& values) {
  std::string bytes(values.size() * sizeof(T), '\0');
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

Request::InferInputTensor* Declare(Request& request, const std::string& name,
                                   const std::string& datatype,
                                   const std::vector<int64_t>& shape) {
  auto* input = request.add_inputs();
  input->set_name(name);
  input->set_datatype(datatype);
  for (const int64_t size : shape) input->add_shape(size);
  return input;
}

Request RawSums() {
  Request request;
  request.set_model_name("sums");
  request.set_id("r1");
  Declare(request, "b", "FP32", {1, 2});
  Declare(request, "a", "FP32", {1, 2});
  request.add_raw_input_contents(Raw<float>({3, 4}));
  request.add_raw_input_contents(Raw<float>({1, 2}));
  return request;
}

class TensorInferTest : public GrpcTest {
 protected:
  void SetUp() override {
    GrpcTest::SetUp();
    repository_.Add(
        support::GraphServable("sums", support::SumGraph(), &pool_));
    repository_.Add(
        support::GraphServable("echo", support::EchoGraph(), &pool_));
    Start();
  }
  void TearDown() override {
    EXPECT_TRUE(repository_.Drain(Soon()));
    GrpcTest::TearDown();
  }

  ::grpc::Status Infer(const Request& request) {
    ::grpc::ClientContext context;
    response_.Clear();
    return stub_->ModelInfer(&context, request, &response_);
  }
  std::string Refusal(const Request& request) {
    const auto status = Infer(request);
    EXPECT_EQ(status.error_code(), ::grpc::StatusCode::INVALID_ARGUMENT);
    return status.error_message();
  }

  inference::ModelInferResponse response_;
};

TEST_F(TensorInferTest, AnswersRawTensors) {
  ASSERT_TRUE(Infer(RawSums()).ok());
  EXPECT_EQ(response_.id(), "r1");
  EXPECT_EQ(response_.model_name(), "sums");
  EXPECT_EQ(response_.model_version(), "1");
  ASSERT_EQ(response_.outputs_size(), 2);
  EXPECT_EQ(response_.outputs(0).name(), "sum");
  EXPECT_EQ(response_.outputs(0).datatype(), "FP32");
  EXPECT_THAT(response_.outputs(0).shape(), ElementsAre(1, 2));
  EXPECT_EQ(response_.raw_output_contents(0), Raw<float>({4, 6}));
  EXPECT_EQ(response_.raw_output_contents(1), Raw<float>({8, 12}));
}

TEST_F(TensorInferTest, AnswersTheOutputsAskedFor) {
  Request request = RawSums();
  request.add_outputs()->set_name("twice");
  ASSERT_TRUE(Infer(request).ok());
  ASSERT_EQ(response_.outputs_size(), 1);
  EXPECT_EQ(response_.raw_output_contents(0), Raw<float>({8, 12}));
}

TEST_F(TensorInferTest, AnswersTypedTensorsInTheirForm) {
  Request request;
  request.set_model_name("sums");
  for (const char* name : {"a", "b"}) {
    auto* contents = Declare(request, name, "FP32", {1, 2})->mutable_contents();
    contents->add_fp32_contents(1);
    contents->add_fp32_contents(0.5);
  }
  ASSERT_TRUE(Infer(request).ok());
  EXPECT_EQ(response_.raw_output_contents_size(), 0);
  EXPECT_THAT(response_.outputs(0).contents().fp32_contents(),
              ElementsAre(2, 1));
}

TEST_F(TensorInferTest, TypedTensorsOfEveryType) {
  Request request;
  request.set_model_name("echo");
  const auto contents = [&](const std::string& type) {
    return Declare(request, "i_" + type, type, {1})->mutable_contents();
  };
  contents("BOOL")->add_bool_contents(true);
  contents("UINT8")->add_uint_contents(255);
  contents("UINT16")->add_uint_contents(65535);
  contents("UINT32")->add_uint_contents(4294967295u);
  contents("UINT64")->add_uint64_contents(18446744073709551615u);
  contents("INT8")->add_int_contents(-128);
  contents("INT16")->add_int_contents(-32768);
  contents("INT32")->add_int_contents(-5);
  contents("INT64")->add_int64_contents(-6);
  contents("FP32")->add_fp32_contents(0.5);
  contents("FP64")->add_fp64_contents(0.25);
  // Half floats travel raw only.
  contents("FP16");
  EXPECT_THAT(Refusal(request), HasSubstr("input 'i_FP16' is FP16, which only "
                                          "travels raw"));
  request.mutable_inputs(7)->mutable_contents()->clear_int_contents();
  EXPECT_THAT(Refusal(request), HasSubstr("input 'i_INT32' has 0 values"));
  request.mutable_inputs(1)->mutable_contents()->set_uint_contents(0, 256);
  EXPECT_THAT(Refusal(request),
              HasSubstr("input 'i_UINT8' is 256 at element 0"));
}

TEST_F(TensorInferTest, RawTensorsOfEveryType) {
  Request request;
  request.set_model_name("echo");
  for (int i = 0; i < models::kNumDTypes; ++i) {
    const auto dtype = static_cast<models::DType>(i);
    const std::string type(DTypeName(dtype));
    Declare(request, "i_" + type, type, {3});
    request.add_raw_input_contents(
        std::string(static_cast<size_t>(3 * DTypeBytes(dtype)), '\1'));
  }
  ASSERT_TRUE(Infer(request).ok());
  for (int i = 0; i < models::kNumDTypes; ++i) {
    EXPECT_EQ(response_.raw_output_contents(i), request.raw_input_contents(i));
    EXPECT_EQ(response_.outputs(i).datatype(), request.inputs(i).datatype());
  }
}

TEST_F(TensorInferTest, NamesTheTensorAtFault) {
  Request request = RawSums();
  request.mutable_raw_input_contents(0)->pop_back();
  EXPECT_THAT(Refusal(request),
              HasSubstr("input 'b' has 7 bytes but FP32 [1, 2] takes 8"));
  request = RawSums();
  request.mutable_inputs(0)->set_name("c");
  EXPECT_THAT(Refusal(request), HasSubstr("input 'c' is not one of model"));
  request = RawSums();
  request.mutable_inputs(0)->set_datatype("TEXT");
  EXPECT_THAT(Refusal(request), HasSubstr("input 'b' has datatype 'TEXT'"));
  request.mutable_inputs(0)->set_datatype("BYTES");
  EXPECT_THAT(Refusal(request), HasSubstr("input 'b' ends within element 0"));
  request = RawSums();
  request.mutable_inputs(0)->set_shape(0, -1);
  EXPECT_THAT(Refusal(request), HasSubstr("input 'b' has no valid shape"));
  request = RawSums();
  request.mutable_raw_input_contents()->RemoveLast();
  EXPECT_THAT(Refusal(request), HasSubstr("send one for each input"));
  request = RawSums();
  request.add_outputs()->set_name("none");
  EXPECT_THAT(Refusal(request), HasSubstr("output 'none' is not one of model"));
}

TEST_F(TensorInferTest, PassedTimeoutIsDeadlineExceeded) {
  Request request = RawSums();
  (*request.mutable_parameters())["timeout"].set_int64_param(1);
  EXPECT_EQ(Infer(request).error_code(), ::grpc::StatusCode::DEADLINE_EXCEEDED);
}

TEST_F(TensorInferTest, TellsItsBatchWhereThatIsAskedFor) {
  Request request = RawSums();
  ASSERT_TRUE(Infer(request).ok());
  EXPECT_EQ(response_.parameters_size(), 0);
  auto& parameters = *request.mutable_parameters();
  parameters["batch_statistics"].set_bool_param(true);
  parameters["priority"].set_uint64_param(1);
  ASSERT_TRUE(Infer(request).ok());
  EXPECT_EQ(response_.parameters().at("batch_closed").string_param(), "full");
  EXPECT_EQ(response_.parameters().at("batch_size").int64_param(), 1);
  EXPECT_GT(response_.parameters().at("compute_infer_ns").int64_param(), 0);
  parameters["priority"].set_int64_param(-1);
  EXPECT_THAT(Refusal(request), HasSubstr("'priority' must be from 0 to"));
  parameters["priority"].set_string_param("high");
  EXPECT_THAT(Refusal(request), HasSubstr("'priority' is not a whole number"));
}

TEST_F(TensorInferTest, MetadataTellTheGraph) {
  ::grpc::ClientContext context;
  inference::ModelMetadataRequest request;
  request.set_name("sums");
  inference::ModelMetadataResponse metadata;
  ASSERT_TRUE(stub_->ModelMetadata(&context, request, &metadata).ok());
  EXPECT_EQ(metadata.platform(), "millrace_onnx");
  ASSERT_EQ(metadata.inputs_size(), 2);
  EXPECT_EQ(metadata.inputs(0).name(), "a");
  EXPECT_EQ(metadata.inputs(0).datatype(), "FP32");
  EXPECT_THAT(metadata.inputs(0).shape(), ElementsAre(-1, 2));
  EXPECT_EQ(metadata.outputs(1).name(), "twice");
}

}  // namespace
}  // namespace millrace::server::testing
