// What is told of models that cannot be planned, because their configuration or
// folder is wrong.
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>

#include "tests/unit/server/lifecycle/repository_world.h"

namespace millrace::server {
namespace {

// The lines of the log so far that have the text.
size_t Logged(const std::string& text) {
  const std::string log = testing::internal::GetCapturedStderr();
  testing::internal::CaptureStderr();
  size_t count = 0;
  for (size_t at = log.find(text); at != std::string::npos;
       at = log.find(text, at + 1)) {
    ++count;
  }
  return count;
}

TEST_F(RepositoryLoads, AWrongConfigurationIsAReasonLikeAnyOther) {
  world_.Want({Wanted("1", "a")});
  world_.Configure(InvalidArgument("line 3"));
  Start();
  EXPECT_FALSE(repository_->Load("m").ok());
  EXPECT_EQ(States(), " UNAVAILABLE line 3");
  EXPECT_EQ(repository_->Borrow("m").status().message(),
            "the model 'm' is not loaded: line 3");
  // A load of an unknown name adds no entry to the index.
  EXPECT_FALSE(repository_->Load("other").ok());
  EXPECT_EQ(States(), " UNAVAILABLE line 3");
  world_.Configure(OkStatus());
  EXPECT_TRUE(repository_->Load("m").ok());
  EXPECT_EQ(States(), "1 READY");
  world_.Configure(InvalidArgument("line 4"));
  EXPECT_FALSE(repository_->Load("m").ok());
  EXPECT_EQ(States(),
            "1 READY the load before this one serves; the last failed: line 4");
  EXPECT_EQ((*repository_->Borrow("m"))->version(), "1");
  world_.Configure(OkStatus());
  EXPECT_TRUE(repository_->Load("m").ok());
  EXPECT_EQ(States(), "1 READY");
  EXPECT_EQ(world_.Loads().size(), 1u) << "its files are those that serve";
}

TEST_F(RepositoryLoads, WhyAModelCannotBePlannedIsNewerThanItsVersions) {
  world_.Want({Wanted("1", "a")});
  Start();
  ASSERT_TRUE(repository_->Load("m").ok());
  ASSERT_TRUE(repository_->Unload("m").ok());
  world_.Configure(InvalidArgument("line 3"));
  EXPECT_FALSE(repository_->Load("m").ok());
  EXPECT_EQ(States(), " UNAVAILABLE line 3, 1 UNAVAILABLE unloaded");
  for (const char* version : {"", "1"}) {
    EXPECT_EQ(repository_->Borrow("m", version).status().message(),
              "the model 'm' is not loaded: line 3");
  }
  // Without its folder there is nothing to be planned.
  {
    MutexLock lock(world_.mu);
    world_.models.clear();
  }
  EXPECT_FALSE(repository_->Load("m").ok());
  EXPECT_EQ(States(), "1 UNAVAILABLE unloaded");
}

TEST_F(RepositoryLoads, PollTellsAWrongConfigurationOnce) {
  testing::internal::CaptureStderr();
  world_.Want({Wanted("1", "a")});
  world_.Configure(InvalidArgument("line 3"));
  Start({.poll_interval = std::chrono::milliseconds(1)});
  Await([&] { return States() == " UNAVAILABLE line 3"; });
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  EXPECT_EQ(Logged("line 3"), 1u) << "of many polls";
  world_.Configure(InvalidArgument("line 4"));
  Await([&] { return States() == " UNAVAILABLE line 4"; });
  world_.Configure(OkStatus());
  Await([&] { return States() == "1 READY"; });
  world_.Configure(InvalidArgument("line 5"));
  Await([&] { return States().ends_with("last failed: line 5"); });
  world_.Configure(OkStatus());
  Await([&] { return States() == "1 READY"; });
  EXPECT_EQ(world_.Loads().size(), 1u);
  // A model that goes takes its reason with it.
  world_.Configure(InvalidArgument("line 6"));
  {
    MutexLock lock(world_.mu);
    world_.models.clear();
  }
  Await([&] { return States() == "1 UNAVAILABLE unloaded"; });
  repository_.reset();
  testing::internal::GetCapturedStderr();
}

}  // namespace
}  // namespace millrace::server
