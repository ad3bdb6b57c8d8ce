#include "loadtest/fetch.h"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>

#include "loadtest/detail/connection.h"

namespace millrace::loadtest {
namespace {

constexpr auto kTimeout = std::chrono::seconds(10);

class WholeBody final : public BodyReader {
 public:
  void Begin(int64_t) override { body.clear(); }
  void Add(std::string_view bytes, Time, RequestRecord&) override {
    body += bytes;
  }
  void End(RequestRecord&) override {}

  std::string body;
};

}  // namespace

std::string HttpRequest(const Options& options, std::string_view method,
                        std::string_view path, std::string_view body,
                        std::string_view content_type,
                        std::string_view more_headers) {
  std::string out;
  out.reserve(body.size() + 512);
  out.append(method).append(" ").append(path).append(" HTTP/1.1\r\nHost: ");
  out.append(options.url.HostPort());
  out.append("\r\nUser-Agent: millrace-loadtest\r\nAccept: */*\r\n");
  for (const auto& [name, value] : options.headers) {
    out.append(name).append(": ").append(value).append("\r\n");
  }
  out.append(more_headers);
  if (!body.empty()) {
    out.append("Content-Type: ").append(content_type);
    out.append("\r\nContent-Length: ").append(std::to_string(body.size()));
    out.append("\r\n");
  }
  out.append("\r\n").append(body);
  return out;
}

StatusOr<FetchReply> Fetch(const Options& options, std::string_view method,
                           std::string_view path, std::string_view body) {
  ASSIGN_OR_RETURN(const Endpoints endpoints, Resolve(options.url));
  const std::string bytes = HttpRequest(options, method, path, body);
  boost::asio::io_context context(1);
  HttpConnection connection(context, endpoints);
  WholeBody reader;
  RequestRecord record;
  boost::asio::co_spawn(context, connection.Exchange(bytes, reader, record),
                        boost::asio::detached);
  context.run_for(kTimeout);
  if (!context.stopped()) {
    connection.Abort(Outcome::kTimeout);
    context.run();
  }
  const bool replied = record.outcome == Outcome::kOk ||
                       record.outcome == Outcome::kHttpStatus ||
                       record.outcome == Outcome::kRateLimited;
  if (!replied) {
    return Unavailable(std::string(method) + " " + std::string(path) + " of " +
                       options.url.HostPort() + " failed: " + record.error +
                       "; is the server running at --url?");
  }
  return FetchReply{record.status, record.outcome == Outcome::kOk
                                       ? std::move(reader.body)
                                       : record.error};
}

}  // namespace millrace::loadtest
