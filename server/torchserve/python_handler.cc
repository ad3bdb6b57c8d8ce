#include "server/torchserve/python_handler.h"

#include <algorithm>
#include <utility>

#include "config/base/utf8.h"

namespace millrace::server::torchserve {
namespace {

constexpr size_t kMaxNameBytes = 200;
constexpr int64_t kDayMs = int64_t{24} * 3600 * 1000;

bool IsPlainName(std::string_view name) {
  return !name.empty() && name.size() <= kMaxNameBytes &&
         std::none_of(name.begin(), name.end(), [](char c) {
           return c == '/' || c == '\\' || c == ':' ||
                  static_cast<unsigned char>(c) < 0x20;
         });
}

int64_t Milliseconds(int64_t seconds) {
  return seconds == 0 ? kDayMs : std::min(seconds, kDayMs / 1000) * 1000;
}

}  // namespace

StatusOr<PythonHandler> ParsePythonHandler(std::string_view handler) {
  const size_t colon = std::min(handler.find(':'), handler.size());
  PythonHandler parsed{.file = std::string(handler.substr(0, colon))};
  if (!parsed.file.ends_with(".py")) parsed.file += ".py";
  const bool has_function = colon < handler.size();
  if (has_function) parsed.function = handler.substr(colon + 1);
  if (parsed.file != ".py" && IsPlainName(parsed.file) &&
      (!has_function || IsPlainName(parsed.function))) {
    return parsed;
  }
  return InvalidArgument("the handler is '" +
                         Shortened(handler, kMaxNameBytes) +
                         "' but must be FILE.py or FILE.py:FUNCTION, a file of "
                         "the archive without a folder");
}

std::shared_ptr<const config::ExternalSettings> PythonProcess(
    const std::string& python, const std::string& handler,
    int64_t startup_timeout_s, int64_t response_timeout_s,
    const std::string& metrics_file) {
  config::ExternalSettings settings;
  settings.command = {python, "-m", "millrace_torchserve", handler};
  if (!metrics_file.empty()) settings.command.push_back(metrics_file);
  settings.memory_limit_bytes = 0;  // as with TorchServe
  settings.startup_timeout_ms = Milliseconds(startup_timeout_s);
  settings.response_timeout_ms = Milliseconds(response_timeout_s);
  return std::make_shared<const config::ExternalSettings>(std::move(settings));
}

}  // namespace millrace::server::torchserve
