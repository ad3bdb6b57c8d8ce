#include "server/lifecycle/manager.h"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <optional>
#include <thread>

#include "server/lifecycle/language_model.h"
#include "tests/support/graph_servable.h"
#include "tests/support/test_graphs.h"

namespace millrace::server {
namespace {

std::chrono::steady_clock::time_point In(int ms) {
  return std::chrono::steady_clock::now() + std::chrono::milliseconds(ms);
}

std::shared_ptr<Servable> Named(const std::string& id) {
  return std::make_shared<LanguageModel>(
      ModelFacts{.id = id, .aliases = {"also-" + id}}, TextFacts{}, nullptr,
      nullptr);
}

TEST(Manager, LendsByIdAndAlias) {
  Manager manager;
  manager.Add(Named("a"));
  manager.SetState(ServerState::kReady);
  EXPECT_EQ((*manager.Borrow("a"))->id(), "a");
  EXPECT_EQ((*manager.Borrow("also-a"))->id(), "a");
  const Status missing = manager.Borrow("b").status();
  EXPECT_EQ(missing.code(), StatusCode::kNotFound);
  EXPECT_EQ(missing.reason(), "model_not_found");
  EXPECT_EQ(missing.field(), "model");
}

TEST(Manager, LendsTheVersionNamed) {
  Manager manager;
  manager.Add(Named("a"));
  manager.SetState(ServerState::kReady);
  EXPECT_TRUE(manager.Borrow("a", "1").ok());
  const Status missing = manager.Borrow("a", "2").status();
  EXPECT_EQ(missing.code(), StatusCode::kNotFound);
  EXPECT_EQ(missing.field(), "model_version");
}

TEST(Manager, SaysWhichKindAModelIs) {
  const auto graph = support::GraphServable("g", support::SumGraph(), nullptr);
  EXPECT_TRUE(graph->ForTensors().ok());
  EXPECT_EQ(graph->ForText().status().reason(), "wrong_model_kind");
  EXPECT_EQ(Named("a")->ForTensors().status().code(),
            StatusCode::kInvalidArgument);
}

TEST(Manager, DrainDrainsGraphs) {
  Manager manager;
  const auto graph = support::GraphServable("g", support::SumGraph(), nullptr);
  manager.Add(graph);
  manager.SetState(ServerState::kReady);
  EXPECT_TRUE(manager.Drain(In(20'000)));
  EXPECT_EQ(graph->batcher().Reserve().status().code(),
            StatusCode::kUnavailable);
}

TEST(Manager, LendsNothingWhileLoading) {
  Manager manager;
  manager.Add(Named("a"));
  EXPECT_EQ(manager.Borrow("a").status().code(), StatusCode::kUnavailable);
  EXPECT_EQ(manager.List().size(), 1u);
}

TEST(Manager, DrainWaitsForHandlesAndRefusesNewOnes) {
  Manager manager;
  manager.Add(Named("a"));
  manager.SetState(ServerState::kReady);
  std::optional<ModelHandle> held(*manager.Borrow("a"));
  EXPECT_FALSE(manager.Drain(In(1)));
  EXPECT_EQ(manager.state(), ServerState::kDraining);
  EXPECT_EQ(manager.Borrow("a").status().reason(), "draining");
  std::thread releaser([&] { held.reset(); });
  EXPECT_TRUE(manager.Drain(In(20'000)));
  releaser.join();
}

TEST(Manager, HandleOutlivesTheTable) {
  std::optional<ModelHandle> held;
  std::weak_ptr<Servable> watched;
  {
    Manager manager;
    auto servable = Named("a");
    watched = servable;
    manager.Add(std::move(servable));
    manager.SetState(ServerState::kReady);
    held.emplace(*manager.Borrow("a"));
  }
  EXPECT_EQ((*held)->id(), "a");
  held.reset();
  EXPECT_TRUE(watched.expired());
}

}  // namespace
}  // namespace millrace::server
