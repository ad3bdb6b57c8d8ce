#include "scheduler/request.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace millrace::scheduler {
namespace {

TEST(Request, TokenIdOutsideTheVocabularyIsNamedWithItsPlace) {
  const std::vector<int32_t> ids = {0, 9, 10};
  EXPECT_TRUE(CheckTokenIds(ids, 11, "prompt", "m").ok());
  const Status status = CheckTokenIds(ids, 10, "prompt", "m");
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status.field(), "prompt");
  EXPECT_EQ(status.message(),
            "prompt[2] is token 10 but model 'm' has tokens 0 to 9");
  EXPECT_FALSE(CheckTokenIds(std::vector{-1}, 10, "prompt", "m").ok());
}

TEST(Request, PromptThatFillsTheContextIsToldWithItsField) {
  const auto check = [](int64_t num_tokens, bool at_least) {
    return CheckContext(
        {.num_tokens = num_tokens, .at_least = at_least, .field = "messages"},
        1, 64, "m");
  };
  EXPECT_TRUE(check(63, false).ok());
  EXPECT_EQ(check(64, false).field(), "messages");
  EXPECT_EQ(check(64, false).reason(), "context_length_exceeded");
  EXPECT_NE(check(64, false).message().find("messages has 64 tokens but"),
            std::string_view::npos);
  EXPECT_NE(check(64, true).message().find("at least 64"),
            std::string_view::npos);
}

TEST(Request, MaxTokensBeyondTheContextNamesWhatIsLeft) {
  EXPECT_TRUE(CheckContext({.num_tokens = 60}, 4, 64, "m").ok());
  const Status status = CheckContext({.num_tokens = 60}, 5, 64, "m");
  EXPECT_EQ(status.field(), "max_tokens");
  EXPECT_EQ(status.reason(), "context_length_exceeded");
  EXPECT_NE(status.message().find("ask for at most 4"), std::string_view::npos);
}

TEST(Request, EveryListOfTokenIdsOfATaskIsChecked) {
  models::RunnerInfo info;
  info.vocab_size = 10;
  info.max_context = 64;
  GenerateTask task;
  task.prompt = {1};
  task.max_tokens = 1;
  ASSERT_TRUE(CheckTask(task, info, "m").ok());
  const auto field = [&](auto set) {
    GenerateTask wrong = task;
    set(wrong.sampling);
    return std::string(CheckTask(wrong, info, "m").field());
  };
  using Params = models::SamplingParams;
  EXPECT_EQ(field([](Params& p) { p.stop_ids = {10}; }), "stop_token_ids");
  EXPECT_EQ(field([](Params& p) { p.logit_bias = {{-1, 0}}; }), "logit_bias");
  EXPECT_EQ(field([](Params& p) {
              p.allowed_token_ids = {3, 10};
            }),
            "allowed_token_ids");
  EXPECT_EQ(field([](Params& p) {
              p.bad_words = {{3}, {4, 10}};
            }),
            "bad_words");
}

}  // namespace
}  // namespace millrace::scheduler
