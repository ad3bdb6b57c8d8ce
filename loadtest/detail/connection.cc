// The time of a chunk is read right after the bytes came, before anything is
// parsed. Bytes that came together share one time.
#include "loadtest/detail/connection.h"

#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <charconv>
#include <memory>
#include <optional>

namespace millrace::loadtest {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using boost::system::error_code;

constexpr size_t kReadBytes = 64 * 1024;
constexpr size_t kMaxErrorBody = 4096;
constexpr size_t kMaxExample = 200;

using Parser = http::response_parser<http::string_body>;

// A reply while it arrives.
struct Reply {
  Parser parser;
  bool begun = false;  // the header is there
  std::string error_body;
};

int64_t IntHeader(const Parser& parser, std::string_view name) {
  const auto text = parser.get()[{name.data(), name.size()}];
  int64_t value = -1;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

void OnHeader(Reply& reply, BodyReader& reader, RequestRecord& record) {
  reply.begun = true;
  record.status = reply.parser.get().result_int();
  if (record.status / 100 == 2) {
    reader.Begin(IntHeader(reply.parser, "Inference-Header-Content-Length"));
    return;
  }
  const bool limited = record.status == 429;
  record.outcome = limited ? Outcome::kRateLimited : Outcome::kHttpStatus;
  if (limited) {
    record.retry_after_s =
        static_cast<double>(IntHeader(reply.parser, "Retry-After"));
  }
}

// Hands over the part of the body that has been parsed.
void OnBody(Reply& reply, BodyReader& reader, Time now, RequestRecord& record) {
  std::string& body = reply.parser.get().body();
  if (body.empty()) return;
  if (record.status / 100 == 2) {
    reader.Add(body, now, record);
  } else if (reply.error_body.size() < kMaxErrorBody) {
    reply.error_body += body;
  }
  body.clear();
}

void OnEnd(Reply& reply, BodyReader& reader, RequestRecord& record) {
  if (record.status / 100 == 2) {
    if (record.outcome == Outcome::kOk) reader.End(record);
    return;
  }
  record.error = "status " + std::to_string(record.status) + ": " +
                 reply.error_body.substr(0, kMaxExample);
}

}  // namespace

StatusOr<Endpoints> Resolve(const Url& url) {
  asio::io_context context;
  asio::ip::tcp::resolver resolver(context);
  error_code ec;
  const auto found = resolver.resolve(url.host, url.port, ec);
  if (ec) {
    return Unavailable("the host of --url, '" + url.host +
                       "', cannot be found: " + ec.message());
  }
  Endpoints endpoints;
  for (const auto& each : found) endpoints.addresses.push_back(each.endpoint());
  if (!url.is_tls) return endpoints;
  endpoints.host = url.host;
  endpoints.check_name = !url.insecure;
  endpoints.tls =
      std::make_shared<asio::ssl::context>(asio::ssl::context::tls_client);
  endpoints.tls->set_verify_mode(
      url.insecure ? asio::ssl::verify_none : asio::ssl::verify_peer, ec);
  if (url.ca_file.empty()) {
    endpoints.tls->set_default_verify_paths(ec);
  } else {
    endpoints.tls->load_verify_file(url.ca_file, ec);
  }
  if (ec) {
    return InvalidArgument("--cacert '" + url.ca_file + "' cannot be used: " +
                           ec.message() + "; it must hold certificates in PEM");
  }
  return endpoints;
}

HttpConnection::HttpConnection(asio::io_context& context,
                               const Endpoints& endpoints)
    : endpoints_(endpoints), transport_(context, endpoints) {}

void HttpConnection::Abort(Outcome why) {
  aborted_ = why;
  Close();
}

void HttpConnection::Close() {
  transport_.Close();
  reused_ = false;
  buffer_.clear();
}

asio::awaitable<void> HttpConnection::Exchange(std::string_view bytes,
                                               BodyReader& reader,
                                               RequestRecord& record) {
  aborted_ = Outcome::kOk;
  const RequestRecord blank = record;
  Step step = co_await Attempt(bytes, reader, record);
  if (step == Step::kStale && aborted_ == Outcome::kOk) {
    const Time sent = record.sent;  // the lag is that of the first attempt
    record = blank;
    record.sent = sent;
    Close();
    step = co_await Attempt(bytes, reader, record);
  }
  record.end = Clock::now();
  if (aborted_ != Outcome::kOk) {
    record.outcome = aborted_;
    record.error = aborted_ == Outcome::kTimeout
                       ? "no complete reply within --request-timeout"
                       : "still under way when the run ended";
  }
  if (record.outcome != Outcome::kOk && record.status / 100 == 2) Close();
}

asio::awaitable<bool> HttpConnection::Connect(RequestRecord& record) {
  error_code last = asio::error::host_not_found;
  for (const auto& address : endpoints_.addresses) {
    const error_code ec = co_await transport_.Connect(address);
    if (!ec && aborted_ == Outcome::kOk) co_return true;
    last = ec;
    if (aborted_ != Outcome::kOk) break;
  }
  record.outcome = Outcome::kConnect;
  record.error = last.message();
  Close();
  co_return false;
}

asio::awaitable<HttpConnection::Step> HttpConnection::Attempt(
    std::string_view bytes, BodyReader& reader, RequestRecord& record) {
  if (record.sent == Time()) record.sent = Clock::now();
  if (!transport_.is_open()) {
    const bool connected = co_await Connect(record);
    if (!connected) co_return Step::kDone;
  }
  // A server may answer (413, say) before it has read everything: the reply
  // is read even when writing failed.
  co_await transport_.WriteAll(bytes);
  const Step step = co_await ReadReply(reader, record);
  co_return step;
}

HttpConnection::Step HttpConnection::Lost(bool any_byte, const error_code& ec,
                                          RequestRecord& record) {
  const bool stale = reused_ && !any_byte;
  Close();
  if (stale) return Step::kStale;
  record.outcome = Outcome::kConnectionLost;
  record.error = ec == asio::error::eof
                     ? "the server closed the connection without a reply"
                     : ec.message();
  return Step::kDone;
}

asio::awaitable<HttpConnection::Step> HttpConnection::ReadReply(
    BodyReader& reader, RequestRecord& record) {
  std::optional<Reply> reply(std::in_place);
  reply->parser.eager(true);
  reply->parser.body_limit(boost::none);
  bool any_byte = false;
  while (!reply->parser.is_done()) {
    error_code ec;
    const size_t size =
        co_await transport_.ReadSome(buffer_.prepare(kReadBytes), ec);
    const Time now = Clock::now();
    error_code parse;
    if (ec) {
      if (!reply->begun) co_return Lost(any_byte, ec, record);
      // A body without length ends with the connection.
      if (ec == asio::error::eof && reply->parser.need_eof()) {
        reply->parser.put_eof(parse);
        if (!parse) break;
      }
      if (record.status / 100 == 2) reader.Cut(record);
      OnEnd(*reply, reader, record);
      Close();
      co_return Step::kDone;
    }
    any_byte = true;
    buffer_.commit(size);
    while (buffer_.size() > 0 && !reply->parser.is_done()) {
      const size_t used = reply->parser.put(buffer_.data(), parse);
      buffer_.consume(used);
      if (parse == http::error::need_more) parse = {};
      if (parse || used == 0) break;
    }
    if (!reply->begun && reply->parser.is_header_done()) {
      OnHeader(*reply, reader, record);
    }
    if (reply->begun) OnBody(*reply, reader, now, record);
    if (parse) {
      record.outcome = Outcome::kProtocol;
      record.error = "the reply is no valid HTTP: " + parse.message();
      Close();
      co_return Step::kDone;
    }
    if (reply->begun && record.status / 100 == 1) {
      reply.emplace();  // 100 Continue and the like: the reply comes next
      reply->parser.eager(true);
      reply->parser.body_limit(boost::none);
      record.outcome = Outcome::kOk;
    }
  }
  OnEnd(*reply, reader, record);
  reused_ = true;
  if (!reply->parser.keep_alive() || buffer_.size() > 0) Close();
  co_return Step::kDone;
}

}  // namespace millrace::loadtest
