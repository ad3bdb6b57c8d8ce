// millrace health: asks a running server whether requests may be sent to it.
// Containers and supervisors run it as their health check, because an image
// without a shell has no curl either.
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <string>
#include <utility>

#include "server/cli/args.h"
#include "server/cli/chat/http_client.h"
#include "server/cli/chat/tls_flags.h"
#include "server/cli/clean_text.h"

namespace millrace::server {
namespace {

constexpr FlagSpec kFlags[] = {
    {"url", "URL", "the server; default: what --host and --port say"},
    {"host", "NAME", "host of the server (default 127.0.0.1)"},
    {"port", "N",
     "its HTTP port (default: MILLRACE_HTTP_PORT if set, else 8000)"},
    {"timeout-ms", "N", "how long the server may take (default 3000)"},
    kCaCertFlag,
    kCertFlag,
    kKeyFlag,
    kInsecureFlag,
};
constexpr VerbSpec kVerb = {
    "health",
    "",
    "Exits with 0 when the server is ready for requests. Otherwise exits with "
    "1 "
    "and\nsays why on stderr: no server listens, models are loading, it "
    "drains.",
    kFlags,
    0,
    0};

StatusOr<std::string> UrlText(const ParsedArgs& args, TlsOptions* tls) {
  if (args.Has("url")) {
    if (args.Has("host") || args.Has("port")) {
      return UsageError("--url names host and port; leave out --host, --port");
    }
    return args.Text("url", "");
  }
  std::string host = args.Text("host", "127.0.0.1");
  if (host.find(':') != host.npos && !host.starts_with('[')) {
    host = "[" + host + "]";
  }
  return LocalServer(host, args.Text("port", ""), tls);
}

Status Health(const ParsedArgs& args) {
  TlsOptions tls = TlsOptionsOf(args);
  ASSIGN_OR_RETURN(const std::string text, UrlText(args, &tls));
  StatusOr<HttpUrl> parsed = ParseHttpUrl(text);
  if (!parsed.ok()) return UsageError(parsed.status().message());
  HttpUrl& url = *parsed;
  url.tls = std::move(tls);
  ASSIGN_OR_RETURN(const int64_t timeout_ms,
                   args.Int("timeout-ms", 3000, 1, 600'000));
  const auto deadline =
      std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
  std::string body;
  HttpHooks hooks;
  hooks.on_body = [&body](int, std::string_view bytes) {
    if (body.size() <= 200) body += bytes.substr(0, 201);
  };
  hooks.cancelled = [deadline] {
    return std::chrono::steady_clock::now() >= deadline;
  };
  const StatusOr<int> answer = Exchange(url, {.target = "/health"}, hooks);
  if (answer.status().code() == StatusCode::kCancelled) {
    return DeadlineExceeded(url.authority + " did not answer within " +
                            std::to_string(timeout_ms) +
                            " ms; raise --timeout-ms or restart the server");
  }
  RETURN_IF_ERROR(answer.status());
  if (*answer == 200) {
    // A person reads it; a script looks at the exit code.
    if (::isatty(STDOUT_FILENO) != 0) {
      std::printf("%s is ready\n", url.authority.c_str());
    }
    return OkStatus();
  }
  return Unavailable(url.authority + " is not ready: /health answered " +
                     std::to_string(*answer) + " " + Clean(body, 200));
}

}  // namespace

const VerbSpec& HealthVerb() { return kVerb; }
int RunHealth(Args args) { return RunVerb(kVerb, args, Health); }

}  // namespace millrace::server
