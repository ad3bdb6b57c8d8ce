#include "server/http/request_parser.h"

#include <gtest/gtest.h>

#include <string>

namespace millrace::server::http {
namespace {

// Everything pushed as one piece; what was not taken comes back.
Status PutAll(RequestParser& parser, std::string_view& input) {
  while (!input.empty() && !parser.done()) {
    StatusOr<size_t> taken = parser.Put(input);
    if (!taken.ok()) return taken.status();
    if (*taken == 0) break;
    input.remove_prefix(*taken);
  }
  return OkStatus();
}

TEST(RequestParser, ReadsHeadAndBodyAndLeavesTheNextRequest) {
  RequestParser parser({});
  std::string_view input =
      "POST /a%20b?x=1 HTTP/1.1\r\nHost: h\r\nX-Thing:  v \r\n"
      "Content-Length: 3\r\n\r\nabcGET";
  ASSERT_TRUE(PutAll(parser, input).ok());
  ASSERT_TRUE(parser.done());
  EXPECT_EQ(input, "GET");
  const HttpRequest request = parser.Take();
  EXPECT_EQ(request.method, "POST");
  EXPECT_EQ(request.path, "/a b");
  EXPECT_EQ(request.query, "x=1");
  EXPECT_EQ(request.Header("x-thing"), "v");
  EXPECT_EQ(request.body, "abc");
  EXPECT_TRUE(request.keep_alive);
}

TEST(RequestParser, HeadIsKnownBeforeTheBody) {
  RequestParser parser({});
  std::string_view input =
      "POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-Continue\r\n"
      "Content-Length: 3\r\n\r\n";
  ASSERT_TRUE(PutAll(parser, input).ok());
  EXPECT_TRUE(parser.head_done());
  EXPECT_FALSE(parser.done());
  EXPECT_TRUE(parser.expects_continue());
  EXPECT_EQ(parser.body_left(), 3u);
}

TEST(RequestParser, ChunkedBodyMayArriveInPiecesOfAnySize) {
  const std::string text =
      "POST /x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
      "3\r\nabc\r\n1;x=1\r\nd\r\n0\r\nTrailer: t\r\n\r\n";
  for (size_t piece = 1; piece <= text.size(); ++piece) {
    RequestParser parser({});
    std::string input;
    for (size_t at = 0; at < text.size(); at += piece) {
      input += text.substr(at, piece);
      while (true) {
        const auto taken = parser.Put(input);
        ASSERT_TRUE(taken.ok()) << taken.status().ToString();
        if (*taken == 0) break;
        input.erase(0, *taken);
      }
    }
    ASSERT_TRUE(parser.done()) << "pieces of " << piece;
    EXPECT_EQ(parser.Take().body, "abcd");
  }
}

TEST(RequestParser, FieldsBehindAChunkedBodyAreNoHeaders) {
  RequestParser parser({});
  std::string_view input =
      "POST /x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
      "0\r\nX-Late: t\r\n\r\n";
  ASSERT_TRUE(PutAll(parser, input).ok());
  ASSERT_TRUE(parser.done());
  EXPECT_FALSE(parser.Take().HasHeader("x-late"));
}

TEST(RequestParser, AHeaderIsAsLongAsTheLimitAllows) {
  RequestParser parser({.header_bytes = 100'000, .body_bytes = 10});
  const std::string text = "GET / HTTP/1.1\r\nHost: h\r\nX: \t" +
                           std::string(70'000, 'a') + " \r\nY:\r\n\r\n";
  std::string_view input = text;
  ASSERT_TRUE(PutAll(parser, input).ok());
  EXPECT_EQ(parser.head().Header("x").size(), 70'000u);
  EXPECT_TRUE(parser.head().HasHeader("y"));
  EXPECT_EQ(parser.head().Header("y"), "");
}

TEST(RequestParser, AbsoluteFormGivesThePath) {
  RequestParser parser({});
  std::string_view input = "GET http://h/health?q HTTP/1.1\r\nHost: h\r\n\r\n";
  ASSERT_TRUE(PutAll(parser, input).ok());
  EXPECT_EQ(parser.head().path, "/health");
  EXPECT_EQ(parser.head().query, "q");
}

TEST(RequestParser, LimitsNameTheirReason) {
  RequestParser small_head({.header_bytes = 64, .body_bytes = 10});
  std::string_view input =
      "GET / HTTP/1.1\r\nHost: h\r\nX: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
      "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n\r\n";
  EXPECT_EQ(PutAll(small_head, input).reason(), "headers_too_large");
  RequestParser small_body({.header_bytes = 1000, .body_bytes = 10});
  input = "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 11\r\n\r\n";
  EXPECT_EQ(PutAll(small_body, input).reason(), "payload_too_large");
}

TEST(RequestParser, ClientsOfOtherProtocolsAreToldApart) {
  RequestParser http2({.header_bytes = 1000, .body_bytes = 10});
  EXPECT_EQ(http2.Put("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").status().message(),
            "the client speaks HTTP/2, as gRPC does; this port speaks "
            "HTTP/1.1, and gRPC has a port of its own (grpc_port)");
  RequestParser tls({.header_bytes = 1000, .body_bytes = 10});
  EXPECT_EQ(tls.Put(std::string_view("\x16\x03\x01\x02\x00\x01", 6))
                .status()
                .message(),
            "the client speaks TLS, which is not offered; use http://, or a "
            "proxy that ends TLS");
}

TEST(RequestParser, ContentLengthDoesNotReserveMemory) {
  // A reservation of this size would throw.
  RequestParser parser({.header_bytes = 1000, .body_bytes = INT64_MAX});
  std::string_view input =
      "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 4611686018427387904\r\n"
      "\r\nabc";
  ASSERT_TRUE(PutAll(parser, input).ok());
  EXPECT_FALSE(parser.done());
}

TEST(PercentDecoded, RefusesWhatIsNoText) {
  EXPECT_EQ(PercentDecoded("a%2Fb%41"), "a/bA");
  EXPECT_FALSE(PercentDecoded("%").has_value());
  EXPECT_FALSE(PercentDecoded("%4").has_value());
  EXPECT_FALSE(PercentDecoded("%g0").has_value());
  EXPECT_FALSE(PercentDecoded("a%00b").has_value());
}

}  // namespace
}  // namespace millrace::server::http
