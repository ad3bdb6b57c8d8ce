// The protocols that the program speaks.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace millrace::loadtest {

enum class EndpointType {
  kChat,         // POST /v1/chat/completions
  kCompletions,  // POST /v1/completions
  kEmbeddings,   // POST /v1/embeddings
  kKserve,       // POST /v2/models/{model}/infer
  kKserveGrpc,   // inference.GRPCInferenceService/ModelInfer
  kTorchserve,   // POST /predictions/{model}
};

std::string_view EndpointName(EndpointType type);  // "chat", "kserve-grpc", ...
std::optional<EndpointType> EndpointOf(std::string_view name);
// Text prompts in, rather than tensors or bytes.
bool TakesText(EndpointType type);
// Text out, token by token.
bool Generates(EndpointType type);
// The path of a request, without the URL's prefix. A prefix that ends with
// the path's own first part ("/v1") is not doubled.
std::string EndpointPath(EndpointType type, std::string_view model,
                         std::string_view prefix);

}  // namespace millrace::loadtest
