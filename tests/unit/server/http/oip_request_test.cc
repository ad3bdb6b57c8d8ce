// Inputs in shared memory: their keys in any spelling, and their sizes.
#include "server/http/oip_request.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <string>

namespace millrace::server::http {
namespace {

// A region "r" of 64 bytes, gone with the test; requests may have 200.
class Regions {
 public:
  Regions()
      : key_("/millrace_oip_request_" + std::to_string(getpid())),
        fd_(shm_open(key_.c_str(), O_RDWR | O_CREAT | O_TRUNC, 0600)) {
    EXPECT_EQ(ftruncate(fd_, 64), 0);
    EXPECT_TRUE(regions_.Register({"r", key_, 0, 64}).ok());
  }
  ~Regions() {
    shm_unlink(key_.c_str());
    close(fd_);
  }
  StatusOr<InferBody> Read(const std::string& body) const {
    return ReadInferBody(body, {}, regions_);
  }

 private:
  const std::string key_;
  const int fd_;
  SharedRegions regions_{true, 200};
};

std::string Input(const std::string& region_key, int num_bytes) {
  return R"({"name":"x","datatype":"UINT8","shape":[)" +
         std::to_string(num_bytes) + R"(],"parameters":{")" + region_key +
         R"(":"r","shared_memory_byte_size":)" + std::to_string(num_bytes) +
         "}}";
}

std::string Body(const std::string& inputs) {
  return R"({"inputs":[)" + inputs + "]}";
}

TEST(OipRequest, KeysOfRegionsAreSeenInAnySpelling) {
  const Regions regions;
  for (const char* key :
       {"shared_memory_region", R"(shared_memory\u005fregion)",
        R"(\u0073hared_memory_region)", R"(shared_memory_regio\u006E)"}) {
    const std::string body = Body(Input(key, 64));
    ASSERT_TRUE(regions.Read(body).ok()) << key;
    EXPECT_TRUE(MayNameRegion(body)) << key;
  }
  EXPECT_FALSE(MayNameRegion(Body(Input("other", 64))));
  EXPECT_FALSE(MayNameRegion(R"({"text":"a\nb\\"})"));
}

TEST(OipRequest, InputsInSharedMemoryCountAgainstTheBodysLimit) {
  const Regions regions;
  const std::string one = Input("shared_memory_region", 64);
  ASSERT_LT(Body(one).size() + 64, 200u);
  EXPECT_TRUE(regions.Read(Body(one)).ok());
  const StatusOr<InferBody> two = regions.Read(Body(one + "," + one));
  ASSERT_FALSE(two.ok());
  EXPECT_EQ(two.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(two.status().message().find("http_max_input_size"),
            std::string_view::npos);
}

}  // namespace
}  // namespace millrace::server::http
