#include "config/schema.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <string_view>
#include <variant>

#include "config/settings_visitor.h"

namespace millrace::config {
namespace {

TEST(Schema, NamesAreUniqueAndDefaultsWithinTheirBounds) {
  std::set<std::string_view> names;
  Settings settings;
  VisitSettings(settings, [&](const SettingInfo& info, SettingRef value) {
    EXPECT_TRUE(names.insert(info.name).second) << info.name;
    for (const auto& alias : info.aliases) {
      EXPECT_TRUE(names.insert(alias.name).second) << alias.name;
    }
    if (auto* number = std::get_if<int64_t*>(&value)) {
      EXPECT_GE(**number, info.min) << info.name;
      EXPECT_LE(**number, info.max) << info.name;
    }
    if (auto* text = std::get_if<std::string*>(&value);
        text && !info.choices.empty()) {
      EXPECT_NE(std::find(info.choices.begin(), info.choices.end(), **text),
                info.choices.end())
          << info.name;
    }
  });
  for (const char* wanted : {"host",
                             "http_port",
                             "grpc_port",
                             "metrics_port",
                             "api_key",
                             "api_key_file",
                             "no_auth",
                             "cors_allow_origin",
                             "http_max_input_size",
                             "http_max_header_size",
                             "header_timeout",
                             "idle_timeout",
                             "write_timeout",
                             "max_connections",
                             "io_threads",
                             "handler_threads",
                             "shutdown_timeout",
                             "log_level",
                             "log_format",
                             "access_log",
                             "max_model_len",
                             "max_num_seqs",
                             "max_num_batched_tokens",
                             "max_queue_size",
                             "kv_cache_memory_bytes",
                             "kv_cache_dtype",
                             "compute_dtype",
                             "threads",
                             "isa",
                             "huge_pages",
                             "chat_template",
                             "served_model_name"}) {
    EXPECT_EQ(names.count(wanted), 1u) << wanted;
  }
}

}  // namespace
}  // namespace millrace::config
