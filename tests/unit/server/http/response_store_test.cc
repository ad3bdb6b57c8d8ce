#include "server/http/response_store.h"

#include <gtest/gtest.h>

namespace millrace::server::http {
namespace {

TEST(ResponseStore, GivesBackWhatItKeeps) {
  ResponseStore store;
  store.Put(
      "a", {.tenant = 1, .response = "A", .conversation = "[]", .input = "[]"});
  ASSERT_NE(store.Find("a", 1), nullptr);
  EXPECT_EQ(store.Find("a", 1)->response, "A");
  EXPECT_TRUE(store.Erase("a", 1));
  EXPECT_EQ(store.Find("a", 1), nullptr);
  EXPECT_FALSE(store.Erase("a", 1));
}

TEST(ResponseStore, TheOldestMakeRoom) {
  ResponseStore store;
  for (size_t i = 0; i <= ResponseStore::kMostEntries; ++i) {
    store.Put(std::to_string(i),
              {.tenant = 1, .response = "x", .conversation = {}, .input = {}});
  }
  EXPECT_EQ(store.Find("0", 1), nullptr);
  EXPECT_NE(store.Find("1", 1), nullptr);
  const std::string half(ResponseStore::kMostBytes / 2, 'x');
  store.Put("big",
            {.tenant = 1, .response = half, .conversation = {}, .input = {}});
  store.Put("second",
            {.tenant = 1, .response = half, .conversation = {}, .input = {}});
  EXPECT_EQ(store.Find("big", 1), nullptr);
  EXPECT_NE(store.Find("second", 1), nullptr);
  store.Put("huge",
            {.tenant = 1, .response = half, .conversation = half, .input = {}});
  EXPECT_EQ(store.Find("huge", 1), nullptr);
}

TEST(ResponseStore, ATenantFindsOnlyItsOwn) {
  ResponseStore store;
  store.Put("a",
            {.tenant = 1, .response = "A", .conversation = {}, .input = {}});
  EXPECT_EQ(store.Find("a", 2), nullptr);
  EXPECT_FALSE(store.Erase("a", 2));
  EXPECT_NE(store.Find("a", 1), nullptr);
}

TEST(ResponseStore, ATenantPushesOutOnlyItsOwn) {
  ResponseStore store;
  store.Put("other",
            {.tenant = 2, .response = "x", .conversation = {}, .input = {}});
  for (size_t i = 0; i <= ResponseStore::kMostEntries; ++i) {
    store.Put(std::to_string(i),
              {.tenant = 1, .response = "x", .conversation = {}, .input = {}});
  }
  EXPECT_NE(store.Find("other", 2), nullptr);
  EXPECT_EQ(store.Find("0", 1), nullptr);
  const std::string third(ResponseStore::kMostBytes / 3, 'x');
  for (const char* id : {"a", "b", "c", "d"}) {
    store.Put(
        id, {.tenant = 1, .response = third, .conversation = {}, .input = {}});
  }
  EXPECT_NE(store.Find("other", 2), nullptr);
  EXPECT_EQ(store.Find("a", 1), nullptr);
}

}  // namespace
}  // namespace millrace::server::http
