#include "models/llm/page_files.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <numeric>
#include <vector>

#include "config/base/mutex.h"
#include "models/llm/step.h"

namespace millrace::models {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kPageBytes = 1000;
const std::string kFingerprint(64, 'a');

class PageFilesTest : public testing::Test {
 protected:
  void SetUp() override {
    dir_ = testing::TempDir() + "page_files_" +
           testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(dir_);
    ASSERT_TRUE(MakePageFolder(dir_).ok());
  }
  void TearDown() override { fs::remove_all(dir_); }

  std::unique_ptr<PageFiles> MustOpen(int64_t max_bytes = 1 << 20,
                                      std::string fingerprint = kFingerprint) {
    auto files = PageFiles::Open({.dir = dir_,
                                  .fingerprint = std::move(fingerprint),
                                  .page_bytes = kPageBytes,
                                  .max_bytes = max_bytes,
                                  .model = "m"},
                                 nullptr);
    CHECK(files.ok(), "the folder can be used");
    (*files)->OnNews([this] {
      MutexLock lock(mu_);
      news_ = true;
      changed_.NotifyAll();
    });
    return *std::move(files);
  }
  static PageStore::Bytes BytesOf(int value) {
    return PageStore::Bytes(kPageBytes, static_cast<std::byte>(value));
  }
  static PageKey KeyOf(const PageFiles& files, int value,
                       const PageKey* before = nullptr) {
    const std::vector<int32_t> ids(kPageTokens, value);
    return files.KeyOf(before, ids);
  }
  static void Keep(PageFiles& files, const PageKey& key, int value) {
    std::optional<PageStore::Bytes> bytes;
    while (!bytes) bytes = files.TakeBuffer();
    *bytes = BytesOf(value);
    files.Keep(key, *std::move(bytes));
  }
  PageStore::Fetched Fetch(PageFiles& files, std::vector<PageKey> keys) {
    files.Fetch(++ticket_, std::move(keys));
    while (true) {
      std::vector<PageStore::Fetched> fetched = files.TakeFetched();
      if (!fetched.empty()) return fetched.front();
      MutexLock lock(mu_);
      while (!news_) changed_.Wait(mu_);
      news_ = false;
    }
  }
  std::vector<fs::path> Pages() const {
    std::vector<fs::path> pages;
    for (const auto& entry : fs::recursive_directory_iterator(dir_)) {
      if (entry.path().extension() == ".page") pages.push_back(entry.path());
    }
    return pages;
  }

  std::string dir_;
  Mutex mu_;
  CondVar changed_;
  bool news_ = false;
  uint64_t ticket_ = 0;
};

TEST_F(PageFilesTest, PagesOutliveTheStore) {
  std::vector<PageKey> keys;
  {
    auto files = MustOpen();
    for (int i = 0; i < 3; ++i) {
      keys.push_back(KeyOf(*files, i, keys.empty() ? nullptr : &keys.back()));
      Keep(*files, keys.back(), i);
    }
    // Written or not, they are there.
    EXPECT_EQ(Fetch(*files, keys).pages.size(), 3u);
  }
  auto files = MustOpen();
  EXPECT_EQ(files->num_pages(), 3);
  const PageStore::Fetched fetched = Fetch(*files, keys);
  ASSERT_EQ(fetched.pages.size(), 3u);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(fetched.pages[static_cast<size_t>(i)], BytesOf(i));
  }
  EXPECT_GT(files->fetch_seconds(), 0);
}

TEST_F(PageFilesTest, KeysAreOfTheModelAndOfAllTokensBefore) {
  auto files = MustOpen();
  auto other = MustOpen(1 << 20, std::string(64, 'b'));
  const PageKey first = KeyOf(*files, 1);
  EXPECT_EQ(first, KeyOf(*files, 1));
  EXPECT_NE(first, KeyOf(*files, 2));
  EXPECT_NE(first, KeyOf(*other, 1));
  EXPECT_NE(first, KeyOf(*files, 1, &first));
  Keep(*files, first, 1);
  EXPECT_TRUE(files->Holds(first));
  EXPECT_FALSE(other->Holds(first));
}

TEST_F(PageFilesTest, DamagedFilesAreFoundAndRemoved) {
  std::vector<PageKey> keys;
  {
    auto files = MustOpen();
    for (int i = 0; i < 4; ++i) {
      keys.push_back(KeyOf(*files, i));
      Keep(*files, keys.back(), i);
    }
  }
  const std::vector<fs::path> pages = Pages();
  ASSERT_EQ(pages.size(), 4u);
  {  // A bit of the payload.
    std::fstream file(pages[0], std::ios::in | std::ios::out);
    file.seekp(500);
    file.put(static_cast<char>(file.peek() ^ 1));
  }
  fs::resize_file(pages[1], fs::file_size(pages[1]) - 1);
  // The page of other tokens.
  fs::copy_file(pages[3], pages[2], fs::copy_options::overwrite_existing);
  auto files = MustOpen();
  EXPECT_EQ(files->num_pages(), 4);
  int num_right = 0;
  for (int i = 0; i < 4; ++i) {
    const auto fetched = Fetch(*files, {keys[static_cast<size_t>(i)]});
    if (fetched.pages.empty()) continue;
    ++num_right;
    EXPECT_EQ(fetched.pages[0], BytesOf(i));
  }
  EXPECT_EQ(num_right, 1);
  EXPECT_EQ(Pages().size(), 1u);
  EXPECT_EQ(files->num_pages(), 1);
}

TEST_F(PageFilesTest, TheLeastRecentlyUsedMakeRoom) {
  // A file has 56 bytes more than its page.
  auto files = MustOpen(3 * (kPageBytes + 56));
  std::vector<PageKey> keys;
  for (int i = 0; i < 3; ++i) {
    keys.push_back(KeyOf(*files, i));
    Keep(*files, keys.back(), i);
  }
  files->Used(std::vector<PageKey>{keys[0]});
  Keep(*files, KeyOf(*files, 9), 9);
  while (Fetch(*files, {keys[1]}).pages.size() == 1) {
  }
  EXPECT_EQ(Fetch(*files, {keys[0]}).pages.size(), 1u);
  EXPECT_EQ(Fetch(*files, {keys[2]}).pages.size(), 1u);
  EXPECT_EQ(files->num_pages(), 3);
  files.reset();
  EXPECT_EQ(Pages().size(), 3u);
  // A smaller bound, at the next start.
  files = MustOpen(kPageBytes + 56);
  EXPECT_EQ(files->num_pages(), 1);
  files.reset();
  EXPECT_EQ(Pages().size(), 1u);
}

TEST_F(PageFilesTest, MorePagesAtOnceThanMayBeThereLeaveNoFilesBehind) {
  auto files = MustOpen(2 * (kPageBytes + 56));
  for (int i = 0; i < 200; ++i) Keep(*files, KeyOf(*files, i), i);
  EXPECT_EQ(Fetch(*files, {KeyOf(*files, 199)}).pages.size(), 1u);
  files.reset();
  EXPECT_LE(Pages().size(), 2u);
}

TEST_F(PageFilesTest, AFullDiskIsNoError) {
  auto files = MustOpen();
  const PageKey key = KeyOf(*files, 1);
  const std::string folder = dir_ + "/kv-" + kFingerprint.substr(0, 32);
  fs::remove_all(folder);
  std::ofstream(folder) << "no folder";
  Keep(*files, key, 1);
  while (files->Holds(key)) {
  }
  EXPECT_TRUE(Fetch(*files, {key}).pages.empty());
}

// As if another server removed a page while this one lists them: a link to
// nothing is there, and its time cannot be read.
TEST_F(PageFilesTest, AFileThatGoesWhileTheFolderIsReadIsLeftOut) {
  const std::string folder = dir_ + "/kv-" + kFingerprint.substr(0, 32);
  fs::create_directory(folder);
  for (const std::string& in : {folder, dir_}) {
    fs::create_symlink("nothing", in + "/kv-" + std::string(29, 'b') + ".page");
  }
  auto files = MustOpen();
  EXPECT_EQ(files->num_pages(), 0);
  const PageKey key = KeyOf(*files, 1);
  Keep(*files, key, 1);
  files.reset();
  files = MustOpen();
  EXPECT_EQ(files->num_pages(), 1);
  EXPECT_EQ(Fetch(*files, {key}).pages.size(), 1u);
}

TEST_F(PageFilesTest, AFolderWhosePagesAreReadIsNotForgotten) {
  const std::string folder = dir_ + "/kv-" + kFingerprint.substr(0, 32);
  const auto long_ago =
      fs::file_time_type::clock::now() - std::chrono::hours(24 * 31);
  const auto start_another = [&] {
    MustOpen(1 << 20, std::string(64, 'b'));
    return fs::exists(folder);
  };
  auto files = MustOpen();
  const PageKey key = KeyOf(*files, 1);
  Keep(*files, key, 1);
  files.reset();
  fs::last_write_time(folder, long_ago);
  files = MustOpen();
  EXPECT_EQ(files->num_pages(), 1) << "it is not another's";
  fs::last_write_time(folder, long_ago);
  ASSERT_EQ(Fetch(*files, {key}).pages.size(), 1u);
  EXPECT_TRUE(start_another());
  // Not at each read: an hour is nothing beside 30 days.
  fs::last_write_time(folder, long_ago);
  ASSERT_EQ(Fetch(*files, {key}).pages.size(), 1u);
  EXPECT_LT(fs::last_write_time(folder), long_ago + std::chrono::hours(24));
  EXPECT_FALSE(start_another());
}

TEST_F(PageFilesTest, AFolderThatIsGoneIsMadeAgain) {
  auto files = MustOpen();
  const PageKey first = KeyOf(*files, 1);
  Keep(*files, first, 1);
  files.reset();
  files = MustOpen();
  fs::remove_all(dir_ + "/kv-" + kFingerprint.substr(0, 32));
  EXPECT_TRUE(Fetch(*files, {first}).pages.empty());
  const PageKey second = KeyOf(*files, 2);
  Keep(*files, second, 2);
  files.reset();
  files = MustOpen();
  EXPECT_EQ(files->num_pages(), 1);
  EXPECT_EQ(Fetch(*files, {second}).pages.size(), 1u);
}

TEST_F(PageFilesTest, RefusesWhatCannotBeUsed) {
  const auto small = PageFiles::Open({.dir = dir_,
                                      .fingerprint = kFingerprint,
                                      .page_bytes = kPageBytes,
                                      .max_bytes = 10},
                                     nullptr);
  EXPECT_EQ(small.status().field(), "kv_cache_dir_max_size");
  std::ofstream(dir_ + "/file") << "x";
  EXPECT_EQ(MakePageFolder(dir_ + "/file").field(), "kv_cache_dir");
  EXPECT_EQ(MakePageFolder(dir_ + "/file/x").field(), "kv_cache_dir");
}

}  // namespace
}  // namespace millrace::models
