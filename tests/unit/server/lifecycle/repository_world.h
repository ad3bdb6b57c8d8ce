// A repository whose models and loads are made up, for its tests.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "server/lifecycle/language_model.h"
#include "server/lifecycle/repository.h"
#include "tests/support/graph_servable.h"
#include "tests/support/test_graphs.h"

namespace millrace::server {

inline VersionPlan Wanted(const std::string& version,
                          const std::string& stamp = {}) {
  return {.version = version, .settings = {.name = "m"}, .stamp = stamp};
}

// What tests change while the repository runs; the fakes only point at it.
struct World {
  Mutex mu;
  std::map<std::string, std::vector<VersionPlan>> models GUARDED_BY(mu);
  std::map<std::string, Status> failures GUARDED_BY(mu);  // by version
  std::vector<std::string> loads GUARDED_BY(mu);          // versions, in order
  Status listing GUARDED_BY(mu);        // why the source cannot be listed
  Status configuration GUARDED_BY(mu);  // what is wrong with that of all
  std::function<void()> while_loading;  // set before the load
  bool graphs = false;  // servables are graphs; set before the load
  std::atomic<bool> throws = false;  // Find does

  void Want(std::vector<VersionPlan> plans) {
    MutexLock lock(mu);
    models["m"] = std::move(plans);
  }
  void Configure(Status status) {
    MutexLock lock(mu);
    configuration = std::move(status);
  }
  void Fail(const std::string& version, Status status) {
    MutexLock lock(mu);
    failures[version] = std::move(status);
  }
  std::vector<std::string> Loads() {
    MutexLock lock(mu);
    return loads;
  }
};

class FakeSource final : public ModelSource {
 public:
  explicit FakeSource(World* world) : world_(world) {}
  StatusOr<std::vector<std::string>> Names() override {
    MutexLock lock(world_->mu);
    if (!world_->listing.ok()) return world_->listing;
    std::vector<std::string> names;
    for (const auto& [name, plans] : world_->models) names.push_back(name);
    return names;
  }
  StatusOr<std::vector<VersionPlan>> Find(const std::string& name,
                                          const std::string&) override {
    if (world_->throws) throw std::out_of_range("a number");
    MutexLock lock(world_->mu);
    const auto at = world_->models.find(name);
    if (at == world_->models.end()) return NotFound("no model " + name);
    if (!world_->configuration.ok()) return world_->configuration;
    return at->second;
  }

 private:
  World* const world_;
};

class FakeLoader final : public ModelLoader {
 public:
  explicit FakeLoader(World* world) : world_(world) {}
  StatusOr<std::shared_ptr<Servable>> Load(const VersionPlan& plan) override {
    EXPECT_EQ(++running_, 1) << "one at a time";
    if (world_->while_loading) world_->while_loading();
    --running_;
    MutexLock lock(world_->mu);
    world_->loads.push_back(plan.version);
    if (!world_->failures[plan.version].ok()) {
      return world_->failures[plan.version];
    }
    if (world_->graphs) {
      return std::shared_ptr<Servable>(support::GraphServable(
          plan.settings.name, support::SumGraph(), nullptr));
    }
    return std::shared_ptr<Servable>(std::make_shared<LanguageModel>(
        ModelFacts{.id = plan.settings.name,
                   .version = plan.version,
                   .aliases = plan.settings.served_model_name},
        TextFacts{}, nullptr, nullptr));
  }

 private:
  World* const world_;
  std::atomic<int> running_ = 0;
};

class RepositoryLoads : public ::testing::Test {
 protected:
  void Start(RepositoryOptions options = {.allow_control = true}) {
    repository_.emplace(std::make_unique<FakeSource>(&world_),
                        std::make_unique<FakeLoader>(&world_), options);
    repository_->SetState(ServerState::kReady);
  }
  // "1 READY, 2 UNAVAILABLE out of luck"
  std::string States() {
    std::string text;
    for (const VersionStatus& each : repository_->Index()) {
      text += (text.empty() ? "" : ", ") + each.version + " " +
              std::string(VersionStateName(each.state));
      if (!each.reason.empty()) text += " " + each.reason;
    }
    return text;
  }
  // Waits for the repository's thread.
  void Await(const std::function<bool()>& condition) {
    for (int i = 0; i < 20'000 && !condition(); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_TRUE(condition()) << States();
  }

  World world_;
  std::optional<Repository> repository_;
};

}  // namespace millrace::server
