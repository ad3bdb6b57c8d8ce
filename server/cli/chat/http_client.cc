// A stream, poll and Beast's parser fed by hand. Ctrl-C is no event here: every
// wait is a short poll, after which the cancel function is asked, so no signal
// can be lost between check and wait.
#include "server/cli/chat/http_client.h"

#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/optional/optional.hpp>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>
#include <utility>

#include "server/cli/chat/stream.h"

namespace millrace::server {
namespace {

namespace http = boost::beast::http;
using SteadyTime = std::chrono::steady_clock::time_point;

constexpr std::chrono::milliseconds kPollStep{100};
constexpr std::chrono::seconds kConnectLimit{10};

// Until the socket is ready for `events`.
Status Await(int fd, short events, SteadyTime deadline,
             const HttpHooks& hooks) {
  while (true) {
    if (hooks.cancelled && hooks.cancelled()) return Cancelled("stopped");
    pollfd wanted{fd, events, 0};
    const int ready = ::poll(&wanted, 1, static_cast<int>(kPollStep.count()));
    if (ready > 0) return OkStatus();
    if (ready < 0 && errno != EINTR) {
      return Unavailable(std::string("poll failed: ") + std::strerror(errno));
    }
    if (std::chrono::steady_clock::now() >= deadline) {
      return DeadlineExceeded("the server was silent for too long");
    }
  }
}

StatusOr<Socket> ConnectTcp(const HttpUrl& url, const HttpHooks& hooks) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int failed =
          ::getaddrinfo(url.host.c_str(), url.port.c_str(), &hints, &found);
      failed != 0) {
    return Unavailable("cannot resolve " + url.host + ": " +
                       ::gai_strerror(failed));
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(
      found, &::freeaddrinfo);
  std::string why = "no address";
  for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
    Socket socket(::socket(at->ai_family,
                           at->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK,
                           at->ai_protocol));
    if (socket.fd() < 0) {
      why = std::strerror(errno);
      continue;
    }
    int error = 0;
    if (::connect(socket.fd(), at->ai_addr, at->ai_addrlen) != 0) {
      error = errno;
      if (error == EINPROGRESS) {
        const Status ready =
            Await(socket.fd(), POLLOUT,
                  std::chrono::steady_clock::now() + kConnectLimit, hooks);
        if (ready.code() == StatusCode::kCancelled) return ready;
        socklen_t size = sizeof(error);
        if (!ready.ok()) {
          error = ETIMEDOUT;
        } else {
          ::getsockopt(socket.fd(), SOL_SOCKET, SO_ERROR, &error, &size);
        }
      }
    }
    if (error == 0) return socket;
    why = std::strerror(error);
  }
  return Unavailable("no server answers at " + url.authority + " (" + why +
                     "); start one with: millrace serve");
}

std::string RequestText(const HttpUrl& url, const HttpCall& call) {
  std::string text = call.method + " " + url.prefix + call.target +
                     " HTTP/1.1\r\nHost: " + url.authority +
                     "\r\nUser-Agent: millrace-chat\r\nConnection: close\r\n";
  if (!call.api_key.empty()) {
    text += "Authorization: Bearer " + call.api_key + "\r\n";
  }
  if (!call.body.empty()) {
    text += "Content-Type: application/json\r\nContent-Length: " +
            std::to_string(call.body.size()) + "\r\n";
  }
  return text + "\r\n" + call.body;
}

// Waits for what the stream's last call asked for.
Status AwaitStream(const Stream& stream, const HttpCall& call,
                   const HttpHooks& hooks) {
  return Await(stream.fd(), stream.wanted(),
               std::chrono::steady_clock::now() + call.silence_limit, hooks);
}

Status SendAll(Stream& stream, std::string_view bytes, const HttpCall& call,
               const HttpHooks& hooks) {
  while (!bytes.empty()) {
    const ssize_t sent = stream.Send(bytes);
    if (sent > 0) {
      bytes.remove_prefix(static_cast<size_t>(sent));
    } else if (sent == Stream::kWait) {
      RETURN_IF_ERROR(AwaitStream(stream, call, hooks));
    } else {
      // An early answer (413, 401) may be waiting all the same.
      return OkStatus();
    }
  }
  return OkStatus();
}

StatusOr<int> Receive(Stream& stream, const HttpCall& call,
                      const HttpHooks& hooks) {
  http::response_parser<http::string_body> parser;
  parser.eager(true);
  parser.body_limit(boost::none);
  std::string unparsed;
  std::array<char, 16384> buffer;
  boost::system::error_code error;
  while (!parser.is_done()) {
    const ssize_t got = stream.Receive(buffer);
    if (got == Stream::kWait) {
      RETURN_IF_ERROR(AwaitStream(stream, call, hooks));
      continue;
    }
    if (got < 0) {
      return Unavailable("the connection broke: " + stream.error());
    }
    if (got == 0) {
      if (parser.got_some()) parser.put_eof(error);
      if (error || !parser.is_done()) {
        return Unavailable("the server closed the connection mid-answer");
      }
      break;
    }
    unparsed.append(buffer.data(), static_cast<size_t>(got));
    while (!unparsed.empty() && !parser.is_done()) {
      const size_t used = parser.put(boost::asio::buffer(unparsed), error);
      unparsed.erase(0, used);
      if (error == http::error::need_more) {
        error = {};
        break;
      }
      if (error) {
        return Unavailable("the answer is not HTTP: " + error.message());
      }
      if (used == 0) break;
    }
    std::string& body = parser.get().body();
    if (parser.is_header_done() && !body.empty()) {
      hooks.on_body(static_cast<int>(parser.get().result_int()), body);
      body.clear();
    }
  }
  return static_cast<int>(parser.get().result_int());
}

}  // namespace

StatusOr<HttpUrl> ParseHttpUrl(std::string_view url) {
  const auto bad = [url](const char* why) {
    return InvalidArgument("the URL '" + std::string(url) + "' " + why +
                           "; it looks like http://127.0.0.1:8000")
        .At("--url");
  };
  std::string_view rest = url;
  HttpUrl out;
  out.is_tls = rest.starts_with("https://");
  if (out.is_tls) {
    rest.remove_prefix(8);
  } else if (rest.starts_with("http://")) {
    rest.remove_prefix(7);
  }
  for (const char c : rest) {
    if (static_cast<unsigned char>(c) <= ' ' || c == 0x7F || c == '?' ||
        c == '#' || c == '@') {
      return bad("has a character that does not belong there");
    }
  }
  const size_t slash = std::min(rest.find('/'), rest.size());
  out.authority = rest.substr(0, slash);
  out.prefix = rest.substr(slash);
  while (out.prefix.ends_with('/')) out.prefix.pop_back();

  std::string_view host = out.authority;
  std::string_view port = out.is_tls ? "443" : "80";
  const size_t colon = host.rfind(':');
  const size_t bracket = host.rfind(']');
  if (colon != host.npos && (bracket == host.npos || colon > bracket)) {
    port = host.substr(colon + 1);
    host = host.substr(0, colon);
  }
  if (host.starts_with('[') && host.ends_with(']')) {
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != host.npos) {
    return bad("has an IPv6 address without brackets");
  }
  if (host.empty()) return bad("names no host");
  int number = 0;
  const auto parsed =
      std::from_chars(port.data(), port.data() + port.size(), number);
  if (parsed.ec != std::errc() || parsed.ptr != port.data() + port.size() ||
      number < 1 || number > 65535) {
    return bad("has no port between 1 and 65535");
  }
  out.host = host;
  out.port = port;
  return out;
}

StatusOr<int> Exchange(const HttpUrl& url, const HttpCall& call,
                       const HttpHooks& hooks) {
  ASSIGN_OR_RETURN(Socket socket, ConnectTcp(url, hooks));
  ASSIGN_OR_RETURN(const std::unique_ptr<Stream> stream,
                   Stream::Open(std::move(socket), url));
  while (true) {
    const ssize_t shaken = stream->Handshake();
    if (shaken > 0) break;
    if (shaken != Stream::kWait) {
      return Unavailable("TLS with " + url.authority +
                         " failed: " + stream->error());
    }
    RETURN_IF_ERROR(AwaitStream(*stream, call, hooks));
  }
  RETURN_IF_ERROR(SendAll(*stream, RequestText(url, call), call, hooks));
  return Receive(*stream, call, hooks);
}

}  // namespace millrace::server
