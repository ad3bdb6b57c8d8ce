// Beast as a parser, and the rules of RFC 9112 that it leaves to us. What it
// finds goes straight into the request: Beast's own table of fields would be an
// allocation and an ordered look-up for each of them, to be copied again. A
// body's memory is not reserved from its Content-Length: it grows as bytes
// arrive, so that a client cannot claim memory with a header.
#include "server/http/request_parser.h"

#include <algorithm>
#include <boost/beast/http/basic_parser.hpp>
#include <boost/optional/optional.hpp>
#include <string>
#include <utility>

namespace millrace::server::http {
namespace {

namespace beast_http = boost::beast::http;
using boost::system::error_code;

std::string LowerCase(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return lower;
}

std::string_view View(boost::core::string_view text) {
  return {text.data(), text.size()};
}

// Without the blanks around it (RFC 9112, section 5).
std::string_view Trimmed(std::string_view value) {
  constexpr std::string_view kBlanks = " \t";
  value.remove_prefix(std::min(value.find_first_not_of(kBlanks), value.size()));
  return value.substr(0, value.find_last_not_of(kBlanks) + 1);
}

constexpr size_t kUsualHeaders = 12;

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

struct RequestParser::Impl final : beast_http::basic_parser<true> {
  explicit Impl(const Limits& given) : limits(given) {
    eager(false);
    header_limit(static_cast<uint32_t>(
        std::clamp<int64_t>(limits.header_bytes, 64, 1 << 30)));
    body_limit(static_cast<uint64_t>(limits.body_bytes));
  }

  Status ReadHead();

  const Limits limits;
  HttpRequest request;
  bool head_read = false;

 private:
  using Text = boost::core::string_view;

  void on_request_impl(beast_http::verb, Text method, Text target, int version,
                       error_code& ec) override {
    request.method = View(method);
    request.target = View(target);
    request.http10 = version < 11;
    request.headers.reserve(kUsualHeaders);
    ec = {};
  }
  // Those behind a chunked body are dropped.
  void on_field_impl(beast_http::field, Text name, Text value,
                     error_code& ec) override {
    if (!head_read) {
      request.headers.emplace_back(LowerCase(View(name)), Trimmed(View(value)));
    }
    ec = {};
  }
  size_t on_body_impl(Text bytes, error_code& ec) override {
    request.body.append(bytes.data(), bytes.size());
    ec = {};
    return bytes.size();
  }
  size_t on_chunk_body_impl(uint64_t, Text bytes, error_code& ec) override {
    return on_body_impl(bytes, ec);
  }
  void on_header_impl(error_code& ec) override { ec = {}; }
  void on_body_init_impl(const boost::optional<uint64_t>&,
                         error_code& ec) override {
    ec = {};
  }
  void on_chunk_header_impl(uint64_t, Text, error_code& ec) override {
    ec = {};
  }
  void on_finish_impl(error_code& ec) override { ec = {}; }
  void on_response_impl(int, Text, int, error_code& ec) override { ec = {}; }
};

Status RequestParser::Impl::ReadHead() {
  request.keep_alive = keep_alive();
  const auto hosts = std::ranges::count_if(
      request.headers, [](const auto& field) { return field.first == "host"; });
  if (hosts > 1 || (hosts == 0 && !request.http10)) {
    return Malformed("an HTTP/1.1 request has exactly one Host header");
  }
  if (request.HasHeader("transfer-encoding")) {
    // Length by any other coding than chunked cannot be known (RFC 9112,
    // section 6.3), and HTTP/1.0 has none at all.
    if (request.http10 || !chunked() ||
        LowerCase(request.Header("transfer-encoding")) != "chunked") {
      return Malformed(
          "the only Transfer-Encoding taken is 'chunked', in HTTP/1.1");
    }
  }
  std::string_view target = request.target;
  // The absolute form, as clients send it to proxies.
  for (std::string_view scheme : {"http://", "https://"}) {
    if (target.substr(0, scheme.size()) != scheme) continue;
    target.remove_prefix(scheme.size());
    target.remove_prefix(std::min(target.find('/'), target.size()));
  }
  const size_t question = std::min(target.find('?'), target.size());
  request.query =
      std::string(target.substr(std::min(question + 1, target.size())));
  std::optional<std::string> path = PercentDecoded(target.substr(0, question));
  if (!path.has_value()) {
    return Malformed(
        "the request's path has a '%' that two hexadecimal "
        "digits do not follow");
  }
  request.path = path->empty() ? "/" : *std::move(path);
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
  if (head_done() && impl_->chunked() && input.size() < kLastChunkBytes)
    return size_t{0};
  error_code ec;
  const size_t taken =
      impl_->put(boost::asio::const_buffer(input.data(), input.size()), ec);
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

bool RequestParser::head_done() const { return impl_->is_header_done(); }
bool RequestParser::done() const { return impl_->is_done(); }
const HttpRequest& RequestParser::head() const { return impl_->request; }

bool RequestParser::expects_continue() const {
  return !impl_->request.http10 &&
         LowerCase(impl_->request.Header("expect")) == "100-continue";
}

std::optional<uint64_t> RequestParser::body_left() const {
  if (impl_->chunked()) return std::nullopt;
  const auto left = impl_->content_length_remaining();
  return left ? *left : 0;
}

HttpRequest RequestParser::Take() { return std::move(impl_->request); }

}  // namespace millrace::server::http
