#include "loadtest/endpoint.h"

#include <array>
#include <utility>

namespace millrace::loadtest {
namespace {

constexpr std::array<std::pair<EndpointType, std::string_view>, 6> kNames = {{
    {EndpointType::kChat, "chat"},
    {EndpointType::kCompletions, "completions"},
    {EndpointType::kEmbeddings, "embeddings"},
    {EndpointType::kKserve, "kserve"},
    {EndpointType::kKserveGrpc, "kserve-grpc"},
    {EndpointType::kTorchserve, "torchserve"},
}};

// As RFC 3986 writes a path segment: names of models may hold anything.
std::string Escape(std::string_view text) {
  static constexpr char kHex[] = "0123456789ABCDEF";
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                       (c >= '0' && c <= '9') || c == '-' || c == '.' ||
                       c == '_' || c == '~';
    if (plain) {
      out += c;
    } else {
      out += {'%', kHex[byte >> 4], kHex[byte & 15]};
    }
  }
  return out;
}

}  // namespace

std::string_view EndpointName(EndpointType type) {
  for (const auto& [value, name] : kNames) {
    if (value == type) return name;
  }
  return "";
}

std::optional<EndpointType> EndpointOf(std::string_view name) {
  for (const auto& [value, known] : kNames) {
    if (known == name) return value;
  }
  return std::nullopt;
}

bool TakesText(EndpointType type) {
  return Generates(type) || type == EndpointType::kEmbeddings;
}

bool Generates(EndpointType type) {
  return type == EndpointType::kChat || type == EndpointType::kCompletions;
}

std::string EndpointPath(EndpointType type, std::string_view model,
                         std::string_view prefix) {
  std::string path(prefix);
  if (TakesText(type) && !path.ends_with("/v1")) path += "/v1";
  switch (type) {
    case EndpointType::kChat:
      return path + "/chat/completions";
    case EndpointType::kCompletions:
      return path + "/completions";
    case EndpointType::kEmbeddings:
      return path + "/embeddings";
    case EndpointType::kKserve:
      return path + "/v2/models/" + Escape(model) + "/infer";
    case EndpointType::kKserveGrpc:
      return "/inference.GRPCInferenceService/ModelInfer";
    case EndpointType::kTorchserve:
      return path + "/predictions/" + Escape(model);
  }
  return path;
}

}  // namespace millrace::loadtest
