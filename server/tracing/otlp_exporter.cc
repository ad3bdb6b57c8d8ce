// One connection a batch: a batch a second needs no kept one.
#include "server/tracing/otlp_exporter.h"

#include <netdb.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <string_view>

#include "config/base/log.h"
#include "config/topology.h"
#include "server/version.h"

namespace millrace::server {
namespace {

constexpr size_t kMaxQueued = 2048;  // requests
constexpr std::chrono::milliseconds kInterval{1000};
constexpr int kTimeoutMs = 10'000;
constexpr int kLastTimeoutMs = 2000;  // at the end of the process
constexpr int kTries = 3;
constexpr std::string_view kTracesPath = "/v1/traces";

std::string_view Find(const config::Environment& environment,
                      std::string_view name) {
  for (const auto& [variable, value] : environment) {
    if (variable == name) return value;
  }
  return {};
}

// "a=1,b=2", as the OTEL_ variables have it.
std::vector<std::pair<std::string, std::string>> Pairs(std::string_view text) {
  std::vector<std::pair<std::string, std::string>> pairs;
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    const std::string_view pair = text.substr(0, comma);
    const size_t equals = pair.find('=');
    if (equals != std::string_view::npos && equals > 0) {
      pairs.emplace_back(pair.substr(0, equals), pair.substr(equals + 1));
    }
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return pairs;
}

Status ReadUrl(std::string_view given, OtlpOptions& options) {
  const auto refused = [&](const char* why) {
    return InvalidArgument("otlp_endpoint is '" + std::string(given) + "', " +
                           why +
                           "; name a collector's OTLP/HTTP port, such "
                           "as http://localhost:4318")
        .At("otlp_endpoint");
  };
  std::string_view url = given;
  if (url.starts_with("https://")) {
    return refused("but spans are sent without TLS only");
  }
  constexpr std::string_view kScheme = "http://";
  if (!url.starts_with(kScheme)) return refused("which is no http:// URL");
  url.remove_prefix(kScheme.size());
  const size_t slash = std::min(url.find('/'), url.size());
  std::string_view authority = url.substr(0, slash);
  options.path = url.substr(slash);
  const size_t bracket = authority.rfind(']');
  const size_t colon = authority.rfind(':');
  const bool has_port = colon != std::string_view::npos &&
                        (bracket == std::string_view::npos || colon > bracket);
  options.port = has_port ? authority.substr(colon + 1) : "4318";
  authority = authority.substr(0, has_port ? colon : authority.size());
  if (authority.starts_with('[') && authority.ends_with(']')) {
    authority = authority.substr(1, authority.size() - 2);
  }
  options.host = authority;
  const bool digits =
      !options.port.empty() &&
      options.port.find_first_not_of("0123456789") == std::string::npos;
  if (options.host.empty() || !digits) return refused("which has no host");
  return OkStatus();
}

class Socket {
 public:
  explicit Socket(int fd) : fd_(fd) {}
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  ~Socket() {
    if (fd_ >= 0) close(fd_);
  }
  int fd() const { return fd_; }

 private:
  const int fd_;
};

// The status of the collector's response; 0: there was none.
int StatusOf(int fd) {
  std::string head;
  char buffer[512];
  while (head.size() < 12) {
    const ssize_t got = recv(fd, buffer, sizeof buffer, 0);
    if (got <= 0) return 0;
    head.append(buffer, static_cast<size_t>(got));
  }
  if (!head.starts_with("HTTP/1.")) return 0;
  int status = 0;
  for (const char digit : head.substr(9, 3)) {
    if (digit < '0' || digit > '9') return 0;
    status = status * 10 + (digit - '0');
  }
  return status;
}

int Post(const OtlpOptions& options, const std::string& body, int timeout_ms) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(options.host.c_str(), options.port.c_str(), &hints, &found) !=
      0) {
    return 0;
  }
  std::string text = "POST " + options.path +
                     " HTTP/1.1\r\nHost: " + options.host + ":" + options.port +
                     "\r\nContent-Type: application/x-protobuf"
                     "\r\nConnection: close\r\nContent-Length: " +
                     std::to_string(body.size()) + "\r\n";
  for (const auto& [name, value] : options.headers) {
    text.append(name).append(": ").append(value).append("\r\n");
  }
  text.append("\r\n").append(body);
  int status = 0;
  for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
    const Socket socket(::socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC,
                                 at->ai_protocol));
    const timeval limit{timeout_ms / 1000, timeout_ms % 1000 * 1000};
    setsockopt(socket.fd(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    setsockopt(socket.fd(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    if (connect(socket.fd(), at->ai_addr, at->ai_addrlen) != 0) continue;
    std::string_view left = text;
    while (!left.empty()) {
      const ssize_t sent =
          send(socket.fd(), left.data(), left.size(), MSG_NOSIGNAL);
      if (sent <= 0) break;
      left.remove_prefix(static_cast<size_t>(sent));
    }
    if (left.empty()) status = StatusOf(socket.fd());
    break;
  }
  freeaddrinfo(found);
  return status;
}

// What the protocol's specification says to try again; 0 is no connection.
bool MayTryAgain(int status) {
  return status == 0 || status == 429 || (status >= 502 && status <= 504);
}

}  // namespace

StatusOr<OtlpOptions> ReadOtlpOptions(const std::string& endpoint,
                                      const config::Environment& environment) {
  OtlpOptions options;
  std::string url = endpoint;
  if (url.empty()) url = Find(environment, "OTEL_EXPORTER_OTLP_ENDPOINT");
  const std::string_view whole =
      Find(environment, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT");
  const bool is_whole = endpoint.empty() && !whole.empty();
  if (is_whole) url = whole;
  if (url.empty() || Find(environment, "OTEL_SDK_DISABLED") == "true") {
    return options;
  }
  RETURN_IF_ERROR(ReadUrl(url, options));
  if (!is_whole) {
    while (options.path.ends_with('/')) options.path.pop_back();
    options.path += kTracesPath;
  }
  if (options.path.empty()) options.path = "/";
  options.headers = Pairs(Find(environment, "OTEL_EXPORTER_OTLP_HEADERS"));
  for (auto& [name, value] :
       Pairs(Find(environment, "OTEL_RESOURCE_ATTRIBUTES"))) {
    if (name == "service.name") {
      options.resource.service_name = value;
    } else {
      options.resource.attributes.emplace_back(name, value);
    }
  }
  const std::string_view service = Find(environment, "OTEL_SERVICE_NAME");
  if (!service.empty()) options.resource.service_name = service;
  if (options.resource.service_name.empty()) {
    options.resource.service_name = "millrace";
  }
  return options;
}

OtlpExporter::OtlpExporter(OtlpOptions options, MetricRegistry* registry)
    : options_(std::move(options)) {
  if (registry != nullptr) {
    const auto spans = [&](const char* result) {
      return registry->AddCounter(
          "millrace_otlp_spans_total",
          "Spans by what became of them: exported, dropped because the queue "
          "was full, dropped because the collector did not take them.",
          {{"result", result}});
    };
    exported_ = spans("exported");
    dropped_full_ = spans("dropped_queue_full");
    dropped_failed_ = spans("dropped_failed");
  }
  thread_ = std::thread([this] { Run(); });
}

OtlpExporter::~OtlpExporter() {
  {
    MutexLock lock(mu_);
    stopping_ = true;
  }
  wake_.NotifyAll();
  thread_.join();
}

void OtlpExporter::Add(std::string spans, int num_spans) {
  {
    MutexLock lock(mu_);
    if (queue_.size() < kMaxQueued) {
      queue_.push_back({std::move(spans), num_spans});
      return;
    }
  }
  dropped_full_.Add(num_spans);
}

bool OtlpExporter::Pause(int ms) {
  const auto until =
      std::chrono::steady_clock::now() + std::chrono::milliseconds(ms);
  MutexLock lock(mu_);
  while (!stopping_) {
    if (!wake_.WaitUntil(mu_, until)) return !stopping_;
  }
  return false;
}

void OtlpExporter::Run() {
  // Only a name for top -H: naming a thread cannot fail.
  static_cast<void>(config::PinThisThread({}, "otlp"));
  bool running = true;
  while (running) {
    running = Pause(static_cast<int>(kInterval.count()));
    std::vector<Item> batch;
    {
      MutexLock lock(mu_);
      batch.swap(queue_);
    }
    if (!batch.empty()) Deliver(batch);
  }
}

void OtlpExporter::Deliver(const std::vector<Item>& batch) {
  std::string spans;
  int num_spans = 0;
  for (const Item& item : batch) {
    spans += item.spans;
    num_spans += item.num_spans;
  }
  const std::string body = ExportRequest(options_.resource, Version(), spans);
  int status = 0;
  for (int i = 0; i < kTries; ++i) {
    const bool running = Pause(i == 0 ? 0 : 1000 << (i - 1));
    status = Post(options_, body, running ? kTimeoutMs : kLastTimeoutMs);
    if (!MayTryAgain(status) || !running) break;
  }
  if (status >= 200 && status < 300) {
    exported_.Add(num_spans);
    return;
  }
  dropped_failed_.Add(num_spans);
  LogWarning("the collector took no spans", {{"host", options_.host},
                                             {"port", options_.port},
                                             {"status", status},
                                             {"spans_dropped", num_spans}});
}

}  // namespace millrace::server
