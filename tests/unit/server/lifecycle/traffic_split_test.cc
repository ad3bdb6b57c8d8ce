#include "server/lifecycle/traffic_split.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "config/base/metrics.h"

namespace millrace::server {
namespace {

class Fields final : public RequestFields {
 public:
  using All = std::map<std::string, std::string, std::less<>>;
  Fields() = default;
  explicit Fields(All all) : all_(std::move(all)) {}
  Fields(const Fields&) = delete;
  std::string_view Header(std::string_view name) const override {
    const auto at = all_.find(name);
    return at == all_.end() ? std::string_view() : at->second;
  }

 private:
  All all_;
};

const std::vector<std::string> kReady = {"1", "2", "3"};

config::TrafficSettings Weights(int64_t one, int64_t two, int64_t three) {
  return {.weights = {{"1", one}, {"2", two}, {"3", three}}};
}

TEST(TrafficSplit, AnyRunOfRequestsIsNearTheWeights) {
  TrafficSplit split("m", Weights(90, 10, 0), nullptr);
  for (int run = 0; run < 50; ++run) {
    int second = 0;
    for (int i = 0; i < 100; ++i) {
      const std::string version = split.Choose(Fields(), kReady);
      EXPECT_NE(version, "3");
      second += version == "2";
    }
    EXPECT_NEAR(second, 10, 3);
  }
}

TEST(TrafficSplit, AVersionThatIsNotReadyWeighsNothing) {
  TrafficSplit split("m", Weights(1, 99, 0), nullptr);
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(split.Choose(Fields(), std::vector<std::string>{"1", "3"}), "1");
    EXPECT_EQ(split.Choose(Fields(), std::vector<std::string>{"3"}), "3");
  }
}

TEST(TrafficSplit, AUserKeepsTheVersion) {
  config::TrafficSettings settings = Weights(70, 20, 10);
  settings.pin_by = "x-user-id";
  settings.seed = 5;
  TrafficSplit split("m", settings, nullptr);
  TrafficSplit replica("m", settings, nullptr);
  settings.seed = 6;
  TrafficSplit seeded("m", settings, nullptr);
  std::map<std::string, int> counts;
  int moved = 0;
  int num_left = 0;
  constexpr int kUsers = 10'000;
  for (int user = 0; user < kUsers; ++user) {
    const Fields fields(Fields::All{{"x-user-id", "u" + std::to_string(user)}});
    const std::string version = split.Choose(fields, kReady);
    EXPECT_EQ(split.Choose(fields, kReady), version);
    EXPECT_EQ(replica.Choose(fields, kReady), version);
    moved += seeded.Choose(fields, kReady) != version;
    ++counts[version];
    // Without version 2, only its users go elsewhere.
    const std::string left =
        split.Choose(fields, std::vector<std::string>{"1", "3"});
    if (version == "2") {
      num_left += left == "1";
    } else {
      EXPECT_EQ(left, version);
    }
  }
  // Within five standard deviations of a binomial count.
  const auto near = [](int count, double of, double share) {
    EXPECT_NEAR(count, of * share, 5 * std::sqrt(of * share * (1 - share)));
  };
  near(counts["1"], kUsers, 0.7);
  near(counts["2"], kUsers, 0.2);
  near(counts["3"], kUsers, 0.1);
  near(moved, kUsers, 1 - 0.49 - 0.04 - 0.01);
  near(num_left, counts["2"], 0.875);  // 70 of 80
}

TEST(TrafficSplit, AVariantGoesBeforeThePin) {
  config::TrafficSettings settings = Weights(1, 0, 0);
  settings.pin_by = "x-user-id";
  settings.variant_header = "x-variant";
  settings.variants = {{"a", "1"}, {"b", "2"}};
  MetricRegistry registry;
  TrafficSplit split("m", settings, &registry);
  EXPECT_EQ(
      split.Choose(Fields(Fields::All{{"x-variant", "b"}, {"x-user-id", "u"}}),
                   kReady),
      "2");
  EXPECT_EQ(
      split.Choose(Fields(Fields::All{{"x-variant", "c"}, {"x-user-id", "u"}}),
                   kReady),
      "1");
  EXPECT_EQ(split.Choose(Fields(Fields::All{{"x-variant", "b"}}),
                         std::vector<std::string>{"1", "3"}),
            "1");
  const std::string text = registry.Text();
  for (const char* line : {R"({chosen_by="variant",model="m",version="2"} 1)",
                           R"({chosen_by="pin",model="m",version="1"} 1)",
                           R"({chosen_by="weight",model="m",version="1"} 1)"}) {
    EXPECT_NE(text.find(line), std::string::npos) << text;
  }
}

TEST(TrafficSplit, WithoutWeightsTheHighestServes) {
  TrafficSplit split("m", {.variant_header = "x-v", .variants = {{"old", "1"}}},
                     nullptr);
  EXPECT_EQ(split.Choose(Fields(), kReady), "3");
  EXPECT_EQ(split.Choose(Fields(Fields::All{{"x-v", "old"}}), kReady), "1");
}

}  // namespace
}  // namespace millrace::server
