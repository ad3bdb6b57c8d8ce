// A request with a constraint waits for its grammar before the engine has it.
#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "handlers/generate.h"
#include "tests/unit/handlers/fakes.h"

namespace millrace::handlers {
namespace {

using models::CompiledGrammar;
using models::ConstraintKind;
using models::OutputConstraint;

class NoGrammar final : public models::TokenGrammar {
 public:
  std::unique_ptr<models::GrammarMatcher> NewMatcher() const override {
    return nullptr;
  }
  int64_t memory_bytes() const override { return 0; }
};

// Keeps the question until the test answers it.
class FakeCompiler final : public models::GrammarCompiler {
 public:
  void Compile(const OutputConstraint& constraint, models::CompileWait wait,
               Done done) override {
    wait_ = std::move(wait);
    asked_.set_value({constraint, std::move(done)});
  }
  // Of the question that Next gave.
  const models::CompileWait& wait() const { return wait_; }
  std::pair<OutputConstraint, Done> Next() {
    auto asked = asked_.get_future().get();
    asked_ = {};
    return asked;
  }

 private:
  models::CompileWait wait_;
  std::promise<std::pair<OutputConstraint, Done>> asked_;
};

GenerateOptions WithRegex() {
  GenerateOptions options;
  options.constraint = {
      .kind = ConstraintKind::kRegex, .text = "a+", .field = "guided_regex"};
  return options;
}

// The handler is made again with the compiler among its parts.
struct GrammarWorld : World {
  GrammarWorld() {
    parts.grammars = &compiler;
    parts.call_grammars = &call_compiler;
    handler = MakeGenerateHandler(parts);
  }
  FakeCompiler compiler;
  FakeCompiler call_compiler;
};

TEST(GenerateConstraint, TheGrammarReachesTheSampler) {
  GrammarWorld world;
  auto sink = world.Start(TextRequest("Hi", WithRegex()));
  auto [constraint, done] = world.compiler.Next();
  EXPECT_EQ(constraint, WithRegex().constraint);
  EXPECT_EQ(world.engine.num_submitted(), 0u);
  const auto grammar = std::make_shared<const NoGrammar>();
  done(CompiledGrammar(grammar));
  auto engine = world.engine.Next();
  EXPECT_EQ(engine->task.sampling.grammar, grammar);
  engine->End(scheduler::FinishReason::kStop);
  EXPECT_TRUE(sink->AwaitEnd().status.ok());
}

TEST(GenerateConstraint, ARefusedGrammarEndsTheRequest) {
  GrammarWorld world;
  auto sink = world.Start(TextRequest("Hi", WithRegex()));
  auto [constraint, done] = world.compiler.Next();
  done(InvalidArgument("no such thing").At("guided_regex"));
  const GenerateEnd end = sink->AwaitEnd();
  EXPECT_EQ(end.status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(end.status.field(), "guided_regex");
  EXPECT_FALSE(sink->accepted());
  EXPECT_EQ(sink->places_at_end(), 0);
  EXPECT_EQ(world.engine.num_submitted(), 0u);
}

TEST(GenerateConstraint, AClientThatLeavesMeanwhileIsNotSubmitted) {
  GrammarWorld world;
  std::stop_source client;
  auto sink = world.Start(TextRequest("Hi", WithRegex()), client.get_token());
  auto [constraint, done] = world.compiler.Next();
  client.request_stop();
  done(CompiledGrammar(std::make_shared<const NoGrammar>()));
  EXPECT_EQ(sink->AwaitEnd().status.code(), StatusCode::kCancelled);
  EXPECT_EQ(world.engine.num_submitted(), 0u);
}

TEST(GenerateConstraint, TheWaitHasTheRequestsDeadlineAndItsClient) {
  GrammarWorld world;
  std::stop_source client;
  GenerateRequest request = TextRequest("Hi", WithRegex());
  request.deadline = Clock::Real().Now() + std::chrono::hours(1);
  const Clock::Time deadline = request.deadline;
  auto sink = world.Start(std::move(request), client.get_token());
  auto [constraint, done] = world.compiler.Next();
  EXPECT_EQ(world.compiler.wait().deadline, deadline);
  EXPECT_FALSE(world.compiler.wait().stop.stop_requested());
  client.request_stop();
  EXPECT_TRUE(world.compiler.wait().stop.stop_requested());
  done(Cancelled("the client is gone"));
  EXPECT_EQ(sink->AwaitEnd().status.code(), StatusCode::kCancelled);
  EXPECT_EQ(sink->places_at_end(), 0);
}

TEST(GenerateConstraint, WithoutACompilerItIsRefusedAtItsField) {
  World world;
  auto sink = world.Start(TextRequest("Hi", WithRegex()));
  const GenerateEnd end = sink->AwaitEnd();
  EXPECT_EQ(end.status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(end.status.field(), "guided_regex");
  EXPECT_EQ(end.status.reason(), "unsupported_parameter");
}

TEST(GenerateConstraint, AllCompletionsOfARequestShareIt) {
  GrammarWorld world;
  std::vector<std::shared_ptr<GenerateSink>> sinks;
  std::vector<std::shared_ptr<RecordingSink>> recorded;
  for (int i = 0; i < 2; ++i) {
    recorded.push_back(std::make_shared<RecordingSink>(&world.engine));
    sinks.push_back(recorded.back());
  }
  world.handler->StartSiblings(TextRequest("Hi", WithRegex()), sinks, {});
  auto [constraint, done] = world.compiler.Next();
  const auto grammar = std::make_shared<const NoGrammar>();
  done(CompiledGrammar(grammar));
  for (int i = 0; i < 2; ++i) {
    auto engine = world.engine.Next();
    EXPECT_EQ(engine->task.sampling.grammar, grammar);
    engine->End(scheduler::FinishReason::kStop);
  }
  for (const auto& sink : recorded) sink->AwaitEnd();
}

// "Hi" to a model with one tool, of which a call must come.
GenerateRequest CallRequest(GenerateOptions options = {}) {
  GenerateRequest request = ChatRequest("Hi", std::move(options));
  auto& chat = std::get<ChatPrompt>(request.prompt);
  chat.tools = std::make_shared<const nlohmann::ordered_json>(
      nlohmann::ordered_json::parse(R"([{"type": "function", "function": {
        "name": "f", "parameters": {"type": "object", "not": {}}}}])"));
  chat.tool_choice = {.mode = ToolChoice::Mode::kRequired, .names = {"f"}};
  return request;
}

// A template that says it writes tools, and a short beginning of a call.
struct CallWorld : GrammarWorld {
  CallWorld() {
    parts.formats = *ChooseFormats("mistral", "none", "tools");
    handler = MakeGenerateHandler(parts);
  }
};

TEST(GenerateConstraint, ACallThatMustComeIsHeldToItsSchema) {
  CallWorld world;
  auto sink = world.Start(CallRequest(WithRegex()));
  auto [constraint, done] = world.call_compiler.Next();
  EXPECT_EQ(constraint.kind, ConstraintKind::kStructuralTag);
  EXPECT_EQ(constraint.field, "tools");
  const auto grammar = std::make_shared<const NoGrammar>();
  done(CompiledGrammar(grammar));
  auto engine = world.engine.Next();
  EXPECT_EQ(engine->task.sampling.grammar, grammar);
  engine->Say("{}");
  engine->End(scheduler::FinishReason::kStop);
  EXPECT_TRUE(sink->AwaitEnd().status.ok());
}

TEST(GenerateConstraint, WithoutTheLibraryACallIsWrittenFreely) {
  CallWorld world;
  auto sink = world.Start(CallRequest());
  auto [constraint, done] = world.call_compiler.Next();
  done(Unimplemented("no library").At(constraint.field));
  auto engine = world.engine.Next();
  EXPECT_EQ(engine->task.sampling.grammar, nullptr);
  engine->Say("{}");
  engine->End(scheduler::FinishReason::kStop);
  EXPECT_TRUE(sink->AwaitEnd().status.ok());
}

TEST(GenerateConstraint, ARefusedSchemaOfAToolIsNamed) {
  CallWorld world;
  auto sink = world.Start(CallRequest());
  auto [constraint, done] = world.call_compiler.Next();
  done(InvalidArgument("no").At("tools"));
  const GenerateEnd end = sink->AwaitEnd();
  EXPECT_EQ(end.status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(end.status.field(), "tools[0].function.parameters");
  EXPECT_EQ(world.engine.num_submitted(), 0u);
}

// Any text, in which calls are held to their schemas.
GenerateRequest MayCallRequest(GenerateOptions options = {}) {
  GenerateRequest request = CallRequest(std::move(options));
  std::get<ChatPrompt>(request.prompt).tool_choice.mode =
      ToolChoice::Mode::kAuto;
  return request;
}

TEST(GenerateConstraint, ACallThatMayComeIsHeldToItsSchema) {
  CallWorld world;
  auto sink = world.Start(MayCallRequest());
  auto [constraint, done] = world.call_compiler.Next();
  EXPECT_EQ(constraint.kind, ConstraintKind::kStructuralTag);
  const auto grammar = std::make_shared<const NoGrammar>();
  done(CompiledGrammar(grammar));
  auto engine = world.engine.Next();
  EXPECT_EQ(engine->task.sampling.grammar, grammar);
  engine->Say("Hi");
  engine->End(scheduler::FinishReason::kStop);
  EXPECT_TRUE(sink->AwaitEnd().status.ok());
}

TEST(GenerateConstraint, WhereItIsRefusedACallThatMayComeRunsFreely) {
  CallWorld world;
  auto sink = world.Start(MayCallRequest());
  auto [constraint, done] = world.call_compiler.Next();
  done(InvalidArgument("no").At("tools"));
  auto engine = world.engine.Next();
  EXPECT_EQ(engine->task.sampling.grammar, nullptr);
  engine->Say("Hi");
  engine->End(scheduler::FinishReason::kStop);
  EXPECT_TRUE(sink->AwaitEnd().status.ok());
}

GenerateOptions WithAllowedTokens(std::string_view bytes = "{}") {
  GenerateOptions options;
  for (const char byte : bytes) {
    options.allowed_token_ids.push_back(static_cast<uint8_t>(byte));
  }
  return options;
}

void ExpectAllowedTokensRefused(World& world, RecordingSink& sink) {
  while (!sink.ended() && world.engine.num_submitted() == 0) {
    std::this_thread::yield();
  }
  if (!sink.ended()) world.engine.Next()->End(scheduler::FinishReason::kStop);
  const GenerateEnd end = sink.AwaitEnd();
  EXPECT_EQ(end.status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(end.status.field(), "allowed_token_ids");
  EXPECT_TRUE(end.status.reason().empty()) << end.status.reason();
}

TEST(GenerateConstraint, AllowedTokensBesideACallThatMustComeAreRefused) {
  CallWorld world;
  GenerateRequest may_call = MayCallRequest(WithAllowedTokens());
  std::get<ChatPrompt>(may_call.prompt).tools =
      std::make_shared<const nlohmann::ordered_json>(
          nlohmann::ordered_json::parse(
              R"([{"type": "function",
                   "function": {"name": "f", "strict": true}}])"));
  for (GenerateRequest& request :
       std::vector{CallRequest(WithAllowedTokens()), std::move(may_call)}) {
    auto sink = world.Start(std::move(request));
    auto [constraint, done] = world.call_compiler.Next();
    done(CompiledGrammar(std::make_shared<const NoGrammar>()));
    ExpectAllowedTokensRefused(world, *sink);
  }
  EXPECT_EQ(world.engine.num_submitted(), 0u);
  // Without the library nothing holds the call.
  auto sink = world.Start(CallRequest(WithAllowedTokens()));
  auto [constraint, done] = world.call_compiler.Next();
  done(Unimplemented("no library").At(constraint.field));
  auto engine = world.engine.Next();
  engine->Say("{}");
  engine->End(scheduler::FinishReason::kStop);
  EXPECT_TRUE(sink->AwaitEnd().status.ok());
}

TEST(GenerateConstraint, BesideAllowedTokensACallThatMayComeRunsFreely) {
  CallWorld world;
  auto sink = world.Start(MayCallRequest(WithAllowedTokens("Hi")));
  auto engine = world.engine.Next();
  EXPECT_EQ(engine->task.sampling.grammar, nullptr);
  EXPECT_EQ(engine->task.sampling.allowed_token_ids.size(), 2u);
  engine->Say("Hi");
  engine->End(scheduler::FinishReason::kStop);
  EXPECT_TRUE(sink->AwaitEnd().status.ok());
}

TEST(GenerateConstraint, AllowedTokensHaveTheTagThatEndsReasoning) {
  GrammarWorld world;
  world.parts.formats = *ChooseFormats("none", "deepseek_r1", "");
  world.handler = MakeGenerateHandler(world.parts);
  const auto ask = [&](GenerateOptions options, const char* kwargs) {
    GenerateRequest request = ChatRequest("Hi", std::move(options));
    std::get<ChatPrompt>(request.prompt).template_kwargs =
        std::make_shared<const nlohmann::ordered_json>(
            nlohmann::ordered_json::parse(kwargs));
    return world.Start(std::move(request));
  };
  const char* const kBudget = R"({"thinking_budget": 2})";
  ExpectAllowedTokensRefused(world,
                             *ask(WithAllowedTokens("</think"), kBudget));
  EXPECT_EQ(world.engine.num_submitted(), 0u);
  for (const auto& [bytes, kwargs] :
       {std::pair("ab</think>", kBudget), std::pair("ab", "{}"),
        std::pair("", kBudget)}) {
    auto sink = ask(WithAllowedTokens(bytes), kwargs);
    auto engine = world.engine.Next();
    engine->Say("ab");
    engine->End(scheduler::FinishReason::kStop);
    EXPECT_TRUE(sink->AwaitEnd().status.ok());
  }
}

TEST(GenerateConstraint, ContentHasItsOwnConstraintWhereACallMayCome) {
  CallWorld world;
  auto sink = world.Start(MayCallRequest(WithRegex()));
  auto [constraint, done] = world.compiler.Next();
  EXPECT_EQ(constraint, WithRegex().constraint);
  done(InvalidArgument("no").At("guided_regex"));
  EXPECT_FALSE(sink->AwaitEnd().status.ok());
}

}  // namespace
}  // namespace millrace::handlers
