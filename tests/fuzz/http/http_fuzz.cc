// Arbitrary bytes through a whole session: the parser, the routes, the handler
// pool and the answers, over a connection in memory.
//
// The first byte of the input says in which pieces the rest arrives and how
// much each write takes, and whether the server is full; the rest is what the
// client sends before it closes its side. Whatever that is, the session must
// end, and what it wrote must be well-formed answers, one after the other.
#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "handlers/handler.h"
#include "handlers/pool.h"
#include "server/auth.h"
#include "server/http/detail/session.h"
#include "server/http/router.h"
#include "server/http/site.h"
#include "server/lifecycle/language_model.h"
#include "server/lifecycle/repository.h"

namespace millrace::server::http {
namespace {

namespace asio = boost::asio;

class MemoryConn final : public Conn {
 public:
  MemoryConn(asio::io_context& context, std::string_view input,
             size_t piece_bytes, std::string& output)
      : context_(context),
        input_(input),
        piece_bytes_(piece_bytes),
        output_(output) {}

  void Read(std::span<char> into,
            std::function<void(ptrdiff_t)> done) override {
    const size_t n = closed_ ? 0
                             : std::min({into.size(), input_.size(),
                                         std::max<size_t>(piece_bytes_, 1)});
    std::copy_n(input_.data(), n, into.data());
    input_.remove_prefix(n);
    const ptrdiff_t result = closed_ ? -1 : static_cast<ptrdiff_t>(n);
    asio::post(context_, [done = std::move(done), result] { done(result); });
  }
  // Every other write finds the window full when pieces are small.
  ptrdiff_t TryWrite(std::string_view bytes) override {
    if (closed_) return -1;
    full_ = !full_ && piece_bytes_ < 16;
    return full_ ? 0 : Append(bytes);
  }
  void Write(std::string_view bytes,
             std::function<void(ptrdiff_t)> done) override {
    const ptrdiff_t result = closed_ ? -1 : Append(bytes);
    asio::post(context_, [done = std::move(done), result] { done(result); });
  }
  void ShutdownSend() override {}
  void Close() override { closed_ = true; }
  const std::string& peer() const override { return peer_; }

 private:
  ptrdiff_t Append(std::string_view bytes) {
    const size_t n = std::min(bytes.size(), piece_bytes_ * 16 + 1);
    output_.append(bytes.substr(0, n));
    return static_cast<ptrdiff_t>(n);
  }

  asio::io_context& context_;
  std::string_view input_;
  const size_t piece_bytes_;
  std::string& output_;
  bool closed_ = false;
  bool full_ = false;
  const std::string peer_ = "fuzz";
};

// Answers at once, on the pool's thread.
class EchoHandler final : public handlers::GenerateHandler {
 public:
  void Start(handlers::GenerateRequest request,
             std::shared_ptr<handlers::GenerateSink> sink,
             std::stop_token) override {
    handlers::GenerateEnd end;
    end.usage.prompt_tokens = 1;
    sink->OnAccepted(end.usage);
    handlers::OutputDelta chunk;
    chunk.num_tokens = 1;
    if (auto* text = std::get_if<handlers::TextPrompt>(&request.prompt)) {
      chunk.text = text->text;
    }
    sink->OnDelta(std::move(chunk));
    end.reason = handlers::FinishReason::kStop;
    sink->OnEnd(std::move(end));
  }
  StatusOr<handlers::TokenizedText> Tokenize(const std::string& text, bool,
                                             bool) const override {
    handlers::TokenizedText tokens;
    for (char c : text) {
      tokens.ids.push_back(c);
      tokens.pieces.push_back(std::string(1, c));
    }
    return tokens;
  }
  StatusOr<handlers::TokenizedText> TokenizeChat(
      const handlers::ChatPrompt&) const override {
    return handlers::TokenizedText{};
  }
  StatusOr<std::string> Detokenize(
      const std::vector<int32_t>& ids) const override {
    return std::string(ids.begin(), ids.end());
  }
  StatusOr<std::string> ApplyTemplate(
      const handlers::ChatPrompt&) const override {
    return std::string("prompt");
  }
};

struct World {
  World() {
    settings.access_log = false;
    settings.http_max_input_bytes = 4096;
    settings.http_max_header_bytes = 1024;
    settings.cors_allow_origin = "*";
    repository.Add(std::make_shared<LanguageModel>(
        ModelFacts{.id = "m"}, TextFacts{}, nullptr,
        std::make_unique<EchoHandler>()));
    repository.SetState(ServerState::kReady);
    auth = *Auth::Create(settings);
    HttpServices services;
    services.repository = &repository;
    services.pool = &pool;
    services.auth = auth.get();
    services.state = &state;
    site = std::make_shared<Site>(settings, services,
                                  std::span<const std::string_view>());
    group.site = site.get();
    group.context = &context;
  }

  config::ServerSettings settings;
  Repository repository;
  handlers::Pool pool{1, 16, {}};
  std::unique_ptr<Auth> auth;
  server::ProtocolState state{false, 0};
  std::shared_ptr<Site> site;
  asio::io_context context{1};
  SessionGroup group;
};

[[noreturn]] void Broken(const char* why, std::string_view output) {
  std::fprintf(stderr, "%s:\n%.*s\n", why, static_cast<int>(output.size()),
               output.data());
  std::abort();
}

std::string_view Until(std::string_view text, std::string_view mark) {
  const size_t at = text.find(mark);
  return at == std::string_view::npos ? std::string_view()
                                      : text.substr(0, at + mark.size());
}

// Answers one after the other, each whole.
void CheckOutput(std::string_view output) {
  while (!output.empty()) {
    const std::string_view rest = output;
    const std::string_view head = Until(output, "\r\n\r\n");
    if (!head.starts_with("HTTP/1.1 ")) Broken("no answer", rest);
    output.remove_prefix(head.size());
    if (head.starts_with("HTTP/1.1 100")) continue;
    if (head.find("X-Request-Id: ") == std::string_view::npos) {
      Broken("no request id", rest);
    }
    // A head may stand alone: the answer to HEAD, or 204.
    if (output.empty() || output.starts_with("HTTP/1.1 ")) continue;
    const size_t length_at = head.find("Content-Length: ");
    if (length_at != std::string_view::npos) {
      const size_t length =
          std::strtoul(head.data() + length_at + 16, nullptr, 10);
      if (length > output.size()) Broken("a body is short", rest);
      output.remove_prefix(length);
    } else if (head.find("Transfer-Encoding: chunked") !=
               std::string_view::npos) {
      while (true) {
        // The client's side is closed, which the server may take for a client
        // that left: it ends the stream after any chunk then.
        if (output.empty()) return;
        const std::string_view line = Until(output, "\r\n");
        if (line.empty()) Broken("a chunk is missing", rest);
        const size_t size = std::strtoul(line.data(), nullptr, 16);
        if (line.size() + size + 2 > output.size()) {
          Broken("a chunk is short", rest);
        }
        output.remove_prefix(line.size() + size + 2);
        if (size == 0) break;
      }
    } else {
      return;  // HTTP/1.0: until the end
    }
  }
}

}  // namespace

void RunOne(std::string_view bytes) {
  static World* const world = new World;  // one for the process' life
  if (bytes.empty()) return;
  const size_t piece_bytes = static_cast<uint8_t>(bytes.front());
  bytes.remove_prefix(1);
  const bool full = piece_bytes % 8 == 7;  // as when all connections are taken
  std::string output;
  world->site->num_connections.fetch_add(1, std::memory_order_relaxed);
  Session::Start(
      world->group,
      std::make_unique<MemoryConn>(world->context, bytes, piece_bytes, output),
      ServingRoutes(), full);
  // Ends when the session's coroutine has: it is the only work.
  world->context.restart();
  world->context.run();
  if (!world->group.sessions.empty()) Broken("the session did not end", output);
  if (world->site->num_connections.load() != 0) Broken("miscounted", output);
  CheckOutput(output);
}

}  // namespace millrace::server::http

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  millrace::server::http::RunOne({reinterpret_cast<const char*>(data), size});
  return 0;
}
