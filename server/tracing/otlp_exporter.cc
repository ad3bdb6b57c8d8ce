// One connection a batch: a batch a second needs no kept one. Its socket never
// blocks, so that one limit holds for all of an exchange, and an end of the
// exporter makes it shorter.
#include "server/tracing/otlp_exporter.h"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <functional>
#include <string_view>

#include "config/base/log.h"
#include "config/base/utf8.h"
#include "config/topology.h"
#include "server/version.h"

namespace millrace::server {
namespace {

constexpr size_t kMaxQueued = 2048;  // requests
constexpr std::chrono::milliseconds kInterval{1000};
using SteadyClock = std::chrono::steady_clock;
constexpr std::chrono::seconds kTimeout{10};
constexpr std::chrono::seconds kLastTimeout{2};  // at the end of the process
// How often a wait looks whether the exporter ends.
constexpr std::chrono::milliseconds kLookAgain{100};
constexpr int kTries = 3;
constexpr std::string_view kTracesPath = "/v1/traces";

std::string_view Find(const config::Environment& environment,
                      std::string_view name) {
  for (const auto& [variable, value] : environment) {
    if (variable == name) return value;
  }
  return {};
}

int HexDigit(char c) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  const char lower = c >= 'A' && c <= 'F' ? static_cast<char>(c + 32) : c;
  const size_t at = kDigits.find(lower);
  return at == std::string_view::npos ? -1 : static_cast<int>(at);
}

// Without the blanks around it; %XX is a byte. What is no escape stays.
std::string Decoded(std::string_view text) {
  constexpr std::string_view kBlanks = " \t";
  const size_t first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return {};
  text = text.substr(first, text.find_last_not_of(kBlanks) + 1 - first);
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool may_be = text[i] == '%' && i + 2 < text.size();
    const int high = may_be ? HexDigit(text[i + 1]) : -1;
    const int low = may_be ? HexDigit(text[i + 2]) : -1;
    if (high < 0 || low < 0) {
      decoded.push_back(text[i]);
    } else {
      decoded.push_back(static_cast<char>(high * 16 + low));
      i += 2;
    }
  }
  return decoded;
}

bool IsText(std::string_view text) {
  return IsValidUtf8(text) &&
         std::none_of(text.begin(), text.end(),
                      [](char c) { return (c >= 0 && c < 32) || c == 127; });
}

// A token of RFC 9110.
bool IsHeaderName(std::string_view name) {
  return name.find_first_not_of(
             "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyz"
             "ABCDEFGHIJKLMNOPQRSTUVWXYZ") == std::string_view::npos;
}

// "a=1,b=2", as the variable of that name has it.
// Sources: W3C Baggage, section 3.3, and opentelemetry.io, "Resource SDK".
std::vector<std::pair<std::string, std::string>> Pairs(
    const config::Environment& environment, const char* variable,
    bool are_headers) {
  std::vector<std::pair<std::string, std::string>> pairs;
  std::string_view text = Find(environment, variable);
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    const std::string_view pair = text.substr(0, comma);
    text.remove_prefix(std::min(comma + 1, text.size()));
    const size_t equals = pair.find('=');
    if (equals == std::string_view::npos) continue;
    std::string name = Decoded(pair.substr(0, equals));
    std::string value = Decoded(pair.substr(equals + 1));
    if (name.empty()) continue;
    if (!IsText(name) || !IsText(value) ||
        (are_headers && !IsHeaderName(name))) {
      // Values of headers may be secrets.
      LogWarning("a pair of an environment variable is left out",
                 {{"variable", variable},
                  {"because", are_headers ? "it is no header of HTTP"
                                          : "it is no text in UTF-8"}});
      continue;
    }
    pairs.emplace_back(std::move(name), std::move(value));
  }
  return pairs;
}

bool IsTrue(std::string_view text) {
  constexpr std::string_view kTrue = "true";
  return std::equal(text.begin(), text.end(), kTrue.begin(), kTrue.end(),
                    [](char a, char b) { return (a | 32) == b; });
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

// Until when an exchange may go on; may become earlier.
using Limit = std::function<SteadyClock::time_point()>;

// False: the limit is there.
bool Await(int fd, short events, const Limit& limit) {
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(std::min(
        limit() - SteadyClock::now(), SteadyClock::duration(kLookAgain)));
    if (left.count() <= 0) return false;
    pollfd entry = {.fd = fd, .events = events, .revents = 0};
    if (poll(&entry, 1, static_cast<int>(left.count())) > 0) return true;
  }
}

bool Connect(int fd, const addrinfo& address, const Limit& limit) {
  if (connect(fd, address.ai_addr, address.ai_addrlen) == 0) return true;
  if (errno != EINPROGRESS || !Await(fd, POLLOUT, limit)) return false;
  int error = 0;
  socklen_t size = sizeof error;
  return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error == 0;
}

bool Send(int fd, std::string_view text, const Limit& limit) {
  while (!text.empty()) {
    if (!Await(fd, POLLOUT, limit)) return false;
    const ssize_t sent = send(fd, text.data(), text.size(), MSG_NOSIGNAL);
    if (sent < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (sent <= 0) return false;
    text.remove_prefix(static_cast<size_t>(sent));
  }
  return true;
}

// The status of the collector's response; 0: there was none.
int StatusOf(int fd, const Limit& limit) {
  std::string head;
  char buffer[512];
  while (head.size() < 12) {
    if (!Await(fd, POLLIN, limit)) return 0;
    const ssize_t got = recv(fd, buffer, sizeof buffer, 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
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

// The status of the response; 0: there was none before the limit.
int Post(const OtlpOptions& options, const std::string& body,
         const Limit& limit) {
  if (limit() <= SteadyClock::now()) return 0;
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
    const Socket socket(::socket(at->ai_family,
                                 at->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK,
                                 at->ai_protocol));
    // An address that does not answer leaves half of the time to the next.
    const auto half = SteadyClock::now() + (limit() - SteadyClock::now()) / 2;
    const bool is_last = at->ai_next == nullptr;
    if (!Connect(socket.fd(), *at,
                 [&] { return is_last ? limit() : std::min(half, limit()); })) {
      continue;
    }
    if (Send(socket.fd(), text, limit)) status = StatusOf(socket.fd(), limit);
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
  if (url.empty() || IsTrue(Find(environment, "OTEL_SDK_DISABLED"))) {
    return options;
  }
  RETURN_IF_ERROR(ReadUrl(url, options));
  if (!is_whole) {
    while (options.path.ends_with('/')) options.path.pop_back();
    options.path += kTracesPath;
  }
  if (options.path.empty()) options.path = "/";
  constexpr const char* kOfTraces = "OTEL_EXPORTER_OTLP_TRACES_HEADERS";
  options.headers =
      Pairs(environment,
            Find(environment, kOfTraces).empty() ? "OTEL_EXPORTER_OTLP_HEADERS"
                                                 : kOfTraces,
            true);
  for (auto& [name, value] :
       Pairs(environment, "OTEL_RESOURCE_ATTRIBUTES", false)) {
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
    stop_by_ = SteadyClock::now() + kLastTimeout;
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

SteadyClock::time_point OtlpExporter::LimitOf(SteadyClock::time_point began) {
  MutexLock lock(mu_);
  return std::min(began + kTimeout, stop_by_);
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
    status = Post(options_, body, [this, began = SteadyClock::now()] {
      return LimitOf(began);
    });
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
