// millrace trace: asks a running server to capture what all its threads do, and
// writes it for Perfetto.
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>
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

// A file that is written whole or left as it was: one beside it takes the
// bytes, once they are there. What is no plain file, such as /dev/stdout or a
// link, is written to.
class WholeFile {
 public:
  explicit WholeFile(std::string path) : path_(std::move(path)) {}

  // Whether it can be written, as far as that can be known before. Makes
  // nothing: the program may be ended until Write.
  Status Check() {
    struct stat found = {};
    if (path_.empty()) return Failed("it has no name");
    if (stat(path_.c_str(), &found) == 0) {
      if (S_ISDIR(found.st_mode)) return Failed("it is a folder");
      if (access(path_.c_str(), W_OK) != 0) return Failed(std::strerror(errno));
    }
    is_plain_ =
        lstat(path_.c_str(), &found) != 0 || S_ISREG(found.st_mode) != 0;
    if (!is_plain_) return OkStatus();
    const auto parent = std::filesystem::path(path_).parent_path();
    const std::string folder = parent.empty() ? "." : parent.string();
    if (access(folder.c_str(), W_OK | X_OK) == 0) return OkStatus();
    return Failed(std::strerror(errno));
  }

  Status Write(const std::string& bytes) const {
    if (!is_plain_) {
      std::ofstream file(path_, std::ios::binary);
      file << bytes;
      file.close();
      return file ? OkStatus() : Failed("not all bytes were taken");
    }
    std::string part = path_ + ".XXXXXX";
    const int fd = mkstemp(part.data());
    if (fd < 0) return Failed(std::strerror(errno));
    close(fd);
    std::ofstream file(part, std::ios::binary);
    file << bytes;
    file.close();
    std::error_code error;
    if (file) {
      // Some file systems have no modes.
      static_cast<void>(chmod(part.c_str(), Mode()));
      std::filesystem::rename(part, path_, error);
      if (!error) return OkStatus();
    }
    std::remove(part.c_str());
    return Failed(error ? error.message() : "not all bytes were taken");
  }

 private:
  Status Failed(const std::string& why) const {
    return FailedPrecondition("'" + path_ + "' cannot be written: " + why);
  }

  // That of the file which is replaced, else that of a new one.
  mode_t Mode() const {
    struct stat found = {};
    if (stat(path_.c_str(), &found) == 0) return found.st_mode & 07777;
    const mode_t mask = umask(0);
    umask(mask);
    return 0666 & ~mask;
  }

  const std::string path_;
  bool is_plain_ = true;
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
  RETURN_IF_ERROR(file.Check());
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
