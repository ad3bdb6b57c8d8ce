// millrace trace: asks a running server to capture what all its threads do, and
// writes it for Perfetto.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "config/base/utf8.h"
#include "server/cli/args.h"
#include "server/cli/chat/http_client.h"
#include "server/cli/chat/tls_flags.h"
#include "server/cli/clean_text.h"
#include "server/tracing/capture.h"

namespace millrace::server {
namespace {

constexpr FlagSpec kFlags[] = {
    {"seconds", "N", "how long to capture, 1 to 60 (default 5)"},
    {"output", "FILE", "where to write it (default trace.json)", "o"},
    {"url", "URL", "the server; default: the one on this machine"},
    {"api-key", "KEY", "the server's key (default: MILLRACE_API_KEY)"},
    kCaCertFlag,
    kCertFlag,
    kKeyFlag,
    kInsecureFlag,
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

// A file that is written whole or left as it was: a name beside it takes the
// bytes until then. What is no plain file, such as /dev/stdout, is written to.
class WholeFile {
 public:
  explicit WholeFile(std::string path) : path_(std::move(path)) {
    std::error_code ignored;
    const auto status = std::filesystem::symlink_status(path_, ignored);
    const bool plain = !std::filesystem::exists(status) ||
                       std::filesystem::is_regular_file(status);
    if (plain) part_ = path_ + ".part";
  }
  ~WholeFile() {
    if (!part_.empty()) std::remove(part_.c_str());
  }
  WholeFile(const WholeFile&) = delete;
  WholeFile& operator=(const WholeFile&) = delete;

  // Whether it can be written, as far as that can be known before.
  Status Open() {
    if (part_.empty()) return OkStatus();
    file_.open(part_, std::ios::binary);
    return file_ ? OkStatus() : Failed();
  }

  Status Write(const std::string& bytes) {
    if (part_.empty()) file_.open(path_, std::ios::binary);
    file_ << bytes;
    file_.close();
    if (!file_) return Failed();
    std::error_code error;
    if (!part_.empty()) std::filesystem::rename(part_, path_, error);
    return error ? Failed() : OkStatus();
  }

 private:
  Status Failed() const {
    return FailedPrecondition("'" + path_ + "' cannot be written");
  }

  const std::string path_;
  std::string part_;  // empty: none
  std::ofstream file_;
};

StatusOr<HttpUrl> UrlOf(const ParsedArgs& args) {
  TlsOptions tls = TlsOptionsOf(args);
  StatusOr<HttpUrl> url =
      ParseHttpUrl(args.Has("url") ? args.Text("url", "")
                                   : LocalServer("127.0.0.1", "", &tls));
  if (!url.ok()) return UsageError(url.status().message());
  url->tls = std::move(tls);
  return url;
}

// The lines that say where the time went.
void PrintBreakdown(const nlohmann::json& trace) {
  const auto other = trace.find("otherData");
  if (other == trace.end() || !other->is_object()) return;
  const auto lines = other->find("breakdown");
  if (lines == other->end() || !lines->is_array()) return;
  for (const auto& line : *lines) {
    if (!line.is_string()) continue;
    std::printf("%s\n", Printable(line.get<std::string>()).c_str());
  }
}

Status Capture(const ParsedArgs& args) {
  ASSIGN_OR_RETURN(
      const int64_t seconds,
      args.Int("seconds", kDefaultCaptureSeconds, 1, kMostCaptureSeconds));
  ASSIGN_OR_RETURN(const HttpUrl url, UrlOf(args));
  const std::string path = args.Text("output", "trace.json");
  WholeFile file(path);
  RETURN_IF_ERROR(file.Open());
  const char* key = std::getenv("MILLRACE_API_KEY");
  std::string body;
  HttpHooks hooks;
  hooks.on_body = [&body](int, std::string_view bytes) { body += bytes; };
  const HttpCall call = {
      .method = "POST",
      .target = "/debug/trace?seconds=" + std::to_string(seconds),
      .api_key = args.Text("api-key", key == nullptr ? "" : key),
      .silence_limit = std::chrono::seconds(seconds + 60)};
  ASSIGN_OR_RETURN(const int status, Exchange(url, call, hooks));
  if (status != 200) {
    return Unavailable(url.authority + " answered " + std::to_string(status) +
                       " " + Shortened(body, 300));
  }
  const auto trace = nlohmann::json::parse(body, nullptr, false);
  if (!trace.is_object() || !trace.contains("traceEvents")) {
    return Unavailable(url.authority +
                       " sent no trace; is it a server of Millrace?");
  }
  RETURN_IF_ERROR(file.Write(body));
  PrintBreakdown(trace);
  std::printf("%s: open it at ui.perfetto.dev\n", path.c_str());
  return OkStatus();
}

}  // namespace

const VerbSpec& TraceVerb() { return kVerb; }
int RunTrace(Args args) { return RunVerb(kVerb, args, Capture); }

}  // namespace millrace::server
