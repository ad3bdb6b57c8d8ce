#include "server/shared_memory.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <string>

namespace millrace::server {
namespace {

// An object of shared memory with these bytes, gone with the test.
class Object {
 public:
  explicit Object(const std::string& bytes)
      : key_("/millrace_test_" + std::to_string(getpid())),
        fd_(shm_open(key_.c_str(), O_RDWR | O_CREAT | O_TRUNC, 0600)) {
    EXPECT_EQ(write(fd_, bytes.data(), bytes.size()),
              static_cast<ssize_t>(bytes.size()));
  }
  ~Object() {
    shm_unlink(key_.c_str());
    close(fd_);
  }
  const std::string& key() const { return key_; }
  std::string Bytes() const {
    std::string bytes(64, '\0');
    bytes.resize(static_cast<size_t>(pread(fd_, bytes.data(), 64, 0)));
    return bytes;
  }
  void Resize(off_t size) { EXPECT_EQ(ftruncate(fd_, size), 0); }

 private:
  const std::string key_;
  const int fd_;
};

// For a request that has nothing else.
StatusOr<std::string> Read(const SharedRegions& regions,
                           const SharedSpan& span) {
  uint64_t request_bytes = 0;
  return regions.Read(span, request_bytes);
}

TEST(SharedRegions, PartsAreReadAndWritten) {
  const Object object("0123456789");
  SharedRegions regions(true, 100);
  ASSERT_TRUE(regions.Register({"r", object.key(), 2, 6}).ok());
  EXPECT_EQ(*Read(regions, {"r", 1, 3}), "345");
  EXPECT_TRUE(regions.Write({"r", 0, 6}, "ab").ok());
  EXPECT_EQ(object.Bytes(), "01ab456789");
  EXPECT_EQ((*regions.List("r"))[0].byte_size, 6u);
}

TEST(SharedRegions, NothingBeyondTheRegionIsTouched) {
  const Object object("0123456789");
  SharedRegions regions(true, 100);
  EXPECT_FALSE(regions.Register({"r", object.key(), 5, 6}).ok());
  EXPECT_FALSE(regions.Register({"r", object.key(), UINT64_MAX, 2}).ok());
  ASSERT_TRUE(regions.Register({"r", object.key(), 0, 4}).ok());
  EXPECT_FALSE(Read(regions, {"r", 2, 3}).ok());
  EXPECT_FALSE(Read(regions, {"r", UINT64_MAX, 2}).ok());
  EXPECT_FALSE(regions.Write({"r", 2, 9}, "abc").ok());
  EXPECT_FALSE(regions.Write({"r", 0, 1}, "ab").ok());
  EXPECT_EQ(object.Bytes(), "0123456789");
}

TEST(SharedRegions, AShorterObjectIsAnErrorAndDoesNotGrow) {
  Object object("0123456789");
  SharedRegions regions(true, 100);
  ASSERT_TRUE(regions.Register({"r", object.key(), 0, 10}).ok());
  object.Resize(4);
  EXPECT_EQ(Read(regions, {"r", 0, 10}).status().code(),
            StatusCode::kInvalidArgument);
  EXPECT_FALSE(regions.Write({"r", 2, 8}, "abcdef").ok());
  EXPECT_EQ(object.Bytes(), "0123");
}

TEST(SharedRegions, NamesAreOnesOwnAndKeysAreNoPaths) {
  const Object object("0123456789");
  SharedRegions regions(true, 100);
  ASSERT_TRUE(regions.Register({"r", object.key().substr(1), 0, 4}).ok());
  EXPECT_FALSE(regions.Register({"r", object.key(), 0, 4}).ok());
  for (const char* key : {"", "/", "/../etc/passwd", "/a/b", "/none_there"}) {
    EXPECT_EQ(regions.Register({"x", key, 0, 1}).code(),
              StatusCode::kInvalidArgument)
        << key;
  }
  regions.Unregister("absent");
  EXPECT_EQ(regions.List("")->size(), 1u);
  regions.Unregister("");
  EXPECT_TRUE(regions.List("")->empty());
  EXPECT_EQ(regions.List("r").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(Read(regions, {"r", 0, 1}).status().code(), StatusCode::kNotFound);
}

TEST(SharedRegions, LargerTensorsThanRequestsMayHaveAreRefused) {
  const Object object("0123456789");
  SharedRegions regions(true, 3);
  ASSERT_TRUE(regions.Register({"r", object.key(), 0, 10}).ok());
  EXPECT_TRUE(Read(regions, {"r", 0, 3}).ok());
  EXPECT_FALSE(Read(regions, {"r", 0, 4}).ok());
}

TEST(SharedRegions, AllThatARequestReadsCounts) {
  const Object object("0123456789");
  SharedRegions regions(true, 10);
  ASSERT_TRUE(regions.Register({"r", object.key(), 0, 10}).ok());
  uint64_t request_bytes = 2;
  EXPECT_TRUE(regions.Read({"r", 0, 4}, request_bytes).ok());
  EXPECT_FALSE(regions.Read({"r", 0, 5}, request_bytes).ok());
  EXPECT_FALSE(regions.Read({"r", 0, UINT64_MAX}, request_bytes).ok());
  EXPECT_FALSE(regions.Read({"absent", 0, 4}, request_bytes).ok());
  EXPECT_EQ(request_bytes, 6u);
  EXPECT_TRUE(regions.Read({"r", 6, 4}, request_bytes).ok());
  const Status full = regions.Read({"r", 0, 1}, request_bytes).status();
  EXPECT_EQ(full.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(full.message().find("raise http_max_input_size"),
            std::string_view::npos);
}

TEST(SharedRegions, NothingIsRegisteredWhereItIsSwitchedOff) {
  const Object object("0123456789");
  SharedRegions regions(false, 100);
  EXPECT_FALSE(regions.Register({"r", object.key(), 0, 4}).ok());
}

}  // namespace
}  // namespace millrace::server
