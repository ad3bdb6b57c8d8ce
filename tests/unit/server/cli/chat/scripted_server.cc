#include "tests/unit/server/cli/chat/scripted_server.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

namespace millrace::server {
namespace {

// The whole of one request, by its Content-Length.
std::string ReadRequest(int fd) {
  std::string text;
  char buffer[4096];
  while (true) {
    const size_t end = text.find("\r\n\r\n");
    if (end != text.npos) {
      const size_t at = text.find("Content-Length: ");
      const size_t body =
          at == text.npos ? 0 : std::strtoul(&text[at + 16], nullptr, 10);
      if (text.size() >= end + 4 + body) return text;
    }
    const ssize_t got = ::recv(fd, buffer, sizeof(buffer), 0);
    if (got <= 0) return text;
    text.append(buffer, static_cast<size_t>(got));
  }
}

}  // namespace

ScriptedReply JsonReply(int status, const std::string& body) {
  return {{"HTTP/1.1 " + std::to_string(status) +
           " X\r\nContent-Type: application/json\r\nContent-Length: " +
           std::to_string(body.size()) + "\r\n\r\n" + body}};
}

ScriptedReply EventReply(const std::vector<std::string>& data) {
  ScriptedReply reply;
  reply.pieces.push_back(
      "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
      "Transfer-Encoding: chunked\r\n\r\n");
  for (const std::string& one : data) {
    const std::string event = "data: " + one + "\n\n";
    char size[16];
    std::snprintf(size, sizeof(size), "%zx\r\n", event.size());
    // Cut in the middle, so that readers must join.
    const std::string chunk = size + event + "\r\n";
    reply.pieces.push_back(chunk.substr(0, chunk.size() / 2));
    reply.pieces.push_back(chunk.substr(chunk.size() / 2));
  }
  reply.pieces.push_back("0\r\n\r\n");
  return reply;
}

std::string Delta(const std::string& text) {
  return "{\"choices\":[{\"index\":0,\"delta\":{\"content\":\"" + text +
         "\"},\"finish_reason\":null}]}";
}

ScriptedServer::ScriptedServer(std::vector<ScriptedReply> replies)
    : replies_(std::move(replies)) {
  listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  EXPECT_EQ(::bind(listener_, reinterpret_cast<sockaddr*>(&address), size), 0);
  EXPECT_EQ(::listen(listener_, 8), 0);
  ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
  port_ = ntohs(address.sin_port);
  thread_ = std::thread([this] {
    for (const ScriptedReply& reply : replies_) Serve(reply);
  });
}

ScriptedServer::~ScriptedServer() {
  ::shutdown(listener_, SHUT_RDWR);  // wakes an accept that waits in vain
  thread_.join();
  ::close(listener_);
}

std::vector<std::string> ScriptedServer::requests() {
  std::lock_guard lock(mu_);
  return requests_;
}

void ScriptedServer::Serve(const ScriptedReply& reply) {
  const int fd = ::accept(listener_, nullptr, nullptr);
  if (fd < 0) return;
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  std::string request = ReadRequest(fd);
  {
    std::lock_guard lock(mu_);
    requests_.push_back(std::move(request));
  }
  for (const std::string& piece : reply.pieces) {
    ::send(fd, piece.data(), piece.size(), MSG_NOSIGNAL);
  }
  char byte;
  if (reply.hang) {
    while (::recv(fd, &byte, 1, 0) > 0) {
    }
  }
  ::close(fd);
}

}  // namespace millrace::server
