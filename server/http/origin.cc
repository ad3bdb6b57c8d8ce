#include "server/http/origin.h"

#include <string>
#include <string_view>

namespace millrace::server::http {

bool IsAllowedOrigin(const config::ServerSettings& settings,
                     const HttpRequest& head) {
  const std::string_view origin = head.Header("origin");
  const std::string& allowed = settings.cors_allow_origin;
  if (origin.empty() || allowed == "*" || origin == allowed) return true;
  const size_t scheme = origin.find("://");
  return scheme != origin.npos &&
         origin.substr(scheme + 3) == head.Header("host");
}

}  // namespace millrace::server::http
