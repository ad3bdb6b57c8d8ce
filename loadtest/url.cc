#include "loadtest/url.h"

namespace millrace::loadtest {
namespace {

Status Wrong(std::string_view text, std::string_view why) {
  return InvalidArgument("--url '" + std::string(text) + "' " +
                         std::string(why) +
                         "; write it as http://host:port, as in "
                         "http://127.0.0.1:8000");
}

}  // namespace

std::string Url::HostPort() const {
  const bool v6 = host.find(':') != std::string::npos;
  return (v6 ? "[" + host + "]" : host) + ":" + port;
}

StatusOr<Url> ParseUrl(std::string_view text, std::string_view default_port) {
  const std::string_view whole = text;
  Url url;
  url.is_tls = text.starts_with("https://") || text.starts_with("grpcs://");
  if (url.is_tls && default_port == "80") default_port = "443";
  for (const std::string_view scheme :
       {"http://", "https://", "grpc://", "grpcs://"}) {
    if (text.starts_with(scheme)) text.remove_prefix(scheme.size());
  }
  if (text.find("://") != text.npos) {
    return Wrong(whole, "has a scheme that is not http or https");
  }
  const size_t slash = text.find('/');
  if (slash != text.npos) {
    url.prefix = text.substr(slash);
    while (url.prefix.ends_with('/')) url.prefix.pop_back();
    text = text.substr(0, slash);
  }
  if (text.starts_with('[')) {
    const size_t close = text.find(']');
    if (close == text.npos) return Wrong(whole, "lacks the ]");
    url.host = text.substr(1, close - 1);
    text.remove_prefix(close + 1);
  } else {
    url.host = text.substr(0, text.find(':'));
    text.remove_prefix(url.host.size());
  }
  url.port = text.starts_with(':') ? text.substr(1) : default_port;
  if (url.host.empty()) return Wrong(whole, "names no host");
  if (url.port.empty() || url.port.size() > 5 ||
      url.port.find_first_not_of("0123456789") != std::string::npos ||
      std::stoi(url.port) > 65535 || std::stoi(url.port) == 0) {
    return Wrong(whole, "has a port that is not in 1 to 65535");
  }
  if (url.prefix.find_first_of(" \r\n") != std::string::npos ||
      url.host.find_first_of(" \r\n") != std::string::npos) {
    return Wrong(whole, "holds a space or a line break");
  }
  return url;
}

}  // namespace millrace::loadtest
