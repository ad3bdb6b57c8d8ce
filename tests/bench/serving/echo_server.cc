// The least that a server of tensors can do: reads a request of the model
// "identity" and sends its bytes back, over REST with Boost.Beast and over
// gRPC. What the same libraries cost without a scheduler, a queue or a model;
// the measure of what Millrace adds.
//
//   echo_server HTTP_PORT GRPC_PORT
#include <grpcpp/grpcpp.h>

#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>

#include "open_inference_grpc.grpc.pb.h"

namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using tcp = asio::ip::tcp;

constexpr const char* kMetadata =
    R"({"name":"identity","versions":["1"],"platform":"echo","inputs":[)"
    R"({"name":"INPUT0","datatype":"FP32","shape":[-1,16]}],"outputs":[)"
    R"({"name":"OUTPUT0","datatype":"FP32","shape":[-1,16]}]})";
constexpr size_t kTensorBytes = 64;
const std::string kAnswer =
    R"({"model_name":"identity","outputs":[{"name":"OUTPUT0","datatype":)"
    R"("FP32","shape":[1,16],"parameters":{"binary_data_size":64}}]})";

class Session : public std::enable_shared_from_this<Session> {
 public:
  explicit Session(tcp::socket socket) : stream_(std::move(socket)) {}

  void Read() {
    request_ = {};
    http::async_read(
        stream_, buffer_, request_,
        [self = shared_from_this()](beast::error_code error, size_t) {
          if (!error) self->Answer();
        });
  }

 private:
  void Answer() {
    answer_ = {};
    answer_.version(request_.version());
    answer_.keep_alive(request_.keep_alive());
    const std::string& body = request_.body();
    if (request_.method() == http::verb::post && body.size() >= kTensorBytes) {
      answer_.set("Inference-Header-Content-Length",
                  std::to_string(kAnswer.size()));
      answer_.set(http::field::content_type, "application/octet-stream");
      answer_.body() = kAnswer + body.substr(body.size() - kTensorBytes);
    } else {
      answer_.set(http::field::content_type, "application/json");
      answer_.body() = kMetadata;
    }
    answer_.prepare_payload();
    http::async_write(
        stream_, answer_,
        [self = shared_from_this()](beast::error_code error, size_t) {
          if (!error) self->Read();
        });
  }

  beast::tcp_stream stream_;
  beast::flat_buffer buffer_;
  http::request<http::string_body> request_;
  http::response<http::string_body> answer_;
};

void Accept(tcp::acceptor& acceptor) {
  acceptor.async_accept([&](beast::error_code error, tcp::socket socket) {
    if (error) return;
    beast::error_code ignored;
    socket.set_option(tcp::no_delay(true), ignored);
    std::make_shared<Session>(std::move(socket))->Read();
    Accept(acceptor);
  });
}

class Echo final : public inference::GRPCInferenceService::CallbackService {
  grpc::ServerUnaryReactor* ModelMetadata(
      grpc::CallbackServerContext* context,
      const inference::ModelMetadataRequest*,
      inference::ModelMetadataResponse* response) override {
    response->set_name("identity");
    response->add_versions("1");
    auto* input = response->add_inputs();
    input->set_name("INPUT0");
    input->set_datatype("FP32");
    input->add_shape(-1);
    input->add_shape(16);
    return Done(context);
  }

  grpc::ServerUnaryReactor* ModelInfer(
      grpc::CallbackServerContext* context,
      const inference::ModelInferRequest* request,
      inference::ModelInferResponse* response) override {
    response->set_model_name("identity");
    auto* output = response->add_outputs();
    output->set_name("OUTPUT0");
    output->set_datatype("FP32");
    output->add_shape(1);
    output->add_shape(16);
    for (const std::string& bytes : request->raw_input_contents()) {
      response->add_raw_output_contents(bytes);
    }
    return Done(context);
  }

  static grpc::ServerUnaryReactor* Done(grpc::CallbackServerContext* context) {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: echo_server HTTP_PORT GRPC_PORT\n");
    return 2;
  }
  Echo service;
  grpc::ServerBuilder builder;
  builder.AddListeningPort(std::string("127.0.0.1:") + argv[2],
                           grpc::InsecureServerCredentials());
  builder.RegisterService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr) return 1;
  asio::io_context context(1);
  tcp::acceptor acceptor(context,
                         {asio::ip::make_address("127.0.0.1"),
                          static_cast<unsigned short>(std::atoi(argv[1]))});
  Accept(acceptor);
  context.run();
  return 0;
}
