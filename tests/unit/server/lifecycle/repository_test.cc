#include "server/lifecycle/repository.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "server/lifecycle/language_model.h"
#include "tests/support/graph_servable.h"
#include "tests/support/test_graphs.h"
#include "tests/unit/server/lifecycle/repository_world.h"

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

TEST(Repository, LendsByIdAndAlias) {
  Repository repository;
  repository.Add(Named("a"));
  repository.SetState(ServerState::kReady);
  EXPECT_EQ((*repository.Borrow("a"))->id(), "a");
  EXPECT_EQ((*repository.Borrow("also-a"))->id(), "a");
  const Status missing = repository.Borrow("b").status();
  EXPECT_EQ(missing.code(), StatusCode::kNotFound);
  EXPECT_EQ(missing.reason(), "model_not_found");
  EXPECT_EQ(missing.field(), "model");
}

TEST(Repository, LendsTheVersionNamed) {
  Repository repository;
  repository.Add(Named("a"));
  repository.SetState(ServerState::kReady);
  EXPECT_TRUE(repository.Borrow("a", "1").ok());
  const Status missing = repository.Borrow("a", "2").status();
  EXPECT_EQ(missing.code(), StatusCode::kNotFound);
  EXPECT_EQ(missing.field(), "model_version");
}

TEST(Repository, SaysWhichKindAModelIs) {
  const auto graph = support::GraphServable("g", support::SumGraph(), nullptr);
  EXPECT_TRUE(graph->ForTensors().ok());
  EXPECT_EQ(graph->ForText().status().reason(), "wrong_model_kind");
  EXPECT_EQ(Named("a")->ForTensors().status().code(),
            StatusCode::kInvalidArgument);
}

TEST(Repository, DrainDrainsGraphs) {
  Repository repository;
  const auto graph = support::GraphServable("g", support::SumGraph(), nullptr);
  repository.Add(graph);
  repository.SetState(ServerState::kReady);
  EXPECT_TRUE(repository.Drain(In(20'000)));
  EXPECT_EQ(graph->batcher().Reserve().status().code(),
            StatusCode::kUnavailable);
}

TEST(Repository, LendsNothingWhileLoading) {
  Repository repository;
  repository.Add(Named("a"));
  EXPECT_EQ(repository.Borrow("a").status().code(), StatusCode::kUnavailable);
  EXPECT_EQ(repository.List().size(), 1u);
  // It may be the name of a model that is loaded later.
  EXPECT_EQ(repository.Find("b").status().reason(), "loading");
}

TEST(Repository, AServerThatDrainsIsNeverReadyAgain) {
  Repository repository;
  repository.SetState(ServerState::kDraining);
  repository.SetState(ServerState::kReady);
  EXPECT_EQ(repository.state(), ServerState::kDraining);
}

TEST(Repository, DrainWaitsForHandlesAndRefusesNewOnes) {
  Repository repository;
  repository.Add(Named("a"));
  repository.SetState(ServerState::kReady);
  std::optional<ModelHandle> held(*repository.Borrow("a"));
  EXPECT_FALSE(repository.Drain(In(1)));
  EXPECT_EQ(repository.state(), ServerState::kDraining);
  EXPECT_EQ(repository.Borrow("a").status().reason(), "draining");
  std::thread releaser([&] { held.reset(); });
  EXPECT_TRUE(repository.Drain(In(20'000)));
  releaser.join();
}

TEST(Repository, HandleOutlivesTheTable) {
  std::optional<ModelHandle> held;
  std::weak_ptr<Servable> watched;
  {
    Repository repository;
    auto servable = Named("a");
    watched = servable;
    repository.Add(std::move(servable));
    repository.SetState(ServerState::kReady);
    held.emplace(*repository.Borrow("a"));
  }
  EXPECT_EQ((*held)->id(), "a");
  held.reset();
  EXPECT_TRUE(watched.expired());
}

// ---- loading and unloading ----

TEST_F(RepositoryLoads, IndexFollowsAVersionFromUnknownToUnloaded) {
  world_.Want({Wanted("1")});
  Start();
  EXPECT_EQ(States(), " UNKNOWN");
  world_.while_loading = [&] { EXPECT_EQ(States(), "1 LOADING"); };
  EXPECT_EQ(repository_->Borrow("m").status().code(), StatusCode::kNotFound);
  ASSERT_TRUE(repository_->Load("m").ok());
  EXPECT_EQ(States(), "1 READY");
  std::optional<ModelHandle> held(*repository_->Borrow("m"));
  ASSERT_TRUE(repository_->Unload("m").ok());
  EXPECT_EQ(States(), "1 UNLOADING");
  EXPECT_EQ(repository_->Borrow("m").status().reason(), "draining");
  held.reset();
  Await([&] { return States() == "1 UNAVAILABLE unloaded"; });
  EXPECT_EQ(repository_->Borrow("m").status().reason(), "model_not_found");
  // As Triton: what is not loaded is unloaded already.
  EXPECT_TRUE(repository_->Unload("m").ok());
  EXPECT_TRUE(repository_->List().empty());
}

TEST_F(RepositoryLoads, AnAliasUnloadsItsModelAndAnUnknownNameNone) {
  VersionPlan plan = Wanted("1");
  plan.settings.served_model_name = {"also-m", std::string(kAnyName)};
  world_.Want({plan});
  Start();
  ASSERT_TRUE(repository_->Load("m").ok());
  EXPECT_TRUE(repository_->Unload("mispelt").ok()) << "as Triton";
  EXPECT_TRUE(repository_->Unload(std::string(kAnyName)).ok());
  EXPECT_EQ(States(), "1 READY");
  EXPECT_TRUE(repository_->Unload("also-m").ok());
  Await([&] { return States() == "1 UNAVAILABLE unloaded"; });
}

TEST_F(RepositoryLoads, NewVersionTakesOverWhileTheOldOneFinishes) {
  world_.Want({Wanted("1")});
  Start();
  ASSERT_TRUE(repository_->Load("m").ok());
  std::optional<ModelHandle> held(*repository_->Borrow("m"));
  world_.Want({Wanted("2")});
  world_.while_loading = [&] {
    EXPECT_EQ((*repository_->Borrow("m"))->version(), "1");
  };
  ASSERT_TRUE(repository_->Load("m").ok());
  EXPECT_EQ((*repository_->Borrow("m"))->version(), "2");
  EXPECT_EQ((*held)->version(), "1") << "its request still runs";
  EXPECT_EQ(States(), "1 UNLOADING, 2 READY");
  held.reset();
  Await([&] { return States() == "1 UNAVAILABLE unloaded, 2 READY"; });
}

TEST_F(RepositoryLoads, ALongRequestOfWhatGaveWayHoldsUpNoLoad) {
  world_.Want({Wanted("1")});
  Start();
  ASSERT_TRUE(repository_->Load("m").ok());
  std::optional<ModelHandle> held(*repository_->Borrow("m"));
  world_.Want({Wanted("2")});
  ASSERT_TRUE(repository_->Load("m").ok());
  world_.Want({Wanted("3")});
  std::promise<Status> loaded;
  auto third = loaded.get_future();
  repository_->RequestLoad("m", "",
                           [&](Status s) { loaded.set_value(std::move(s)); });
  const bool ended =
      third.wait_for(std::chrono::seconds(20)) == std::future_status::ready;
  EXPECT_TRUE(ended) << "it waits for the request of version 1";
  EXPECT_EQ((*held)->version(), "1");
  Await([&] {
    return States() ==
           (ended ? "1 UNLOADING, 2 UNAVAILABLE unloaded, 3 READY" : States());
  });
  held.reset();  // looked for without another operation
  ASSERT_TRUE(third.get().ok());
  Await([&] {
    return States() ==
           "1 UNAVAILABLE unloaded, 2 UNAVAILABLE unloaded, 3 READY";
  });
}

TEST_F(RepositoryLoads, AVersionIsUnloadedOnceAllThatGaveWayHasLeft) {
  world_.Want({Wanted("1", "a")});
  Start();
  ASSERT_TRUE(repository_->Load("m").ok());
  std::optional<ModelHandle> held(*repository_->Borrow("m"));
  world_.Want({Wanted("1", "b")});
  ASSERT_TRUE(repository_->Load("m").ok());
  ASSERT_TRUE(repository_->Unload("m").ok());
  EXPECT_EQ(States(), "1 UNLOADING");
  held.reset();  // the first of the two is the last to leave
  Await([&] { return States() == "1 UNAVAILABLE unloaded"; });
}

TEST_F(RepositoryLoads, AServerThatEndsWaitsForRequestsOfWhatLeft) {
  world_.Want({Wanted("1")});
  Start();
  ASSERT_TRUE(repository_->Load("m").ok());
  std::optional<ModelHandle> held(*repository_->Borrow("m"));
  ASSERT_TRUE(repository_->Unload("m").ok());
  EXPECT_FALSE(repository_->Drain(In(10)));
  held.reset();
  EXPECT_TRUE(repository_->Drain(In(10'000)));
}

TEST_F(RepositoryLoads, ABaseStaysUntilTheRequestsOfItsAdaptersHaveEnded) {
  world_.Want({Wanted("1")});
  Start();
  ASSERT_TRUE(repository_->Load("m").ok());
  const std::weak_ptr<Servable> base = *repository_->Find("m");
  repository_->Add(std::make_shared<LanguageModel>(
      ModelFacts{.id = "sql", .parent = "m"}, TextFacts{}, nullptr, nullptr));
  std::optional<ModelHandle> held(*repository_->Borrow("sql"));
  ASSERT_TRUE(repository_->Unload("m").ok());
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_FALSE(base.expired()) << "the adapter's request runs in its engine";
  held.reset();
  Await([&] { return base.expired(); });
}

TEST_F(RepositoryLoads, ModelsStayWhileTheSourceCannotBeListed) {
  world_.Want({Wanted("1", "a")});
  Start({.poll_interval = std::chrono::milliseconds(1)});
  Await([&] { return States() == "1 READY"; });
  {
    MutexLock lock(world_.mu);
    world_.listing = Unavailable("gone for a moment");
    world_.models.clear();
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  EXPECT_EQ(States(), "1 READY");
  {
    MutexLock lock(world_.mu);
    world_.listing = OkStatus();
  }
  Await([&] { return States() == "1 UNAVAILABLE unloaded"; });
}

TEST_F(RepositoryLoads, WhatThrowsFailsAlone) {
  world_.Want({Wanted("1")});
  world_.throws = true;
  Start();
  EXPECT_EQ(repository_->Load("m").code(), StatusCode::kInternal);
  world_.throws = false;
  EXPECT_TRUE(repository_->Load("m").ok());
}

TEST_F(RepositoryLoads, LabelsMoveWithoutALoad) {
  VersionPlan first = Wanted("1", "a");
  VersionPlan second = Wanted("2", "b");
  first.labels = {"stable"};
  second.labels = {"canary"};
  world_.Want({first, second});
  Start();
  ASSERT_TRUE(repository_->Load("m").ok());
  EXPECT_EQ((*repository_->Borrow("m", "stable"))->version(), "1");
  EXPECT_EQ((*repository_->Borrow("m", "canary"))->version(), "2");
  EXPECT_EQ(repository_->Borrow("m", "beta").status().field(), "model_version");
  first.labels = {};
  second.labels = {"stable"};
  world_.Want({first, second});
  ASSERT_TRUE(repository_->Load("m").ok());
  EXPECT_EQ((*repository_->Borrow("m", "stable"))->version(), "2");
  EXPECT_FALSE(repository_->Borrow("m", "canary").ok());
  EXPECT_EQ(world_.Loads().size(), 2u);
}

TEST_F(RepositoryLoads, InstancesChangeWithoutALoad) {
  world_.Want({Wanted("1", "a")});
  world_.graphs = true;
  Start();
  ASSERT_TRUE(repository_->Load("m").ok());
  VersionPlan more = Wanted("1", "a");
  more.settings.graph.instance_count = 3;
  world_.Want({more});
  ASSERT_TRUE(repository_->Load("m").ok());
  EXPECT_EQ((*repository_->Find("m"))->instance_count(), 3);
  EXPECT_EQ(world_.Loads().size(), 1u);
  more.settings.graph.instance_count = 0;  // to be measured: what is, stays
  world_.Want({more});
  ASSERT_TRUE(repository_->Load("m").ok());
  EXPECT_EQ((*repository_->Find("m"))->instance_count(), 3);
}

TEST_F(RepositoryLoads, InstancesOfAModelThatHasNoneAreNoReasonForALoad) {
  VersionPlan plan = Wanted("1", "a");
  plan.settings.graph.instance_count = 3;
  world_.Want({plan});
  Start({.allow_control = true, .poll_interval = std::chrono::milliseconds(1)});
  Await([&] { return States() == "1 READY"; });
  // Polls go on, and a load asks once more.
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  ASSERT_TRUE(repository_->Load("m").ok());
  EXPECT_EQ(world_.Loads().size(), 1u);
}

TEST(GraphModel, InstancesAreThoseOfEachDevice) {
  const auto one = support::GraphServable("g", support::SumGraph(), nullptr);
  EXPECT_TRUE(one->HasInstances(1));
  ASSERT_TRUE(one->SetInstanceCount(2).ok());
  EXPECT_TRUE(one->HasInstances(2));
  const auto two = support::GraphServable("g", support::SumGraph(), nullptr, 2);
  ASSERT_TRUE(two->SetInstanceCount(3).ok());
  EXPECT_EQ(two->instance_count(), 6);
  EXPECT_TRUE(two->HasInstances(3));
  EXPECT_FALSE(two->HasInstances(6));
}

TEST_F(RepositoryLoads, FailingVersionLeavesTheOldOneServing) {
  world_.Want({Wanted("1")});
  Start();
  ASSERT_TRUE(repository_->Load("m").ok());
  world_.Want({Wanted("2")});
  world_.Fail("2", InvalidArgument("out of luck"));
  const Status failed = repository_->Load("m");
  EXPECT_EQ(failed.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(States(), "1 READY, 2 UNAVAILABLE out of luck");
  EXPECT_EQ((*repository_->Borrow("m"))->version(), "1");
  EXPECT_EQ(repository_->Borrow("m", "2").status().field(), "model_version");
  world_.Fail("2", OkStatus());
  EXPECT_TRUE(repository_->Load("m").ok());
  EXPECT_EQ((*repository_->Borrow("m"))->version(), "2");
}

TEST_F(RepositoryLoads, WhatDoesNotServeIsNotNamedAsAChoice) {
  world_.Want({Wanted("1")});
  world_.Fail("1", InvalidArgument("out of luck"));
  Start();
  EXPECT_FALSE(repository_->Load("m").ok());
  EXPECT_EQ(repository_->Borrow("other").status().message(),
            "the model 'other' does not exist here; this server has none");
  repository_->Add(Named("a"));
  EXPECT_EQ(repository_->Borrow("other").status().message(),
            "the model 'other' does not exist here; this server has 'a'");
}

TEST_F(RepositoryLoads, FailingReloadOfTheSameVersionKeepsTheFirstLoad) {
  world_.Want({Wanted("1", "a")});
  Start();
  ASSERT_TRUE(repository_->Load("m").ok());
  const Servable* first = &**repository_->Borrow("m");
  world_.Want({Wanted("1", "b")});
  world_.Fail("1", InvalidArgument("out of luck"));
  EXPECT_FALSE(repository_->Load("m").ok());
  EXPECT_EQ(&**repository_->Borrow("m"), first);
  EXPECT_EQ(States(),
            "1 READY the load before this one serves; the last failed: out of "
            "luck");
  EXPECT_FALSE(repository_->Load("m").ok()) << "tried again, fails again";
  world_.Fail("1", OkStatus());
  EXPECT_TRUE(repository_->Load("m").ok());
  EXPECT_EQ(States(), "1 READY");
}

TEST_F(RepositoryLoads, UnchangedVersionIsNotLoadedAgain) {
  world_.Want({Wanted("1", "a"), Wanted("2", "a")});
  Start();
  ASSERT_TRUE(repository_->Load("m").ok());
  world_.Want({Wanted("1", "a"), Wanted("2", "b")});
  ASSERT_TRUE(repository_->Load("m").ok());
  EXPECT_EQ(world_.Loads(), (std::vector<std::string>{"1", "2", "2"}));
  EXPECT_EQ(repository_->VersionsOf("m"), (std::vector<std::string>{"1", "2"}));
}

TEST_F(RepositoryLoads, TheHighestNumberServesRequestsWithoutVersion) {
  world_.Want({Wanted("10"), Wanted("9")});
  Start();
  ASSERT_TRUE(repository_->Load("m").ok());
  EXPECT_EQ((*repository_->Borrow("m"))->version(), "10");
  EXPECT_EQ((*repository_->Borrow("m", "9"))->version(), "9");
  EXPECT_EQ(repository_->List().size(), 1u);
}

TEST_F(RepositoryLoads, NoAcceptedRequestMeetsAClosedModel) {
  world_.Want({Wanted("1")});
  Start();
  ASSERT_TRUE(repository_->Load("m").ok());
  std::atomic<bool> stop = false;
  std::atomic<int> refused = 0;
  std::thread client([&] {
    while (!stop) {
      if (!repository_->Borrow("m").ok()) ++refused;
    }
  });
  for (int i = 0; i < 50; ++i) ASSERT_TRUE(repository_->Load("m").ok());
  stop = true;
  client.join();
  EXPECT_EQ(refused, 0);
}

TEST_F(RepositoryLoads, PollLoadsWhatChangesAndDropsWhatVanishes) {
  Start({.poll_interval = std::chrono::milliseconds(1)});
  world_.Want({Wanted("1", "a")});
  Await([&] { return States() == "1 READY"; });
  world_.Fail("1", InvalidArgument("out of luck"));
  world_.Want({Wanted("1", "b")});
  Await([&] { return world_.Loads().size() == 2; });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(world_.Loads().size(), 2u) << "a failure is not tried again";
  EXPECT_EQ((*repository_->Borrow("m"))->version(), "1");
  {
    MutexLock lock(world_.mu);
    world_.models.clear();
  }
  Await([&] { return States() == "1 UNAVAILABLE unloaded"; });
}

TEST_F(RepositoryLoads, RequestsAreRefusedUnlessControlIsAllowed) {
  world_.Want({Wanted("1")});
  Start({});
  Status got;
  const auto keep = [&](Status status) { got = std::move(status); };
  repository_->RequestLoad("m", "", keep);
  EXPECT_EQ(got.reason(), "model_control_disabled");
  repository_->RequestUnload("m", keep);
  EXPECT_EQ(got.code(), StatusCode::kUnavailable);
  EXPECT_TRUE(world_.Loads().empty());
}

TEST_F(RepositoryLoads, OperationsThatWaitEndWhenTheServerDrains) {
  world_.Want({Wanted("1")});
  Start();
  std::promise<void> begun, go;
  world_.while_loading = [&] {
    begun.set_value();
    go.get_future().wait();
  };
  std::promise<Status> first, second;
  repository_->RequestLoad("m", "", [&](Status s) { first.set_value(s); });
  begun.get_future().wait();
  repository_->RequestUnload("m", [&](Status s) { second.set_value(s); });
  EXPECT_TRUE(repository_->Drain(In(1)));
  go.set_value();
  EXPECT_TRUE(first.get_future().get().ok());
  EXPECT_EQ(second.get_future().get().reason(), "draining");
}

TEST_F(RepositoryLoads, AnExceptionOfALoadIsItsReason) {
  world_.Want({Wanted("1")});
  Start();
  world_.while_loading = [] { throw std::bad_alloc(); };
  EXPECT_EQ(repository_->Load("m").code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(States(), "1 UNAVAILABLE cannot load: std::bad_alloc");
}

}  // namespace
}  // namespace millrace::server
