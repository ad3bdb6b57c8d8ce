#include "config/environment.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <string_view>

#include "config/base/nearest.h"

namespace millrace::config {
namespace {

constexpr std::string_view kPrefix = "MILLRACE_";
// Read by the program or by its scripts, but no settings.
constexpr std::string_view kOthers[] = {
    "BINARY",     "CACHE", "CUBLASLT", "CUDA_MODULE",   "CUDNN",   "HANDLERS",
    "MPI_MODULE", "NCCL",  "NVML",     "ONEDNN_MODULE", "PID_FILE"};

// MILLRACE_PORT_8000_TCP_ADDR, MILLRACE_WEB_SERVICE_HOST and their kind
// (Kubernetes, "Accessing the Service", environment variables).
bool IsServiceLink(std::string_view name, std::string_view value) {
  if (name == "PORT") return true;
  return name.find("SERVICE_HOST") != name.npos ||
         name.find("SERVICE_PORT") != name.npos || name.starts_with("PORT_") ||
         name.find("_PORT_") != name.npos || value.find("://") != value.npos;
}

std::string Cased(std::string_view text, int (*letter)(int)) {
  std::string out(text);
  for (char& c : out) {
    c = static_cast<char>(letter(static_cast<unsigned char>(c)));
  }
  return out;
}

}  // namespace

Environment ProcessEnvironment() {
  Environment out;
  for (char** entry = ::environ; entry != nullptr && *entry != nullptr;
       ++entry) {
    const std::string_view text = *entry;
    const size_t equals = std::min(text.find('='), text.size());
    out.emplace_back(text.substr(0, equals),
                     text.substr(std::min(equals + 1, text.size())));
  }
  return out;
}

std::vector<std::string> UnknownVariables(
    const Environment& environment, const std::vector<std::string>& settings) {
  const std::vector<std::string_view> names(settings.begin(), settings.end());
  std::vector<std::string> sentences;
  for (const auto& [variable, value] : environment) {
    std::string_view name = variable;
    if (!name.starts_with(kPrefix) || value.empty()) continue;
    name.remove_prefix(kPrefix.size());
    const std::string setting = Cased(name, std::tolower);
    if (std::find(names.begin(), names.end(), setting) != names.end() ||
        std::find(std::begin(kOthers), std::end(kOthers), name) !=
            std::end(kOthers) ||
        IsServiceLink(name, value)) {
      continue;
    }
    std::string sentence = "the environment variable " + variable +
                           " has no effect: there is no such setting";
    if (const std::string_view near = Nearest(setting, names); !near.empty()) {
      sentence += "; did you mean " + std::string(kPrefix) +
                  Cased(near, std::toupper) + "?";
    }
    sentences.push_back(std::move(sentence));
  }
  std::sort(sentences.begin(), sentences.end());
  return sentences;
}

}  // namespace millrace::config
