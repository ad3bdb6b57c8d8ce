#include "models/group/mpi/keepalive.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

namespace millrace::models::mpi {
namespace {

using ::testing::HasSubstr;

// What mpirun handed to the rank.
std::map<std::string, std::string>& Settings() {
  static std::map<std::string, std::string> settings;
  return settings;
}
Status Check(int64_t timeout_ms, std::map<std::string, std::string> settings) {
  Settings() = std::move(settings);
  return CheckKeepalive(timeout_ms, [](const char* name) -> const char* {
    const auto at = Settings().find(name);
    return at == Settings().end() ? nullptr : at->second.c_str();
  });
}

TEST(Keepalive, TheTimeoutIsAboveTheSum) {
  const std::map<std::string, std::string> short_times = {
      {"OMPI_MCA_oob_tcp_keepalive_time", "5"},
      {"OMPI_MCA_oob_tcp_keepalive_intvl", "2"},
      {"OMPI_MCA_oob_tcp_keepalive_probes", "5"}};
  EXPECT_TRUE(Check(15'001, short_times).ok());
  const Status refused = Check(15'000, short_times);
  EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr("tensor_parallel_timeout is 15000 ms, but mpirun "
                        "notices a lost machine only after 15 s "
                        "(oob_tcp_keepalive_time 5 + oob_tcp_keepalive_intvl 2 "
                        "* oob_tcp_keepalive_probes 5)"));
}

// 300 + 20 * 9 seconds.
TEST(Keepalive, WhatIsNotSetHasOpenMpisValues) {
  EXPECT_FALSE(Check(480'000, {}).ok());
  EXPECT_TRUE(Check(480'001, {}).ok());
  EXPECT_FALSE(Check(185'000, {{"OMPI_MCA_oob_tcp_keepalive_time", "5"}}).ok());
  EXPECT_TRUE(Check(185'001, {{"OMPI_MCA_oob_tcp_keepalive_time", "5"}}).ok());
}

TEST(Keepalive, WhatIsNoNumberIsRefused) {
  for (const char* text :
       {"", "x", "5s", "-1", "1e3", "1000001", "99999999999999999999"}) {
    const Status refused =
        Check(3'600'000, {{"OMPI_MCA_oob_tcp_keepalive_probes", text}});
    EXPECT_THAT(std::string(refused.message()),
                HasSubstr("oob_tcp_keepalive_probes is '" + std::string(text)))
        << text;
  }
}

}  // namespace
}  // namespace millrace::models::mpi
