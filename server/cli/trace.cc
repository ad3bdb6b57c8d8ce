// millrace trace: asks a running server to capture what all its threads do, and
// writes it for Perfetto.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "config/base/utf8.h"
#include "server/cli/args.h"
#include "server/cli/chat/http_client.h"
#include "server/tracing/capture.h"

namespace millrace::server {
namespace {

constexpr FlagSpec kFlags[] = {
    {"seconds", "N", "how long to capture, 1 to 60 (default 5)"},
    {"output", "FILE", "where to write it (default trace.json)", "o"},
    {"url", "URL", "the server; default: the one on this machine"},
    {"api-key", "KEY", "the server's key (default: MILLRACE_API_KEY)"},
};
constexpr VerbSpec kVerb = {
    "trace",
    "",
    "Captures requests, steps, phases and operators of all threads of a "
    "running\nserver, writes them as a trace for ui.perfetto.dev and says "
    "where the time went.",
    kFlags,
    0,
    0};

std::string EnvironmentOr(const char* name, const std::string& otherwise) {
  const char* set = std::getenv(name);
  return set == nullptr ? otherwise : set;
}

Status Capture(const ParsedArgs& args) {
  ASSIGN_OR_RETURN(
      const int64_t seconds,
      args.Int("seconds", kDefaultCaptureSeconds, 1, kMostCaptureSeconds));
  const std::string port = EnvironmentOr("MILLRACE_HTTP_PORT", "8000");
  const StatusOr<HttpUrl> url =
      ParseHttpUrl(args.Text("url", "http://127.0.0.1:" + port));
  if (!url.ok()) return UsageError(url.status().message());
  const std::string path = args.Text("output", "trace.json");
  std::ofstream file(path, std::ios::binary);
  if (!file) return FailedPrecondition("'" + path + "' cannot be written");
  std::string body;
  HttpHooks hooks;
  hooks.on_body = [&body](int, std::string_view bytes) { body += bytes; };
  const HttpCall call = {
      .method = "POST",
      .target = "/debug/trace?seconds=" + std::to_string(seconds),
      .api_key = args.Text("api-key", EnvironmentOr("MILLRACE_API_KEY", "")),
      .silence_limit = std::chrono::seconds(seconds + 60)};
  ASSIGN_OR_RETURN(const int status, Exchange(*url, call, hooks));
  if (status != 200) {
    return Unavailable(url->authority + " answered " + std::to_string(status) +
                       " " + Shortened(body, 300));
  }
  file << body;
  file.close();
  if (!file) return FailedPrecondition("'" + path + "' cannot be written");
  const auto trace = nlohmann::json::parse(body, nullptr, false);
  if (trace.is_object() && trace.contains("otherData")) {
    for (const auto& line : trace["otherData"]["breakdown"]) {
      std::printf("%s\n", line.get<std::string>().c_str());
    }
  }
  std::printf("%s: open it at ui.perfetto.dev\n", path.c_str());
  return OkStatus();
}

}  // namespace

const VerbSpec& TraceVerb() { return kVerb; }
int RunTrace(Args args) { return RunVerb(kVerb, args, Capture); }

}  // namespace millrace::server
