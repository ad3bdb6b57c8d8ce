#include "server/lifecycle/model_config.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include <string>
#include <utility>
#include <vector>

#include "models/tensor/strings.h"

namespace millrace::server {
namespace {

ModelConfig Read(const std::string& text) {
  auto config = ModelConfig::FromText(text, "config.pbtxt");
  EXPECT_TRUE(config.ok()) << config.status().ToString();
  return config.ok() ? *config : ModelConfig();
}

std::string Refused(const std::string& text) {
  const auto config = ModelConfig::FromText(text, "config.pbtxt");
  EXPECT_FALSE(config.ok()) << text;
  return std::string(config.status().message());
}

std::string NotApplied(const std::string& text) {
  config::ModelSettings settings;
  const Status status = Read(text).ApplyTo(&settings);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << text;
  return std::string(status.message());
}

bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

models::TensorSpec Tensor(const std::string& name, models::DType dtype,
                          std::vector<int64_t> dims) {
  models::TensorSpec spec;
  spec.name = name;
  spec.dtype = dtype;
  spec.dims = std::move(dims);
  return spec;
}

const std::vector<models::TensorSpec> kInputs = {
    Tensor("x", models::DType::kF32, {-1, 3})};
const std::vector<models::TensorSpec> kOutputs = {
    Tensor("y", models::DType::kI64, {-1})};

TEST(ModelConfig, UnknownFieldsAreNamedWithTheirLine) {
  EXPECT_EQ(Refused("name: \"m\"\nmax_batchsize: 3\n"),
            "config.pbtxt line 2: unknown field 'max_batchsize'");
  EXPECT_EQ(Refused("input [ { name: \"x\" dtype: TYPE_FP32 } ]"),
            "config.pbtxt line 1: unknown field 'dtype'");
}

TEST(ModelConfig, FieldsOfTritonThatDoNotWorkHereAreRefusedByName) {
  for (const std::string field : {"model_repository_agents", "batch_input"}) {
    EXPECT_EQ(Refused(field + " { }"), "config.pbtxt line 1: the field '" +
                                           field +
                                           "' is not supported by this "
                                           "server; remove it");
  }
}

TEST(ModelConfig, HintsForOtherRuntimesArePassedOverAndTold) {
  const ModelConfig config = Read(R"(
      optimization { graph { level: 1 } execution_accelerators {
        gpu_execution_accelerator : [ { name : "tensorrt"
          parameters { key: "precision_mode" value: "FP16" } } ] } }
      input [ { name: "x" format: FORMAT_NCHW dims: [ 3 ] } ]
      instance_group [ { count: 2 rate_limiter { priority: 1 } } ]
      model_warmup [ { name: "w" } ]
      parameters { key: "threads" value { string_value: "3" } }
      parameters { key: "t" value { string_value: "9" } }
      parameters { key: "other" value { string_value: "1" } }
      parameters { key: "intra_op_thread_count" value { string_value: "1" } })");
  EXPECT_EQ(config.WithoutEffect(),
            "format, optimization, rate_limiter, model_warmup sample 'w' "
            "without batch_size, parameters intra_op_thread_count, parameters "
            "other, parameters t");
  config::ModelSettings settings;
  ASSERT_TRUE(config.ApplyTo(&settings).ok());
  EXPECT_EQ(settings.graph.instance_count, 2);
  EXPECT_EQ(settings.common.threads, 3);  // -t is of the command line alone
  EXPECT_EQ(Read("max_batch_size: 4").WithoutEffect(), "");

  const auto json = ModelConfig::FromJson(
      R"({"optimization":{"graph":{"level":1}},"max_batch_size":4,
          "input":[{"name":"x","format":"FORMAT_NCHW"}]})");
  ASSERT_TRUE(json.ok()) << json.status().ToString();
  EXPECT_EQ(json->WithoutEffect(), "format, optimization");
  EXPECT_TRUE(Has(json->ToJson(), "\"max_batch_size\":4"));

  // Fields within a hint are not checked; fields outside it are.
  EXPECT_EQ(Refused("optimization { nothing: 3 }\nmax_batchsize: 3"),
            "config.pbtxt line 2: unknown field 'max_batchsize'");
}

TEST(ModelConfig, BackendsThatAreNotHereNameTheWayOut) {
  const auto refused = [](const std::string& text) {
    config::ModelSettings settings;
    return std::string(Read(text).ApplyTo(&settings).message());
  };
  EXPECT_TRUE(Has(refused("backend: \"python\""), "external: {command: "));
  EXPECT_TRUE(
      Has(refused("backend: \"tensorrt\""), "export the model as ONNX"));
  EXPECT_TRUE(
      Has(refused("platform: \"tensorrt_plan\""), "export the model as ONNX"));
}

TEST(ModelConfig, TheResponseCacheIsSwitchedAsInTriton) {
  config::ModelSettings settings;
  ASSERT_TRUE(Read("max_batch_size: 4").ApplyTo(&settings).ok());
  EXPECT_FALSE(settings.graph.response_cache);
  ASSERT_TRUE(Read("response_cache { enable: true }").ApplyTo(&settings).ok());
  EXPECT_TRUE(settings.graph.response_cache);
}

TEST(ModelConfig, WrongValuesAreRefused) {
  EXPECT_TRUE(Has(Refused("max_batch_size: \"8\""), "line 1: "));
  EXPECT_TRUE(Has(Refused("max_batch_size: 99999999999"), "line 1: "));
  EXPECT_TRUE(Has(Refused("name: \"m"), "line 1: "));
  EXPECT_TRUE(Has(Refused("input [ { data_type: TYPE_FP33 } ]"), "TYPE_FP33"));
}

TEST(ModelConfig, JsonOverrideIsReadLikeTheFile) {
  const auto good = ModelConfig::FromJson(R"({"name":"m","max_batch_size":4})");
  ASSERT_TRUE(good.ok()) << good.status().ToString();
  EXPECT_EQ(good->name(), "m");
  const auto unknown = ModelConfig::FromJson(R"({"max_batchsize":4})");
  EXPECT_TRUE(Has(std::string(unknown.status().message()),
                  "unknown field 'max_batchsize'"))
      << unknown.status().ToString();
  EXPECT_FALSE(ModelConfig::FromJson("[1]").ok());
  EXPECT_FALSE(ModelConfig::FromJson("{").ok());
}

TEST(ModelConfig, DynamicBatchingBecomesSettings) {
  config::ModelSettings settings;
  ASSERT_TRUE(Read(R"(
      max_batch_size: 16
      dynamic_batching {
        preferred_batch_size: [ 4, 8 ]
        max_queue_delay_microseconds: 250
        preserve_ordering: true
        priority_levels: 3
        default_priority_level: 2
        default_queue_policy {
          timeout_action: DELAY
          default_timeout_microseconds: 5000
          allow_timeout_override: true
          max_queue_size: 7
        }
      }
      instance_group [ { count: 2 kind: KIND_CPU }, { kind: KIND_AUTO } ]
      parameters { key: "threads" value { string_value: "3" } }
      parameters { key: "anything" value { string_value: "else" } })")
                  .ApplyTo(&settings)
                  .ok());
  EXPECT_EQ(settings.graph.max_batch_size, 16);
  EXPECT_EQ(settings.graph.max_queue_delay_us, 250);
  EXPECT_EQ(settings.graph.preferred_batch_size,
            (std::vector<std::string>{"4", "8"}));
  EXPECT_TRUE(settings.graph.preserve_ordering);
  EXPECT_EQ(settings.graph.priority_levels, 3);
  EXPECT_EQ(settings.graph.default_priority_level, 2);
  EXPECT_EQ(settings.graph.queue_timeout_us, 5000);
  EXPECT_EQ(settings.graph.queue_timeout_action, "delay");
  EXPECT_TRUE(settings.graph.allow_timeout_override);
  EXPECT_EQ(settings.graph.instance_count, 3);
  EXPECT_EQ(settings.common.max_queue_size, 7);
  EXPECT_EQ(settings.common.threads, 3);
}

TEST(ModelConfig, NumbersBeyondAllLimitsAreToldAndRefused) {
  const auto config = ModelConfig::FromJson(
      R"({"dynamic_batching":{"priority_levels":"18446744073709551615"}})");
  ASSERT_TRUE(config.ok());
  EXPECT_TRUE(
      Has(config->ToJson(), R"("priority_levels":18446744073709551615)"))
      << config->ToJson();
  config::ModelSettings settings;
  EXPECT_EQ(config->ApplyTo(&settings).code(), StatusCode::kInvalidArgument);
}

TEST(ModelConfig, LevelsHaveTheirOwnPolicies) {
  config::ModelSettings settings;
  ASSERT_TRUE(Read(R"(
      max_batch_size: 16
      dynamic_batching {
        priority_levels: 2
        priority_queue_policy {
          key: 2
          value {
            timeout_action: DELAY
            default_timeout_microseconds: 70
            allow_timeout_override: true
            max_queue_size: 9
          }
        }
      })")
                  .ApplyTo(&settings)
                  .ok());
  ASSERT_EQ(settings.graph.priority_queue_policy.size(), 1u);
  const config::QueueLevelSettings& level =
      settings.graph.priority_queue_policy.at(2);
  EXPECT_EQ(level.timeout_us, 70);
  EXPECT_EQ(level.timeout_action, "delay");
  EXPECT_TRUE(level.allow_timeout_override);
  EXPECT_EQ(level.max_queue_size, 9);

  EXPECT_TRUE(Has(NotApplied("dynamic_batching { priority_levels: 2 "
                             "priority_queue_policy { key: 3 value {} } }"),
                  "priority_queue_policy is 3 but must be at most 2"));
  EXPECT_TRUE(
      Has(NotApplied("dynamic_batching { priority_levels: 2 "
                     "priority_queue_policy { key: 1 value { "
                     "default_timeout_microseconds: 3600000001 } } }"),
          "default_timeout_microseconds is 3600000001 but must be at most"));
  EXPECT_TRUE(Has(NotApplied("dynamic_batching { priority_levels: 2 "
                             "priority_queue_policy { key: 1 value { "
                             "max_queue_size: 4000000000 } } }"),
                  "max_queue_size is 4000000000 but must be at most"));
}

TEST(ModelConfig, InstanceGroupsNameGpus) {
  const auto applied = [](const std::string& groups) {
    config::ModelSettings settings;
    const Status status =
        Read("instance_group [ " + groups + " ]").ApplyTo(&settings);
    EXPECT_TRUE(status.ok()) << status.ToString();
    return std::pair(settings.common.device, settings.graph.instance_count);
  };
  using Pair = std::pair<std::string, int64_t>;
  EXPECT_EQ(applied("{ count: 2 }"), Pair("cpu", 2));
  EXPECT_EQ(applied("{ kind: KIND_GPU }"), Pair("cuda:all", 1));
  EXPECT_EQ(applied("{ count: 2 kind: KIND_GPU gpus: [0, 3] }"),
            Pair("cuda:0,cuda:3", 2));
  EXPECT_EQ(applied("{ kind: KIND_GPU gpus: 1 }, { kind: KIND_GPU gpus: 0 }"),
            Pair("cuda:1,cuda:0", 1));

  config::ModelSettings settings;
  settings.common.device = "cuda:2,cuda:0";
  settings.graph.instance_count = 2;
  ModelConfig config = Read("");
  config.Complete("m", "millrace_onnx", {}, {}, settings);
  const auto json = nlohmann::json::parse(config.ToJson());
  EXPECT_EQ(json["instance_group"][0]["kind"], "KIND_GPU");
  EXPECT_EQ(json["instance_group"][0]["gpus"], nlohmann::json({2, 0}));
  EXPECT_EQ(json["instance_group"][0]["count"], 2);
}

TEST(ModelConfig, WithoutDynamicBatchingNothingIsJoined) {
  config::ModelSettings settings;
  ASSERT_TRUE(Read("max_batch_size: 16").ApplyTo(&settings).ok());
  EXPECT_EQ(settings.graph.max_batch_size, 1);
}

TEST(ModelConfig, WhatThisServerCannotDoIsRefused) {
  EXPECT_TRUE(Has(NotApplied("backend: \"tensorflow\""), "tensorflow"));
  EXPECT_EQ(Read("platform: \"ensemble\"").Pipeline().status().field(),
            "platform");
  EXPECT_TRUE(Has(NotApplied("max_batch_size: -1"), "at least 0"));
  EXPECT_TRUE(
      Has(NotApplied("instance_group [ { kind: KIND_GPU gpus: 0 }, {} ]"),
          "beside another kind"));
  EXPECT_TRUE(Has(NotApplied("instance_group [ { kind: KIND_GPU gpus: 0 }, "
                             "{ count: 2 kind: KIND_GPU gpus: 1 } ]"),
                  "has counts 1 and 2"));
  EXPECT_TRUE(
      Has(NotApplied("instance_group [ { kind: KIND_GPU gpus: [1, 1] } ]"),
          "names GPU 1 twice"));
  EXPECT_TRUE(Has(NotApplied("instance_group [ { kind: KIND_GPU gpus: -1 } ]"),
                  "GPU -1, which no machine has"));
  EXPECT_TRUE(Has(NotApplied("instance_group [ { kind: KIND_GPU }, "
                             "{ kind: KIND_GPU gpus: 0 } ]"),
                  "on all GPUs beside another one"));
  EXPECT_TRUE(Has(NotApplied("parameters { key: \"threads\" value { "
                             "string_value: \"many\" } }"),
                  "threads is 'many'"));
}

TEST(ModelConfig, VersionPolicyChooses) {
  const std::vector<std::string> all = {"1", "2", "10"};
  using List = std::vector<std::string>;
  EXPECT_EQ(*ModelConfig().ChooseVersions(all), (List{"10"}));
  EXPECT_EQ(*Read("version_policy { latest { num_versions: 2 } }")
                 .ChooseVersions(all),
            (List{"2", "10"}));
  EXPECT_EQ(*Read("version_policy { all {} }").ChooseVersions(all), all);
  EXPECT_EQ(*Read("version_policy { specific { versions: [ 2 ] } }")
                 .ChooseVersions(all),
            (List{"2"}));
  EXPECT_EQ(Read("version_policy { specific { versions: [ 3 ] } }")
                .ChooseVersions(all)
                .status()
                .field(),
            "version_policy");
}

TEST(ModelConfig, AConfigurationThatContradictsTheModelIsRefused) {
  const auto check = [](const std::string& text) {
    return std::string(Read(text).Check(kInputs, kOutputs).message());
  };
  EXPECT_EQ(check(R"(max_batch_size: 8
      input [ { name: "x" data_type: TYPE_FP32 dims: [ 3 ] } ]
      output [ { name: "y" data_type: TYPE_INT64 dims: [ ] } ])"),
            "");
  EXPECT_EQ(check(R"(input [ { name: "x" dims: [ -1, 3 ] } ])"), "");
  EXPECT_EQ(check(R"(input [ { name: "z" } ])"),
            "input 'z' of the configuration is not in the model, which has "
            "'x'");
  EXPECT_EQ(check(R"(output [ { name: "y" data_type: TYPE_FP32 } ])"),
            "output 'y' of the configuration has data_type TYPE_FP32 but the "
            "model has TYPE_INT64");
  EXPECT_EQ(check(R"(input [ { name: "x" dims: [ 3 ] } ])"),
            "input 'x' of the configuration has dims [3] but the model has "
            "[-1, 3]");
  EXPECT_EQ(check(R"(max_batch_size: 8 input [ { name: "x" dims: [ 4 ] } ])"),
            "input 'x' of the configuration has dims [4], which max_batch_size "
            "makes [-1, 4], but the model has [-1, 3]");
}

TEST(ModelConfig, TensorsOfTextsAreTypeString) {
  const std::vector<models::TensorSpec> texts = {
      Tensor("text", models::kString, {-1})};
  const ModelConfig config =
      Read("input [ { name: \"text\" data_type: TYPE_STRING dims: [ -1 ] } ]");
  EXPECT_TRUE(config.Check(texts, kOutputs).ok())
      << config.Check(texts, kOutputs).ToString();
  EXPECT_TRUE(Has(std::string(config.Check(kInputs, kOutputs).message()),
                  "input 'text'"));
}

TEST(ModelConfig, ClientsAreToldWhatWasLeftOut) {
  ModelConfig config = Read("max_batch_size: 8");
  config.Complete("m", "millrace_onnx", kInputs, kOutputs, {});
  const std::string json = config.ToJson();
  for (const std::string part :
       {R"("name":"m")", R"("platform":"millrace_onnx")",
        R"("max_batch_size":8)", R"("data_type":"TYPE_FP32")", R"("dims":[3])",
        R"("latest":{"num_versions":1})", R"("kind":"KIND_CPU")"}) {
    EXPECT_TRUE(Has(json, part)) << part << "\n" << json;
  }
}

}  // namespace
}  // namespace millrace::server
