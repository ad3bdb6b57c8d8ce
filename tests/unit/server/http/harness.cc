// See harness.h. Every wait ends: at what it waits for, or at kPatienceMs.
#include "tests/unit/server/http/harness.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "config/base/json.h"

namespace millrace::server::http {

void Started::Accept(int64_t prompt_tokens) {
  usage.prompt_tokens = prompt_tokens;
  sink->OnAccepted(usage);
}

void Started::Chunk(std::string text, int32_t num_tokens) {
  usage.completion_tokens += num_tokens;
  handlers::OutputDelta chunk;
  chunk.text = std::move(text);
  chunk.num_tokens = num_tokens;
  sink->OnDelta(std::move(chunk));
}

void Started::End(handlers::FinishReason reason) {
  handlers::GenerateEnd end;
  end.reason = reason;
  end.usage = usage;
  sink->OnEnd(std::move(end));
}

void Started::Fail(Status status) {
  handlers::GenerateEnd end;
  end.status = std::move(status);
  end.usage = usage;
  sink->OnEnd(std::move(end));
}

bool Started::WaitForStop() {
  std::mutex mu;
  std::condition_variable changed;
  std::stop_callback wake(stop, [&] {
    const std::lock_guard<std::mutex> lock(mu);
    changed.notify_all();
  });
  std::unique_lock<std::mutex> lock(mu);
  return changed.wait_for(lock, std::chrono::milliseconds(kPatienceMs),
                          [&] { return stop.stop_requested(); });
}

void FakeHandler::Start(handlers::GenerateRequest request,
                        std::shared_ptr<handlers::GenerateSink> sink,
                        std::stop_token stop) {
  Started started{std::move(request), std::move(sink), std::move(stop), {}};
  if (script) return script(std::move(started));
  const std::lock_guard<std::mutex> lock(mu_);
  waiting_.push_back(std::move(started));
  changed_.notify_all();
}

Started FakeHandler::Next() {
  std::unique_lock<std::mutex> lock(mu_);
  if (!changed_.wait_for(lock, std::chrono::milliseconds(kPatienceMs),
                         [&] { return !waiting_.empty(); })) {
    std::fprintf(stderr, "no request reached the handler\n");
    std::abort();
  }
  Started started = std::move(waiting_.front());
  waiting_.erase(waiting_.begin());
  return started;
}

StatusOr<handlers::TokenizedText> FakeHandler::Tokenize(const std::string& text,
                                                        bool add_special,
                                                        bool) const {
  handlers::TokenizedText tokens;
  if (add_special) {
    tokens.ids.push_back(1);
    tokens.pieces.push_back("<s>");
  }
  for (char c : text) {
    tokens.ids.push_back(static_cast<unsigned char>(c));
    tokens.pieces.push_back(std::string(1, c));
  }
  return tokens;
}

StatusOr<handlers::TokenizedText> FakeHandler::TokenizeChat(
    const handlers::ChatPrompt& chat) const {
  ASSIGN_OR_RETURN(const std::string text, ApplyTemplate(chat));
  return Tokenize(text, false, true);
}

StatusOr<std::string> FakeHandler::Detokenize(
    const std::vector<int32_t>& ids) const {
  std::string text;
  for (int32_t id : ids) text.push_back(static_cast<char>(id));
  return text;
}

StatusOr<std::string> FakeHandler::ApplyTemplate(
    const handlers::ChatPrompt& chat) const {
  std::string text;
  for (const auto& message : *chat.messages) {
    text += "<" + message["role"].get<std::string>() + ">" +
            message["content"].get<std::string>();
  }
  return text;
}

void SayHello(Started started) {
  started.Accept();
  started.Chunk("Hello");
  started.Chunk(" world");
  started.End();
}

config::ServerSettings QuietSettings() {
  config::ServerSettings settings;
  settings.http_port = 0;
  settings.access_log = false;
  return settings;
}

TestServer::TestServer(config::ServerSettings settings) {
  auto fake = std::make_unique<FakeHandler>();
  handler = fake.get();
  servable =
      std::make_shared<LanguageModel>(ModelFacts{.id = "tiny",
                                                 .aliases = {"tiny-chat"},
                                                 .created_unix = 1700000000,
                                                 .platform = "millrace_llama"},
                                      TextFacts{.max_model_len = 128,
                                                .trained_context = 2048,
                                                .num_parameters = 1000,
                                                .file_bytes = 4000},
                                      nullptr, std::move(fake));
  repository.Add(servable);
  repository.SetState(ServerState::kReady);
  pool = std::make_unique<handlers::Pool>(2, 64, config::CpuSet{});
  StatusOr<std::unique_ptr<Auth>> made = Auth::Create(settings);
  if (!made.ok()) {
    std::fprintf(stderr, "%s\n", made.status().ToString().c_str());
    std::abort();
  }
  auth = *std::move(made);
  HttpServices services;
  services.repository = &repository;
  services.pool = pool.get();
  services.metrics = &metrics;
  services.auth = auth.get();
  services.state = &state;
  auto started = HttpServer::Start(settings, services);
  if (!started.ok()) {
    std::fprintf(stderr, "%s\n", started.status().ToString().c_str());
    std::abort();
  }
  http = *std::move(started);
}

TestServer::~TestServer() {
  http->Stop(std::chrono::steady_clock::now());
  pool.reset();
}

std::string Reply::Header(std::string_view lower_name) const {
  for (const auto& [name, value] : headers) {
    std::string lower = name;
    for (char& c : lower) {
      c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    }
    if (lower == lower_name) return value;
  }
  return "";
}

Client::Client(int port, int receive_buffer) {
  fd_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (receive_buffer > 0) {
    setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_buffer,
               sizeof receive_buffer);
  }
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) !=
      0) {
    std::perror("connect");
    std::abort();
  }
}

Client::~Client() { Close(); }

void Client::Send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n <= 0) return;  // the server closed; the answer will tell
    bytes.remove_prefix(static_cast<size_t>(n));
  }
}

void Client::ShutdownSend() { shutdown(fd_, SHUT_WR); }

void Client::Close() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

void Client::Reset() {
  const linger at_once{1, 0};
  setsockopt(fd_, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  Close();
}

bool Client::Fill() {
  pollfd readable{fd_, POLLIN, 0};
  if (poll(&readable, 1, kPatienceMs) <= 0) {
    std::fprintf(stderr, "the server neither answered nor closed\n");
    std::abort();
  }
  char bytes[16384];
  const ssize_t n = recv(fd_, bytes, sizeof bytes, 0);
  if (n <= 0) return false;
  pending_.append(bytes, static_cast<size_t>(n));
  return true;
}

std::string Client::ReadUntil(std::string_view mark) {
  while (true) {
    const size_t at = pending_.find(mark);
    const bool found = at != std::string::npos;
    if (found || !Fill()) {
      const size_t length = found ? at + mark.size() : pending_.size();
      std::string taken = pending_.substr(0, length);
      pending_.erase(0, length);
      return taken;
    }
  }
}

bool Client::AtEnd() {
  while (Fill()) {
  }
  return pending_.empty();
}

Reply Client::Read(bool head) {
  Reply reply;
  const std::string text = ReadUntil("\r\n\r\n");
  if (text.rfind("HTTP/1.1 ", 0) != 0) return reply;
  reply.status = std::atoi(text.c_str() + 9);
  size_t at = text.find("\r\n") + 2;
  while (true) {
    const size_t end = text.find("\r\n", at);
    const std::string line = text.substr(at, end - at);
    if (line.empty()) break;
    const size_t colon = line.find(": ");
    reply.headers.emplace_back(line.substr(0, colon), line.substr(colon + 2));
    at = end + 2;
  }
  if (head || reply.status == 204 || reply.status == 100) return reply;
  if (reply.Header("transfer-encoding") == "chunked") {
    while (true) {
      const std::string size_line = ReadUntil("\r\n");
      const size_t size = std::strtoul(size_line.c_str(), nullptr, 16);
      while (pending_.size() < size + 2) {
        if (!Fill()) return reply;
      }
      reply.body += pending_.substr(0, size);
      pending_.erase(0, size + 2);
      if (size == 0) return reply;
    }
  }
  const std::string length = reply.Header("content-length");
  const size_t size =
      length.empty() ? SIZE_MAX : std::strtoul(length.c_str(), nullptr, 10);
  while (pending_.size() < size && Fill()) {
  }
  reply.body = pending_.substr(0, size);
  pending_.erase(0, reply.body.size());
  return reply;
}

Reply Client::Get(std::string_view path, std::string_view headers) {
  Send(GetText(path, headers));
  return Read();
}

Reply Client::Post(std::string_view path, std::string_view body,
                   std::string_view headers) {
  Send(PostText(path, body, headers));
  return Read();
}

std::string GetText(std::string_view path, std::string_view headers) {
  std::string text = "GET ";
  return text.append(path)
      .append(" HTTP/1.1\r\nHost: x\r\n")
      .append(headers)
      .append("\r\n");
}

std::string PostText(std::string_view path, std::string_view body,
                     std::string_view headers) {
  std::string text = "POST ";
  return text.append(path)
      .append(" HTTP/1.1\r\nHost: x\r\nContent-Length: ")
      .append(std::to_string(body.size()))
      .append("\r\n")
      .append(headers)
      .append("\r\n")
      .append(body);
}

}  // namespace millrace::server::http
