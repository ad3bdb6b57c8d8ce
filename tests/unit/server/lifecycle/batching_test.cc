#include "server/lifecycle/batching.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>

namespace millrace::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

using models::graph::BatchAxis;

const BatchAxis kJoinable = {
    .batchable = true, .min_rows = 0, .max_rows = 1 << 20};

std::string Refusal(const config::GraphSettings& settings,
                    const BatchAxis& axis) {
  const auto options = BatchingOf(settings, axis);
  EXPECT_EQ(options.status().code(), StatusCode::kInvalidArgument);
  return std::string(options.status().message());
}

TEST(Batching, SizeIsChosenWhereTheGraphAllowsIt) {
  EXPECT_EQ(BatchingOf({}, kJoinable)->max_batch_size, 32);
  EXPECT_EQ(BatchingOf({}, {.batchable = true, .max_rows = 8})->max_batch_size,
            8);
  EXPECT_EQ(BatchingOf({}, {.reason = "it has a fixed size"})->max_batch_size,
            1);
  EXPECT_FALSE(BatchingOf({}, kJoinable)->refuse_larger);
}

TEST(Batching, GraphsThatCannotBeJoinedAreServedOneByOne) {
  config::GraphSettings settings;
  settings.max_batch_size = 8;
  settings.preferred_batch_size = {"4"};
  const auto options = BatchingOf(settings, {.reason = "rows meet"});
  ASSERT_TRUE(options.ok());
  EXPECT_EQ(options->max_batch_size, 1);
  EXPECT_FALSE(options->refuse_larger);
}

TEST(Batching, SettingsReachTheQueue) {
  config::GraphSettings settings;
  settings.max_batch_size = 8;
  settings.max_queue_delay_us = 500;
  settings.preferred_batch_size = {"8", "4"};
  settings.priority_levels = 4;
  settings.queue_timeout_us = 2000;
  settings.queue_timeout_action = "delay";
  settings.allow_timeout_override = true;
  const auto options = BatchingOf(settings, kJoinable);
  ASSERT_TRUE(options.ok());
  EXPECT_EQ(options->max_batch_size, 8);
  EXPECT_TRUE(options->refuse_larger);
  EXPECT_EQ(options->max_queue_delay, std::chrono::microseconds(500));
  EXPECT_THAT(options->preferred_batch_sizes, ElementsAre(4, 8));
  EXPECT_FALSE(options->preserve_ordering);
  EXPECT_EQ(options->priority_levels, 4);
  EXPECT_EQ(options->default_priority_level, 2);
  EXPECT_EQ(options->default_queue_policy.default_timeout,
            std::chrono::milliseconds(2));
  EXPECT_EQ(options->default_queue_policy.timeout_action,
            scheduler::TimeoutAction::kDelay);
  EXPECT_TRUE(options->default_queue_policy.allow_timeout_override);
}

TEST(Batching, LevelsHaveTheirOwnPolicies) {
  config::GraphSettings settings;
  settings.priority_levels = 2;
  settings.queue_timeout_us = 2000;
  settings.priority_queue_policy[2] = {.timeout_us = 30,
                                       .timeout_action = "delay",
                                       .allow_timeout_override = true,
                                       .max_queue_size = 5};
  const auto options = BatchingOf(settings, kJoinable);
  ASSERT_TRUE(options.ok());
  EXPECT_EQ(options->PolicyOf(1).default_timeout, std::chrono::milliseconds(2));
  const scheduler::QueuePolicy& second = options->PolicyOf(2);
  EXPECT_EQ(second.default_timeout, std::chrono::microseconds(30));
  EXPECT_EQ(second.timeout_action, scheduler::TimeoutAction::kDelay);
  EXPECT_TRUE(second.allow_timeout_override);
  EXPECT_EQ(second.max_queue_size, 5);
  settings.priority_queue_policy[3] = {};
  EXPECT_THAT(Refusal(settings, kJoinable), HasSubstr("has level 3"));
}

TEST(Batching, OrderIsPreservedWhereNoRequestWaitsBehindLaterOnes) {
  config::GraphSettings settings;
  settings.preserve_ordering = true;
  const auto is_taken = [&] {
    const auto options = BatchingOf(settings, kJoinable);
    EXPECT_TRUE(options.ok() || options.status().field() == "preserve_ordering")
        << options.status().ToString();
    EXPECT_TRUE(!options.ok() || options->preserve_ordering);
    return options.ok();
  };
  EXPECT_TRUE(is_taken());
  settings.priority_levels = 1;
  settings.queue_timeout_us = 2000;
  EXPECT_TRUE(is_taken());
  settings.priority_levels = 2;
  EXPECT_FALSE(is_taken());
  EXPECT_THAT(Refusal(settings, kJoinable), HasSubstr("priority_levels is 2"));
  settings.priority_levels = 1;
  settings.queue_timeout_action = "delay";
  EXPECT_FALSE(is_taken());
  EXPECT_THAT(Refusal(settings, kJoinable), HasSubstr("timeout_action is"));
  // Without a timeout nothing is delayed, unless requests may have one.
  settings.queue_timeout_us = 0;
  EXPECT_TRUE(is_taken());
  settings.allow_timeout_override = true;
  EXPECT_FALSE(is_taken());
  settings.queue_timeout_action = "reject";
  EXPECT_TRUE(is_taken());
  settings.priority_queue_policy[1] = {.timeout_us = 30,
                                       .timeout_action = "delay"};
  EXPECT_FALSE(is_taken());
}

TEST(Batching, ContradictionsNameTheirSetting) {
  config::GraphSettings settings;
  settings.max_batch_size = 8;
  EXPECT_THAT(Refusal(settings, {.batchable = true, .max_rows = 4}),
              HasSubstr("takes at most 4 rows"));
  settings.preferred_batch_size = {"16"};
  EXPECT_THAT(Refusal(settings, kJoinable),
              HasSubstr("has 16 but max_batch_size is 8"));
  settings.preferred_batch_size = {"4x"};
  EXPECT_THAT(Refusal(settings, kJoinable), HasSubstr("has '4x'"));
  settings.preferred_batch_size = {};
  settings.default_priority_level = 3;
  EXPECT_THAT(
      Refusal(settings, kJoinable),
      HasSubstr("default_priority_level is 3 but priority_levels is 0"));
}

TEST(Batching, InstancesDivideTheTeam) {
  EXPECT_THAT(InstanceTeams({{0, 2, 4, 6, 8}}, 2),
              ElementsAre(ElementsAre(0, 2), ElementsAre(4, 6, 8)));
  EXPECT_THAT(InstanceTeams({{3, 5}}, 2),
              ElementsAre(ElementsAre(3), ElementsAre(5)));
  EXPECT_THAT(InstanceTeams({{3, 5}}, 3),
              ElementsAre(ElementsAre(3), ElementsAre(5), ElementsAre(3)));
  EXPECT_THAT(InstanceTeams({}, 2),
              ElementsAre(testing::IsEmpty(), testing::IsEmpty()));
}

TEST(Batching, AnInstanceStaysOnItsNode) {
  const std::vector<config::CpuSet> two = {{0, 2, 4}, {1, 3, 5}};
  EXPECT_THAT(InstanceTeams(two, 1),
              ElementsAre(ElementsAre(0, 2, 4, 1, 3, 5)));
  EXPECT_THAT(InstanceTeams(two, 2),
              ElementsAre(ElementsAre(0, 2, 4), ElementsAre(1, 3, 5)));
  EXPECT_THAT(
      InstanceTeams(two, 3),
      ElementsAre(ElementsAre(0), ElementsAre(2, 4), ElementsAre(1, 3, 5)));
  EXPECT_THAT(InstanceTeams(two, 6), testing::Each(testing::SizeIs(1)));
  // Where a node has more, it has more instances.
  EXPECT_THAT(
      InstanceTeams({{0, 1, 2, 3}, {4, 5}}, 3),
      ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3), ElementsAre(4, 5)));
  EXPECT_THAT(InstanceTeams({{0}, {1}, {2}, {3}}, 2),
              ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3)));
}

}  // namespace
}  // namespace millrace::server
