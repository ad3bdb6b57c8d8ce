#include "server/cli/chat/chat.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <iterator>
#include <sstream>

#include "server/cli/chat/chat_options.h"
#include "server/cli/chat/commands.h"
#include "tests/support/temp_path.h"
#include "tests/unit/server/cli/chat/scripted_server.h"

namespace millrace::server {
namespace {

const ScriptedReply kModels = JsonReply(
    200, R"({"object":"list","data":[{"id":"tiny","object":"model"},)"
         R"({"id":"m","object":"model","max_model_len":64,)"
         R"("default_sampling_params":{"temperature":0.2,"top_p":0.95}}]})");

struct Outcome {
  int code;
  std::string out;
  std::string err;
};

// `cancelled` is given the output so far.
Outcome Chat(std::vector<std::string> args, const std::string& input = "",
             std::function<bool(const std::string&)> cancelled = {},
             bool to_screen = false, bool styled = false,
             bool interactive = false) {
  std::istringstream in(input);
  std::ostringstream out, err;
  const int code = RunChatOn(
      args, {.in = in,
             .out = out,
             .err = err,
             .interactive = interactive,
             .to_screen = to_screen,
             .styled = styled,
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

TEST(Chat, SamplingIsTheUsersElseTheModelsElseOurs) {
  const auto body_of = [](std::vector<std::string> flags) {
    ScriptedServer server({kModels, EventReply({Delta("x"), "[DONE]"})});
    flags.insert(flags.begin(), {"--url", server.url()});
    flags.push_back("Hi");
    EXPECT_EQ(Chat(flags).code, 0);
    const std::string request = server.requests()[1];
    return request.substr(request.find(R"("stream":true)"));
  };
  // "tiny" tells of no sampling, "m" does.
  EXPECT_EQ(body_of({}), R"("stream":true,"temperature":0.7,"top_p":0.9})");
  EXPECT_EQ(body_of({"-m", "m"}), R"("stream":true})");
  EXPECT_EQ(body_of({"--temperature", "0"}),
            R"("stream":true,"temperature":0.0})");
  EXPECT_EQ(body_of({"--model", "m", "--top-p", "0.5"}),
            R"("stream":true,"top_p":0.5})");
}

TEST(Chat, AnAnswerThatWasCutSaysSo) {
  const std::string last =
      R"({"choices":[{"delta":{},"finish_reason":"length"}]})";
  const ScriptedReply cut = EventReply({Delta("and"), last, "[DONE]"});
  ScriptedServer server({kModels, cut, kModels, cut});
  EXPECT_EQ(
      Chat({"--url", server.url(), "-m", "m", "--max-tokens", "3", "Hi"}).err,
      "(cut off: --max-tokens is 3)\n");
  const Outcome full = Chat({"--url", server.url(), "-m", "m", "Hi"});
  EXPECT_EQ(full.err, "(cut off: the context of 64 tokens is full)\n");
  EXPECT_EQ(full.out, "and\n");
}

TEST(Chat, AConversationThatIsTooLongSaysHowToGoOn) {
  const ScriptedReply refused = JsonReply(
      400,
      R"({"error":{"message":"too long","code":"context_length_exceeded"}})");
  ScriptedServer server({kModels, refused, kModels, refused});
  EXPECT_EQ(Chat({"--url", server.url()}, "Hi\n").err,
            "millrace chat: too long\n");
  EXPECT_EQ(Chat({"--url", server.url()}, "Hi\n", {}, false, false,
                 /*interactive=*/true)
                .err,
            "millrace chat: too long\n"
            "(/clear forgets the conversation and makes room)\n");
}

TEST(Chat, AMissingKeyNamesTheFlag) {
  const ScriptedReply refused =
      JsonReply(401, R"({"error":{"message":"this server wants an API key"}})");
  ScriptedServer server({refused, refused});
  EXPECT_EQ(Chat({"--url", server.url(), "Hi"}).err,
            "millrace chat: the server needs an API key; give it with "
            "--api-key KEY or in MILLRACE_API_KEY\n");
  EXPECT_EQ(Chat({"--url", server.url(), "--api-key", "x", "Hi"}).err,
            "millrace chat: the server refused this API key; check --api-key "
            "or MILLRACE_API_KEY\n");
}

TEST(Chat, AModelThatIsNotThereNamesThoseThatAre) {
  ScriptedServer server({kModels});
  const Outcome outcome = Chat({"--url", server.url(), "-m", "gpt", "Hi"});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_NE(outcome.err.find("has no model 'gpt'; it has tiny, m"),
            std::string::npos)
      << outcome.err;
}

TEST(Chat, CommandsChangeTheConversation) {
  const std::string path = TempPath("saved.json");
  std::remove(path.c_str());
  ScriptedServer server({kModels, EventReply({Delta("one"), "[DONE]"}), kModels,
                         kModels, EventReply({Delta("two"), "[DONE]"})});
  const Outcome outcome = Chat(
      {"--url", server.url()},
      "/system Be brief.\na\n/model\n/model m\n/save " + path + "\n/save " +
          path + "\n/clear\n/system\nb\n/sytem\n/etc\n/exit\n");
  EXPECT_EQ(outcome.out,
            "The system message is set.\none\n* tiny\n  m\n"
            "Talking with m (temperature 0.2, top_p 0.95).\n"
            "3 messages are written to " +
                path + ".\nThe conversation is forgotten.\nBe brief.\ntwo\n");
  EXPECT_NE(outcome.err.find("exists; name another"), std::string::npos);
  EXPECT_NE(outcome.err.find("no command /sytem; did you mean /system?"),
            std::string::npos);
  EXPECT_NE(outcome.err.find("no command /etc; /help lists"),
            std::string::npos);
  EXPECT_NE(server.requests()[4].find(
                R"({"model":"m","messages":[{"role":"system","content":)"
                R"("Be brief."},{"role":"user","content":"b"}])"),
            std::string::npos)
      << server.requests()[4];
  std::ifstream saved(path);
  const std::string text(std::istreambuf_iterator<char>(saved), {});
  EXPECT_NE(text.find(R"("content": "one")"), std::string::npos) << text;
  std::remove(path.c_str());
}

TEST(Chat, APathIsAQuestion) {
  EXPECT_TRUE(IsCommand("/help"));
  EXPECT_TRUE(IsCommand("/system Be brief"));
  EXPECT_FALSE(IsCommand("/etc/hosts holds what?"));
  EXPECT_FALSE(IsCommand("/ 2"));
  EXPECT_FALSE(IsCommand("what is /help"));
}

TEST(Chat, LinesAreAConversationUntilReset) {
  ScriptedServer server({kModels, EventReply({Delta("one"), "[DONE]"}),
                         EventReply({Delta("two"), "[DONE]"}),
                         EventReply({Delta("three"), "[DONE]"})});
  const Outcome outcome = Chat({"--url", server.url(), "--model", "m"},
                               "a\n  \nb\n/reset\nc\n/exit\nd\n");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.out, "one\ntwo\nThe conversation is forgotten.\nthree\n");
  const auto requests = server.requests();
  ASSERT_EQ(requests.size(), 4u);
  EXPECT_NE(
      requests[2].find(R"([{"role":"user","content":"a"},{"role":"assistant",)"
                       R"("content":"one"},{"role":"user","content":"b"}])"),
      std::string::npos);
  EXPECT_NE(requests[3].find(R"("messages":[{"role":"user","content":"c"}])"),
            std::string::npos);
}

TEST(Chat, ServerErrorsAreShownAndForgotten) {
  ScriptedServer server(
      {kModels, JsonReply(429, R"({"error":{"message":"the queue is full"}})"),
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
  EXPECT_NE(server.requests()[4].find(
                R"("messages":[{"role":"user","content":"d"}])"),
            std::string::npos);
}

TEST(Chat, CtrlCStopsTheAnswerAndClosesTheConnection) {
  ScriptedReply endless = EventReply({Delta("so far")});
  endless.pieces.pop_back();  // no end
  endless.hang = true;
  ScriptedServer server({kModels, endless});
  const Outcome outcome =
      Chat({"--url", server.url(), "--model", "m", "Hi"}, "",
           [](const std::string& out) { return out == "so far"; });
  EXPECT_EQ(outcome.code, 1);
  EXPECT_EQ(outcome.out, "so far\n");
  EXPECT_EQ(outcome.err, "(stopped)\n");
}

TEST(Chat, AnswersDoNotDriveTheScreen) {
  ScriptedServer server(
      {kModels, EventReply({Delta("a\\u001b[2Jb\\tc\\u009bd"), "[DONE]"})});
  EXPECT_EQ(Chat({"--url", server.url(), "--model", "m", "Hi"}, "", {},
                 /*to_screen=*/true)
                .out,
            "a[2Jb\tcd\n");
}

TEST(Chat, NamesAndErrorsDoNotDriveTheScreen) {
  const ScriptedReply models = JsonReply(
      200, R"({"data":[{"id":"m\u001b]0;x\u0007\u009b2J",)"
           R"("default_sampling_params":{"top_p":0.5,"x\u001b":1}}]})");
  ScriptedServer server(
      {models, models,
       JsonReply(400, R"({"error":{"message":"no\u001b[2J room"}})"),
       JsonReply(500, "\x1b[2J broken"), models});
  const Outcome outcome =
      Chat({"--url", server.url()}, "/model\na\nb\n/model \x1b[2Jn\n", {},
           /*to_screen=*/true, false, /*interactive=*/true);
  EXPECT_NE(outcome.out.find("Talking with m]0;x2J (top_p 0.5, x 1)."),
            std::string::npos)
      << outcome.out;
  EXPECT_NE(outcome.out.find("* m]0;x2J\n"), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.err.find("no[2J room\n"), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find("[2J broken\n"), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find("has no model '[2Jn'; it has m]0;x2J"),
            std::string::npos)
      << outcome.err;
  EXPECT_EQ((outcome.out + outcome.err).find('\x1b'), std::string::npos);
}

TEST(Chat, MarkdownIsShownWhereStylesAre) {
  const auto out = [](bool styled) {
    ScriptedServer server(
        {kModels, EventReply({Delta("a **b"), Delta("** c"), "[DONE]"})});
    return Chat({"--url", server.url(), "Hi"}, "", {}, styled, styled).out;
  };
  EXPECT_EQ(out(true), "a \x1b[0m\x1b[1mb\x1b[0m c\n");
  EXPECT_EQ(out(false), "a **b** c\n");
}

TEST(Chat, NobodyListensIsASentence) {
  std::string url;
  { url = ScriptedServer({}).url(); }
  const Outcome outcome = Chat({"--url", url, "Hi"});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_NE(outcome.err.find("no server answers at"), std::string::npos);
}

TEST(Chat, TheBaseUrlOfOtherClientsIsTaken) {
  ScriptedServer server({kModels, EventReply({Delta("x"), "[DONE]"})});
  EXPECT_EQ(Chat({"--url", server.url() + "/v1/", "-p", "Hi", "there"}).code,
            0);
  EXPECT_TRUE(server.requests()[0].starts_with("GET /v1/models "));
  EXPECT_TRUE(server.requests()[1].starts_with("POST /v1/chat/completions "));
  EXPECT_NE(server.requests()[1].find(R"("content":"Hi there")"),
            std::string::npos);
}

TEST(Chat, APortIsAServerOfThisMachine) {
  const std::vector<std::string> args = {"--port", "9000"};
  EXPECT_EQ(ParseChatOptions(args)->url, "http://127.0.0.1:9000");
  EXPECT_EQ(Chat({"--port", "9", "--url", "http://x"}).code, 2);
  EXPECT_EQ(Chat({"--port", "99999"}).code, 2);
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
                                             {"--top-p", "0"},
                                             {"--url", "https://x y"},
                                             {"--api-key", "a\nb"}}) {
    const Outcome outcome = Chat(args);
    EXPECT_EQ(outcome.code, 2) << args[0];
    EXPECT_TRUE(outcome.err.starts_with("millrace chat: ")) << outcome.err;
  }
}

TEST(Chat, HelpNamesEveryFlag) {
  const Outcome outcome = Chat({"--help"});
  EXPECT_EQ(outcome.code, 0);
  for (const char* flag :
       {"--url", "--model", "--system", "--max-tokens", "--temperature",
        "--top-p", "--api-key", "examples:\n  millrace chat"}) {
    EXPECT_NE(outcome.out.find(flag), std::string::npos) << flag;
  }
}

TEST(Chat, WordsAfterTwoDashesAreThePrompt) {
  const std::vector<std::string> args = {"--", "--model", "x"};
  EXPECT_EQ(ParseChatOptions(args)->prompt, "--model x");
}

}  // namespace
}  // namespace millrace::server
