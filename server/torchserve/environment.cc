#include "server/torchserve/environment.h"

#include <utility>

#include "config/base/utf8.h"

namespace millrace::server::torchserve {
namespace {

constexpr std::string_view kMark = "$$";

}  // namespace

Status PutNamedVariables(const GetVariable& getenv, Properties& properties) {
  for (auto& [key, value] : properties) {
    std::string text;
    size_t at = 0;
    for (;;) {
      const size_t begin = value.find(kMark, at);
      if (begin == std::string::npos) break;
      const size_t end = value.find(kMark, begin + kMark.size());
      if (end == std::string::npos) break;
      const std::string name =
          value.substr(begin + kMark.size(), end - begin - kMark.size());
      const auto variable = getenv(name);
      if (!variable.has_value()) {
        return InvalidArgument(key + " names the environment variable '" +
                               Shortened(name, 100) +
                               "', which is not set; set it or write the value")
            .At(key);
      }
      text.append(value, at, begin - at).append(*variable);
      at = end + kMark.size();
    }
    if (at > 0) value = text + value.substr(at);
  }
  return OkStatus();
}

void PutVariables(const GetVariable& getenv,
                  std::span<const std::string_view> keys,
                  Properties& properties) {
  for (const std::string_view key : keys) {
    std::string name = "TS_" + std::string(key);
    for (char& c : name) {
      if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
    }
    if (auto value = getenv(name)) {
      SetProperty(properties, std::string(key), *std::move(value));
    }
  }
}

}  // namespace millrace::server::torchserve
