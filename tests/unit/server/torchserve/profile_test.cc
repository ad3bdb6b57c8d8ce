#include "server/torchserve/profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>

#include "server/torchserve/environment.h"
#include "tests/support/temp_path.h"

namespace millrace::server::torchserve {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::Not;
using testing::Pair;

TEST(Properties, ReadsWhatJavaReads) {
  const auto read = ParseProperties(
      "# note\n! note\n\n a = 1 \nb:2\r\nc 3\nd=x\\\n   y\ne\\=f=\\u0041\\t\n"
      "a=4\nempty\n");
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(*read, (Properties{{"a", "4"},
                               {"b", "2"},
                               {"c", "3"},
                               {"d", "xy"},
                               {"e=f", "A\t"},
                               {"empty", ""}}));
}

TEST(Properties, RefusesBrokenEscapesWithTheLine) {
  EXPECT_THAT(ParseProperties("a=1\nb=\\u00g0").status().message(),
              HasSubstr("line 2"));
  EXPECT_FALSE(ParseProperties(std::string_view("a=\0", 3)).ok());
  EXPECT_FALSE(ParseProperties(std::string(2 << 20, 'a')).ok());
}

TEST(Profile, PortsAreTorchServesAndAddressesAreRead) {
  const auto plain = ProfileOf({});
  ASSERT_TRUE(plain.ok());
  EXPECT_THAT(plain->flags, Contains(Pair("http_port", "8080")));
  EXPECT_THAT(plain->flags, Contains(Pair("management_port", "8081")));
  EXPECT_THAT(plain->flags, Contains(Pair("metrics_port", "8082")));
  EXPECT_THAT(plain->flags, Contains(Pair("grpc_port", "7070")));
  const auto one = ProfileOf({{"inference_address", "http://0.0.0.0:9000"},
                              {"management_address", "http://0.0.0.0:9000"},
                              {"metrics_address", "http://0.0.0.0:9000"}});
  ASSERT_TRUE(one.ok());
  EXPECT_THAT(one->flags, Contains(Pair("host", "0.0.0.0")));
  EXPECT_THAT(one->flags, Not(Contains(Pair("management_port", testing::_))));
  EXPECT_THAT(one->flags, Not(Contains(Pair("metrics_port", testing::_))));
}

TEST(Profile, HttpsNeedsPemFiles) {
  const Properties address = {{"inference_address", "https://localhost:8443"}};
  EXPECT_THAT(ProfileOf(address).status().message(),
              HasSubstr("private_key_file"));
  Properties with_store = address;
  with_store.emplace_back("keystore", "keystore.p12");
  EXPECT_THAT(ProfileOf(with_store).status().message(), HasSubstr("openssl"));
}

TEST(Profile, EveryKeyIsHonouredOrNamedWithAReason) {
  const auto profile = ProfileOf({{"vmargs", "-Xmx4g"},
                                  {"job_queue_size", "7"},
                                  {"default_workers_per_model", "3"},
                                  {"load_models", "a.mar, b=c.mar"},
                                  {"job_queue_sise", "7"}});
  ASSERT_TRUE(profile.ok());
  EXPECT_THAT(profile->flags, Contains(Pair("max_queue_size", "7")));
  EXPECT_EQ(profile->registry.default_workers, 3);
  EXPECT_EQ(profile->registry.load_models,
            (std::vector<std::string>{"a.mar", "b=c.mar"}));
  EXPECT_THAT(profile->warnings,
              testing::ElementsAre("vmargs has no effect: there is no JVM",
                                   HasSubstr("did you mean job_queue_size?")));
}

TEST(Profile, WrongValuesNameTheirKey) {
  for (const auto& [key, value] :
       Properties{{"job_queue_size", "many"},
                  {"inference_address", "localhost"},
                  {"inference_address", "http://localhost:99999"},
                  {"models", "{"},
                  {"metrics_mode", "csv"},
                  {"metric_time_interval", "0"},
                  {"max_request_size", "-1"}}) {
    EXPECT_EQ(ProfileOf({{key, value}}).status().field(), key) << value;
  }
}

TEST(Profile, MetricsGoToFilesWhereTheModeSaysSo) {
  EXPECT_EQ(ProfileOf({})->registry.metric_log.folder, "");
  EXPECT_EQ(
      ProfileOf({{"metrics_mode", "prometheus"}})->registry.metric_log.folder,
      "");
  const auto log = ProfileOf({{"metrics_mode", "LOG"},
                              {"metric_time_interval", "5"},
                              {"disable_system_metrics", "true"}});
  ASSERT_TRUE(log.ok());
  EXPECT_EQ(log->registry.metric_log.folder, "logs");
  EXPECT_EQ(log->registry.metric_log.interval_s, 5);
  EXPECT_FALSE(log->registry.metric_log.system_metrics);
  EXPECT_TRUE(log->warnings.empty());
}

TEST(Profile, ModelsOfTheFileAreDefaultsOfTheirArchives) {
  const auto profile =
      ProfileOf({{"models",
                  R"({"m": {"1.0": {"defaultVersion": true, "marName": "m.mar",
            "minWorkers": 2, "batchSize": 8, "maxBatchDelay": 5}}})"}});
  ASSERT_TRUE(profile.ok()) << profile.status().message();
  ASSERT_EQ(profile->registry.models.size(), 1u);
  const ModelDefaults& model = profile->registry.models.front();
  EXPECT_EQ(model.name, "m");
  EXPECT_EQ(model.config.batch_size, 8);
  EXPECT_EQ(model.config.max_batch_delay_ms, 5);
  EXPECT_TRUE(model.default_version);
}

TEST(Profile, EnvironmentWinsOverTheLineWhichWinsOverTheFile) {
  const std::string path = TempPath("config.properties");
  std::ofstream(path) << "enable_envvars_config=true\nmodel_store=file\n"
                         "default_workers_per_model=1\n";
  std::map<std::string, std::string> variables = {{"TS_CONFIG_FILE", path}};
  const auto getenv = [&](const std::string& name) {
    const auto at = variables.find(name);
    return at == variables.end() ? std::nullopt : std::optional(at->second);
  };
  const auto store = [&] {
    const auto profile = ReadProfile({.ts_config = "/absent",
                                      .model_store = "line",
                                      .models = {"m.mar"},
                                      .getenv = getenv});
    return profile.ok() ? profile->registry.model_store : std::string("failed");
  };
  EXPECT_EQ(store(), "line");
  variables["TS_MODEL_STORE"] = "environment";
  EXPECT_EQ(store(), "environment");
  const auto models = [&] {
    const auto profile =
        ReadProfile({.models = {"line.mar"}, .getenv = getenv});
    return profile.ok() ? profile->registry.load_models
                        : std::vector<std::string>{"failed"};
  };
  EXPECT_THAT(models(), testing::ElementsAre("line.mar"));
  variables["TS_LOAD_MODELS"] = "a.mar,b.mar";
  EXPECT_THAT(models(), testing::ElementsAre("a.mar", "b.mar"));
}

TEST(Profile, AllModelsAreAskedForInAnyCase) {
  for (const char* all : {"all", "ALL", "All"}) {
    const auto of_file = ProfileOf({{"load_models", all}});
    ASSERT_TRUE(of_file.ok());
    EXPECT_THAT(of_file->registry.load_models, testing::ElementsAre("all"));
    const auto of_line =
        ReadProfile({.models = {all}, .getenv = [](const std::string&) {
                       return std::nullopt;
                     }});
    ASSERT_TRUE(of_line.ok());
    EXPECT_THAT(of_line->registry.load_models, testing::ElementsAre("all"));
  }
  // Among others it is a name.
  EXPECT_THAT(ProfileOf({{"load_models", "ALL,b.mar"}})->registry.load_models,
              testing::ElementsAre("ALL", "b.mar"));
}

TEST(Profile, ValuesMayNameVariables) {
  const auto getenv = [](const std::string& name) {
    return name == "A" ? std::optional<std::string>("x$$y") : std::nullopt;
  };
  Properties properties = {{"one", "$$A$$/b/$$A$$"}, {"two", "a$$b"}};
  ASSERT_TRUE(PutNamedVariables(getenv, properties).ok());
  EXPECT_EQ(properties, (Properties{{"one", "x$$y/b/x$$y"}, {"two", "a$$b"}}));
  properties = {{"model_store", "$$ABSENT$$"}};
  const Status status = PutNamedVariables(getenv, properties);
  EXPECT_EQ(status.field(), "model_store");
  EXPECT_THAT(status.message(), HasSubstr("'ABSENT'"));
}

TEST(Profile, TheTimeToStartHasADefault) {
  const auto profile = ProfileOf({{"default_startup_timeout", "7"}});
  ASSERT_TRUE(profile.ok());
  EXPECT_EQ(profile->registry.default_startup_timeout_s, 7);
  EXPECT_FALSE(ProfileOf({{"default_startup_timeout", "0"}}).ok());
}

}  // namespace
}  // namespace millrace::server::torchserve
