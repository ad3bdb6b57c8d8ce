// Beast as a parser, and the rules of RFC 9112 that it leaves to us. A body's
// memory is not reserved from its Content-Length: it grows as bytes arrive, so
// that a client cannot claim memory with a header.
#include "server/http/request_parser.h"

#include <algorithm>
#include <boost/beast/http/message.hpp>
#include <boost/beast/http/parser.hpp>
#include <cctype>
#include <string>
#include <utility>

namespace millrace::server::http {
namespace {

namespace beast_http = boost::beast::http;
using boost::system::error_code;

// A body that is a string and grows with what was received.
struct GrowingBody {
  using value_type = std::string;
  static uint64_t size(const value_type& body) { return body.size(); }
  class reader {
   public:
    template <bool kIsRequest, class Fields>
    reader(beast_http::header<kIsRequest, Fields>&, value_type& body)
        : body_(body) {}
    void init(const boost::optional<uint64_t>&, error_code& ec) { ec = {}; }
    template <class Buffers>
    size_t put(const Buffers& buffers, error_code& ec) {
      ec = {};
      size_t taken = 0;
      for (auto it = boost::asio::buffer_sequence_begin(buffers);
           it != boost::asio::buffer_sequence_end(buffers); ++it) {
        const boost::asio::const_buffer part(*it);
        body_.append(static_cast<const char*>(part.data()), part.size());
        taken += part.size();
      }
      return taken;
    }
    void finish(error_code& ec) { ec = {}; }

   private:
    value_type& body_;
  };
};

std::string LowerCase(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) {
    c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return lower;
}

std::string_view View(boost::core::string_view text) {
  return {text.data(), text.size()};
}

Status StatusOf(const error_code& ec, const RequestParser::Limits& limits) {
  if (ec == beast_http::error::header_limit) {
    return InvalidArgument("the request's header is longer than " +
                           std::to_string(limits.header_bytes) +
                           " bytes; send fewer or shorter headers, or raise "
                           "http_max_header_size")
        .Because("headers_too_large");
  }
  if (ec == beast_http::error::body_limit ||
      ec == beast_http::error::buffer_overflow) {
    return InvalidArgument("the request's body is longer than " +
                           std::to_string(limits.body_bytes) +
                           " bytes; send less, or raise http_max_input_size")
        .Because("payload_too_large");
  }
  return InvalidArgument("the request is not well-formed HTTP/1.1 (" +
                         ec.message() + ")")
      .Because("malformed_http");
}

// Clients of other protocols that come to this port, by their first bytes: of
// HTTP/2 (RFC 9113, section 3.4) and of TLS (RFC 8446, section 5.1).
std::string_view OtherProtocol(std::string_view input) {
  if (input.starts_with("PRI * HTTP/2.0")) {
    return "the client speaks HTTP/2, as gRPC does; this port speaks HTTP/1.1, "
           "and gRPC has a port of its own (grpc_port)";
  }
  if (input.starts_with("\x16\x03")) {
    return "the client speaks TLS, which is not offered; use http://, or a "
           "proxy that ends TLS";
  }
  return {};
}

Status Malformed(std::string_view why) {
  return InvalidArgument(why).Because("malformed_http");
}

}  // namespace

struct RequestParser::Impl {
  explicit Impl(const Limits& given) : limits(given) {
    parser.eager(false);
    parser.header_limit(static_cast<uint32_t>(
        std::clamp<int64_t>(limits.header_bytes, 64, 1 << 30)));
    parser.body_limit(static_cast<uint64_t>(limits.body_bytes));
  }

  Status ReadHead();

  const Limits limits;
  beast_http::request_parser<GrowingBody> parser;
  HttpRequest head;
  bool head_read = false;
};

Status RequestParser::Impl::ReadHead() {
  const auto& message = parser.get();
  head.method = std::string(View(message.method_string()));
  head.target = std::string(View(message.target()));
  head.http10 = message.version() < 11;
  head.keep_alive = message.keep_alive();
  int hosts = 0;
  for (const auto& field : message) {
    std::string name = LowerCase(View(field.name_string()));
    if (name == "host") ++hosts;
    head.headers.emplace_back(std::move(name), View(field.value()));
  }
  if (hosts > 1 || (hosts == 0 && !head.http10)) {
    return Malformed("an HTTP/1.1 request has exactly one Host header");
  }
  if (head.HasHeader("transfer-encoding")) {
    // Length by any other coding than chunked cannot be known (RFC 9112,
    // section 6.3), and HTTP/1.0 has none at all.
    if (head.http10 || !parser.chunked() ||
        LowerCase(head.Header("transfer-encoding")) != "chunked") {
      return Malformed(
          "the only Transfer-Encoding taken is 'chunked', in HTTP/1.1");
    }
  }
  std::string_view target = head.target;
  // The absolute form, as clients send it to proxies.
  for (std::string_view scheme : {"http://", "https://"}) {
    if (target.substr(0, scheme.size()) != scheme) continue;
    target.remove_prefix(scheme.size());
    target.remove_prefix(std::min(target.find('/'), target.size()));
  }
  const size_t question = std::min(target.find('?'), target.size());
  head.query =
      std::string(target.substr(std::min(question + 1, target.size())));
  std::optional<std::string> path = PercentDecoded(target.substr(0, question));
  if (!path.has_value()) {
    return Malformed(
        "the request's path has a '%' that two hexadecimal "
        "digits do not follow");
  }
  head.path = path->empty() ? "/" : *std::move(path);
  return OkStatus();
}

RequestParser::RequestParser(const Limits& limits)
    : impl_(std::make_unique<Impl>(limits)) {}
RequestParser::~RequestParser() = default;

StatusOr<size_t> RequestParser::Put(std::string_view input) {
  if (done() || input.empty()) return size_t{0};
  // What ends a chunked body is five bytes long, and Beast 1.81 asserts that it
  // sees them when it is called a second time (boostorg/beast pull request
  // 2861): fewer wait for the next ones.
  constexpr size_t kLastChunkBytes = 5;  // "0\r\n\r\n"
  if (head_done() && impl_->parser.chunked() && input.size() < kLastChunkBytes)
    return size_t{0};
  error_code ec;
  const size_t taken = impl_->parser.put(
      boost::asio::const_buffer(input.data(), input.size()), ec);
  if (ec == beast_http::error::need_more) ec = {};
  if (ec && !head_done() && !OtherProtocol(input).empty()) {
    return Malformed(OtherProtocol(input));
  }
  if (ec) return StatusOf(ec, impl_->limits);
  if (head_done() && !impl_->head_read) {
    impl_->head_read = true;
    RETURN_IF_ERROR(impl_->ReadHead());
  }
  return taken;
}

bool RequestParser::head_done() const { return impl_->parser.is_header_done(); }
bool RequestParser::done() const { return impl_->parser.is_done(); }
const HttpRequest& RequestParser::head() const { return impl_->head; }

bool RequestParser::expects_continue() const {
  return !impl_->head.http10 &&
         LowerCase(impl_->head.Header("expect")) == "100-continue";
}

std::optional<uint64_t> RequestParser::body_left() const {
  if (impl_->parser.chunked()) return std::nullopt;
  const auto left = impl_->parser.content_length_remaining();
  return left ? *left : 0;
}

HttpRequest RequestParser::Take() {
  HttpRequest request = std::move(impl_->head);
  request.body = std::move(impl_->parser.get().body());
  return request;
}

}  // namespace millrace::server::http
