#include "server/cli/chat/chat.h"

#include <gtest/gtest.h>

#include <sstream>

#include "server/cli/chat/chat_options.h"
#include "tests/unit/server/cli/chat/scripted_server.h"

namespace millrace::server {
namespace {

const ScriptedReply kModels = JsonReply(
    200, R"({"object":"list","data":[{"id":"tiny","object":"model"}]})");

struct Outcome {
  int code;
  std::string out;
  std::string err;
};

// `cancelled` is given the output so far.
Outcome Chat(std::vector<std::string> args, const std::string& input = "",
             std::function<bool(const std::string&)> cancelled = {},
             bool to_screen = false) {
  std::istringstream in(input);
  std::ostringstream out, err;
  const int code = RunChatOn(
      args, {.in = in,
             .out = out,
             .err = err,
             .interactive = false,
             .to_screen = to_screen,
             .cancelled = [&] { return cancelled && cancelled(out.str()); }});
  return {code, out.str(), err.str()};
}

TEST(Chat, PromptOnTheCommandLineIsAnsweredOnce) {
  ScriptedServer server(
      {kModels, EventReply({R"({"choices":[{"delta":{"role":"assistant"}}]})",
                            Delta("Hel"), Delta("lo"),
                            R"({"choices":[],"usage":{}})", "[DONE]"})});
  const Outcome outcome =
      Chat({"--url", server.url(), "--max-tokens=7", "--temperature", "0.5",
            "--system", "Be kind", "Hi", "there"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.out, "Hello\n");
  const std::string request = server.requests()[1];
  EXPECT_EQ(request.substr(request.find("\r\n\r\n") + 4),
            R"({"model":"tiny","messages":[{"role":"system","content":)"
            R"("Be kind"},{"role":"user","content":"Hi there"}],)"
            R"("stream":true,"max_tokens":7,"temperature":0.5})");
}

TEST(Chat, LinesAreAConversationUntilReset) {
  ScriptedServer server({EventReply({Delta("one"), "[DONE]"}),
                         EventReply({Delta("two"), "[DONE]"}),
                         EventReply({Delta("three"), "[DONE]"})});
  const Outcome outcome = Chat({"--url", server.url(), "--model", "m"},
                               "a\n  \nb\n/reset\nc\n/exit\nd\n");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.out, "one\ntwo\nthree\n");
  const auto requests = server.requests();
  ASSERT_EQ(requests.size(), 3u);
  EXPECT_NE(
      requests[1].find(R"([{"role":"user","content":"a"},{"role":"assistant",)"
                       R"("content":"one"},{"role":"user","content":"b"}])"),
      std::string::npos);
  EXPECT_NE(requests[2].find(R"("messages":[{"role":"user","content":"c"}])"),
            std::string::npos);
}

TEST(Chat, ServerErrorsAreShownAndForgotten) {
  ScriptedServer server(
      {JsonReply(429, R"({"error":{"message":"the queue is full"}})"),
       EventReply({Delta("par"), R"({"error":{"message":"device gone"}})"}),
       EventReply({Delta("cut")}), EventReply({Delta("ok"), "[DONE]"})});
  const Outcome outcome =
      Chat({"--url", server.url(), "--model", "m"}, "a\nb\nc\nd\n");
  EXPECT_EQ(outcome.code, 0) << "the last answer counts";
  EXPECT_EQ(outcome.out, "par\ncut\nok\n");
  EXPECT_EQ(outcome.err,
            "millrace chat: the queue is full\n"
            "millrace chat: device gone\n"
            "millrace chat: the answer ended before it was complete\n");
  EXPECT_NE(server.requests()[3].find(
                R"("messages":[{"role":"user","content":"d"}])"),
            std::string::npos);
}

TEST(Chat, CtrlCStopsTheAnswerAndClosesTheConnection) {
  ScriptedReply endless = EventReply({Delta("so far")});
  endless.pieces.pop_back();  // no end
  endless.hang = true;
  ScriptedServer server({endless});
  const Outcome outcome =
      Chat({"--url", server.url(), "--model", "m", "Hi"}, "",
           [](const std::string& out) { return out == "so far"; });
  EXPECT_EQ(outcome.code, 1);
  EXPECT_EQ(outcome.out, "so far\n");
  EXPECT_EQ(outcome.err, "(stopped)\n");
}

TEST(Chat, AnswersDoNotDriveTheScreen) {
  ScriptedServer server({EventReply({Delta("a\\u001b[2Jb\\tc"), "[DONE]"})});
  EXPECT_EQ(Chat({"--url", server.url(), "--model", "m", "Hi"}, "", {},
                 /*to_screen=*/true)
                .out,
            "a[2Jb\tc\n");
}

TEST(Chat, NobodyListensIsASentence) {
  std::string url;
  { url = ScriptedServer({}).url(); }
  const Outcome outcome = Chat({"--url", url, "Hi"});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_NE(outcome.err.find("no server answers at"), std::string::npos);
}

TEST(Chat, NoModelListedIsASentence) {
  ScriptedServer server({JsonReply(200, R"({"data":[]})")});
  EXPECT_NE(Chat({"--url", server.url(), "Hi"}).err.find("--model"),
            std::string::npos);
}

TEST(Chat, WrongArgumentsAreExitCodeTwo) {
  for (const std::vector<std::string>& args :
       std::vector<std::vector<std::string>>{{"--modle", "x"},
                                             {"--model"},
                                             {"--max-tokens", "0"},
                                             {"--max-tokens", "many"},
                                             {"--temperature", "3"},
                                             {"--temperature", "nan"},
                                             {"--url", "https://x"},
                                             {"--api-key", "a\nb"}}) {
    const Outcome outcome = Chat(args);
    EXPECT_EQ(outcome.code, 2) << args[0];
    EXPECT_TRUE(outcome.err.starts_with("millrace chat: ")) << outcome.err;
  }
}

TEST(Chat, HelpNamesEveryFlag) {
  const Outcome outcome = Chat({"--help"});
  EXPECT_EQ(outcome.code, 0);
  for (const char* flag : {"--url", "--model", "--system", "--max-tokens",
                           "--temperature", "--api-key"}) {
    EXPECT_NE(outcome.out.find(flag), std::string::npos) << flag;
  }
}

TEST(Chat, WordsAfterTwoDashesAreThePrompt) {
  const std::vector<std::string> args = {"--", "--model", "x"};
  EXPECT_EQ(ParseChatOptions(args)->prompt, "--model x");
}

}  // namespace
}  // namespace millrace::server
