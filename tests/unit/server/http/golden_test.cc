// Golden files: tests/golden/http/NAME.txt holds a request, a line "----" and
// the answer, with what changes from run to run masked as <…>. Set
// MILLRACE_UPDATE_GOLDEN=1 to write the answers anew, then read the diff.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/graph_servable.h"
#include "tests/support/test_graphs.h"
#include "tests/unit/server/http/harness.h"

namespace millrace::server::http {
namespace {

constexpr char kFolder[] = "tests/golden/http";
constexpr char kRule[] = "----\n";

handlers::TokenLogprobs Token(int32_t id, const std::string& bytes,
                              float logprob) {
  handlers::TokenLogprobs token;
  token.chosen = {id, bytes, logprob};
  token.top = {{id, bytes, logprob}, {id + 1, "\xc3", logprob - 1}};
  return token;
}

// "Héllo" in two chunks with log-probabilities when asked, ended by a stop
// string.
void Script(Started started) {
  const bool logprobs = started.request.options.logprobs.has_value();
  started.usage.cached_tokens = 2;
  started.Accept(5);
  handlers::OutputDelta chunk;
  chunk.text = "H\xc3\xa9";
  chunk.num_tokens = 2;
  if (logprobs) {
    chunk.logprobs = {Token(7, "H", -0.25f), Token(9, "\xc3\xa9", -1.5f)};
  }
  started.usage.completion_tokens = 2;
  started.sink->OnDelta(chunk);
  chunk.text = "llo";
  chunk.num_tokens = 1;
  if (logprobs) chunk.logprobs = {Token(11, "llo", -0.125f)};
  started.sink->OnDelta(chunk);
  handlers::GenerateEnd end;
  end.reason = handlers::FinishReason::kStop;
  end.stop_reason = std::string("\n");
  started.usage.completion_tokens = 3;
  end.usage = started.usage;
  started.sink->OnEnd(end);
}

std::string Masked(std::string text) {
  const std::pair<const char*, const char*> masks[] = {
      {"Date: [^\r\n]*", "Date: <date>"},
      {"Content-Length: [0-9]+", "Content-Length: <length>"},
      {"millrace/[0-9.]+", "millrace/<version>"},
      {"millrace-[0-9.]+", "millrace-<version>"},
      {"\"version\":\"[0-9.]+\"", "\"version\":\"<version>\""},
      {"req-[0-9a-f]{24}", "<request id>"},
      {"cmpl-[0-9a-f]{32}", "cmpl-<id>"},
      {"\"timings\":\\{[^}]*\\}", "\"timings\":<timings>"},
      {"\"created\":[0-9]+", "\"created\":<time>"},
  };
  for (const auto& [pattern, mask] : masks) {
    text = std::regex_replace(text, std::regex(pattern), mask);
  }
  return text;
}

// The file's request with CRLF in its head and the length of its body.
std::string WireRequest(const std::string& text) {
  const size_t blank = text.find("\n\n");
  std::string head = text.substr(0, blank) + "\n";
  std::string body = blank == std::string::npos ? "" : text.substr(blank + 2);
  while (!body.empty() && body.back() == '\n') body.pop_back();
  if (!body.empty()) {
    head += "Content-Length: " + std::to_string(body.size()) + "\n";
  }
  std::string wire;
  for (char c : head) {
    if (c == '\n') wire += '\r';
    wire += c;
  }
  return wire + "\r\n" + body;
}

std::string Shown(const Reply& reply) {
  std::string text = std::to_string(reply.status) + "\n";
  for (const auto& [name, value] : reply.headers) {
    text += name + ": " + value + "\n";
  }
  text += "\n" + reply.body;
  if (text.back() != '\n') text += '\n';
  return Masked(text);
}

TEST(Golden, AnswersAreAsWritten) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(kFolder)) {
    files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  ASSERT_GE(files.size(), 8u);
  const bool update = std::getenv("MILLRACE_UPDATE_GOLDEN") != nullptr;
  TestServer server;
  server.handler->script = Script;
  server.repository.Add(::millrace::support::GraphServable(
      "sums", ::millrace::support::SumGraph(), server.pool.get()));
  for (const std::filesystem::path& path : files) {
    std::stringstream text;
    text << std::ifstream(path).rdbuf();
    const std::string golden = text.str();
    const size_t rule = golden.find(kRule);
    ASSERT_NE(rule, std::string::npos) << path;
    Client client(server.port());
    client.Send(WireRequest(golden.substr(0, rule)));
    const std::string answer = Shown(client.Read());
    if (update) {
      std::ofstream(path) << golden.substr(0, rule) << kRule << answer;
    } else {
      EXPECT_EQ(answer, golden.substr(rule + sizeof kRule - 1)) << path;
    }
  }
}

}  // namespace
}  // namespace millrace::server::http
