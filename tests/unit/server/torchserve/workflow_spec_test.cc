#include "server/torchserve/workflow_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace millrace::server::torchserve {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(WorkflowSpec, EachNodeStandsBehindItsInputs) {
  const auto spec = ParseWorkflowSpec(
      "dag:\n  b: [join]\n  first: [a, b]\n  a: [join]\n"
      "models:\n  a: {url: a.mar, batch-size: 4}\n  batch-size: 2\n"
      "  timeout-ms: 70\n");
  ASSERT_TRUE(spec.ok()) << spec.status().message();
  const auto& nodes = spec->nodes;
  ASSERT_EQ(nodes.size(), 4u);
  EXPECT_EQ(nodes[0].name, "first");
  EXPECT_THAT(nodes[0].inputs, IsEmpty());
  EXPECT_EQ(nodes[1].name, "a");
  EXPECT_EQ(nodes[1].url, "a.mar");
  EXPECT_EQ(nodes[1].limits.batch_size, 4);
  EXPECT_EQ(nodes[1].limits.timeout_ms, 70);
  EXPECT_EQ(nodes[2].name, "b");
  EXPECT_EQ(nodes[2].url, "");
  EXPECT_EQ(nodes[2].limits.batch_size, 2);
  EXPECT_EQ(nodes[3].name, "join");
  EXPECT_THAT(nodes[3].inputs, ElementsAre(2, 1));
  EXPECT_THAT(nodes[3].outputs, IsEmpty());
  EXPECT_EQ(spec->dag, R"({"b":["join"],"first":["a","b"],"a":["join"]})");
}

TEST(WorkflowSpec, WhatIsLeftOutIsTorchServes) {
  const auto spec = ParseWorkflowSpec("dag: {a: [b]}");
  ASSERT_TRUE(spec.ok());
  EXPECT_EQ(spec->limits.max_batch_delay_ms, 50);
  EXPECT_EQ(spec->limits.retry_attempts, 1);
  EXPECT_EQ(spec->limits.timeout_ms, 10'000);
}

TEST(WorkflowSpec, OneNodeAloneIsAWorkflow) {
  const auto spec =
      ParseWorkflowSpec("models: {a: {url: a.mar}}\ndag: {a: ['', ~]}");
  ASSERT_TRUE(spec.ok()) << spec.status().message();
  EXPECT_EQ(spec->nodes.size(), 1u);
}

TEST(WorkflowSpec, GraphsThatCannotRunAreRefused) {
  for (const auto& [yaml, words] :
       {std::pair{"dag: {a: [b], b: [c], c: [b]}", "cycle"},
        std::pair{"dag: {a: [b], b: [a]}", "cycle"},
        std::pair{"dag: {a: [a]}", "Self loop"},
        std::pair{"dag: {a: [c], b: [c]}", "only one start node"},
        std::pair{"dag: {a: [b], c: [d]}", "only one start node"}}) {
    const Status status = ParseWorkflowSpec(yaml).status();
    EXPECT_THAT(status.message(), HasSubstr(words)) << yaml;
    EXPECT_EQ(status.reason(), "invalid_dag") << yaml;
  }
}

TEST(WorkflowSpec, WrongWordsAreNamed) {
  for (const auto& [yaml, words] :
       {std::pair{"- a", "'dag'"}, std::pair{"dag: []", "'dag'"},
        std::pair{"dag: {a: b}", "dag.a"},
        std::pair{"dag: {a: [{b: c}]}", "YAML"},
        std::pair{"dag: {a: [b]}\nmodels: [a]", "'models'"},
        std::pair{"dag: {a: [b]}\nmodels: {a: {}}", "models.a.url"},
        std::pair{"dag: {a: [b]}\nmodels: {a: {url: x, size: 1}}",
                  "models.a.size"},
        std::pair{"dag: {a: [b]}\nmodels: {min-workers: -1}",
                  "models.min-workers is '-1'"},
        std::pair{"dag: {a: [b]}\nmodels: {retry-attempts: 1000}", "100"},
        std::pair{"dag: {a/b: [b]}", "'a/b'"},
        std::pair{"dag: {a: [b], a: [c]}", "twice"}, std::pair{"[", "YAML"}}) {
    const Status status = ParseWorkflowSpec(yaml).status();
    EXPECT_THAT(status.message(), HasSubstr(words)) << yaml;
    EXPECT_EQ(status.reason(), "invalid_workflow") << yaml;
  }
}

TEST(WorkflowSpec, ItsSizeHasALimit) {
  const auto chain = [](size_t num_nodes) {
    std::string yaml = "dag:\n";
    for (size_t i = 1; i < num_nodes; ++i) {
      yaml +=
          "  n" + std::to_string(i - 1) + ": [n" + std::to_string(i) + "]\n";
    }
    return ParseWorkflowSpec(yaml).status();
  };
  EXPECT_TRUE(chain(kMaxWorkflowNodes).ok());
  EXPECT_THAT(chain(kMaxWorkflowNodes + 1).message(), HasSubstr("64 nodes"));
}

TEST(WorkflowManifest, NamesHaveNoFolder) {
  const auto manifest = ParseWorkflowManifest(
      R"({"workflow": {"workflowName": "w", "specFile": "s.yaml",
                       "handler": null}})");
  ASSERT_TRUE(manifest.ok());
  EXPECT_EQ(manifest->name, "w");
  EXPECT_EQ(manifest->spec_file, "s.yaml");
  EXPECT_EQ(manifest->handler, "");
  for (const auto& [text, words] :
       {std::pair{R"({"workflow": {"workflowName": "../w"}})", "workflowName"},
        std::pair{R"({"workflow": {"workflowName": 3}})", "workflowName"},
        std::pair{R"({"workflow": {"workflowName": "w"}})", "specFile"},
        std::pair{R"({"workflow": {"workflowName": "w", "specFile": "a/b"}})",
                  "specFile"},
        std::pair{R"({"workflow": {"workflowName": "w", "specFile": "s",
                                   "handler": ".."}})",
                  "handler"},
        std::pair{R"({"model": {}})", "Missing Workflow entry"},
        std::pair{"[]", "Missing Workflow entry"}}) {
    EXPECT_THAT(ParseWorkflowManifest(text).status().message(),
                HasSubstr(words))
        << text;
  }
}

}  // namespace
}  // namespace millrace::server::torchserve
