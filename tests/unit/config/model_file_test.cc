#include "config/model_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "config/drift_settings.h"
#include "config/external_settings.h"
#include "config/micro_batching_settings.h"
#include "config/ragged_settings.h"
#include "config/session_settings.h"
#include "config/shadow_settings.h"
#include "config/task_settings.h"
#include "config/traffic_settings.h"
#include "config/transducer_settings.h"

namespace millrace::config {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;
using ::testing::StartsWith;

StatusOr<ModelFile> Read(const std::string& text) {
  ModelSettings defaults{.name = "m"};
  defaults.graph.max_queue_delay_us = 77;
  return ReadModelFile(text, "config.yaml", defaults);
}

std::string Refused(const std::string& text) {
  const auto file = Read(text);
  EXPECT_EQ(file.status().code(), StatusCode::kInvalidArgument) << text;
  return std::string(file.status().message());
}

TEST(ModelFile, SettingsAreThoseOfTheServersFile) {
  const auto file = Read(R"(
max_batch_size: 8
preferred_batch_size: [2, 4]
threads: 3
numa_node: 1
cpu_cores: 0-3
served_model_name: [a, b]
default_model_filename: net.onnx
)");
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  EXPECT_EQ(file->settings.name, "m");
  EXPECT_EQ(file->settings.graph.max_batch_size, 8);
  EXPECT_THAT(file->settings.graph.preferred_batch_size, ElementsAre("2", "4"));
  EXPECT_EQ(file->settings.graph.max_queue_delay_us, 77);
  EXPECT_EQ(file->settings.common.threads, 3);
  EXPECT_EQ(file->settings.common.numa_node, 1);
  EXPECT_EQ(file->settings.common.cpu_cores, "0-3");
  EXPECT_THAT(file->settings.served_model_name, ElementsAre("a", "b"));
  EXPECT_EQ(file->default_model_filename, "net.onnx");
  EXPECT_EQ(file->version_policy.latest, 1);
}

TEST(ModelFile, VersionsAndLabels) {
  EXPECT_TRUE(Read("version_policy: all")->version_policy.all);
  EXPECT_EQ(Read("version_policy: {latest: 3}")->version_policy.latest, 3);
  EXPECT_EQ(Read("version_policy: latest")->version_policy.latest, 1);
  const auto file =
      Read("version_policy: [1, 4]\nversion_labels: {stable: 1, next: 4}");
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  EXPECT_THAT(file->version_policy.specific, ElementsAre(1, 4));
  EXPECT_THAT(file->version_labels,
              ElementsAre(Pair("next", "4"), Pair("stable", "1")));
}

TEST(ModelFile, FingerprintLeavesOutWhatChangesWhileServing) {
  const std::string of = Read("max_batch_size: 8")->fingerprint;
  EXPECT_EQ(Read("max_batch_size: 8\ninstance_count: 2\n"
                 "version_labels: {a: 1}")
                ->fingerprint,
            of);
  EXPECT_NE(Read("max_batch_size: 9")->fingerprint, of);
  EXPECT_NE(Read("max_batch_size: 8\ndefault_model_filename: x")->fingerprint,
            of);
}

TEST(ModelFile, TaskAndItsOptionsInAnyOrder) {
  const auto file = Read(R"(
task_options:
  labels: index_to_name.json
  resize: [256, 320]
  crop: 224
  image_mean: [0.485, 0.456, 0.406]
  top_k: 3
  scaled_decoding: true
task: classify
)");
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  ASSERT_NE(file->settings.task, nullptr);
  const TaskSettings& task = *file->settings.task;
  EXPECT_EQ(task.kind, TaskKind::kClassify);
  EXPECT_EQ(task.labels, "index_to_name.json");
  EXPECT_EQ(task.top_k, 3);
  EXPECT_EQ(task.activation, "auto");
  EXPECT_THAT(task.image.resize, ElementsAre("256", "320"));
  EXPECT_THAT(task.image.center_crop, ElementsAre("224"));
  EXPECT_THAT(task.image.mean, ElementsAre("0.485", "0.456", "0.406"));
  EXPECT_TRUE(task.image.scaled_decoding);
  EXPECT_EQ(Read("")->settings.task, nullptr);
  EXPECT_NE(Read("task: classify\ntask_options: {top_k: 1}")->fingerprint,
            Read("task: classify\ntask_options: {top_k: 2}")->fingerprint);
}

TEST(ModelFile, TheResponseCacheHasTwoSpellings) {
  EXPECT_FALSE(Read("")->settings.graph.response_cache);
  EXPECT_TRUE(Read("response_cache: true")->settings.graph.response_cache);
  EXPECT_TRUE(
      Read("response_cache: {enable: true}")->settings.graph.response_cache);
  EXPECT_FALSE(
      Read("response_cache: {enable: false}")->settings.graph.response_cache);
  EXPECT_THAT(Refused("response_cache: {enabled: true}"),
              StartsWith("config.yaml line 1: response_cache has no single"));
}

TEST(ModelFile, TextTasksHaveTheirOwnOptions) {
  const auto file = Read(R"(
task: embed
task_options: {pooling: cls, normalize: false, max_seq_length: 256}
)");
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  const TextTaskSettings& text = file->settings.task->text;
  EXPECT_EQ(text.pooling, "cls");
  EXPECT_EQ(text.normalize, "false");
  EXPECT_EQ(text.max_length, 256);
  EXPECT_EQ(text.tokenizer, "tokenizer.json");
  EXPECT_THAT(Refused("task: rerank\ntask_options: {pooling: cls}"),
              StartsWith("config.yaml line 2: unknown option of task rerank "
                         "'pooling'"));
}

TEST(ModelFile, ErrorsOfTasksNameLineAndKey) {
  EXPECT_THAT(Refused("task: clasify"),
              StartsWith("config.yaml line 1: task is 'clasify' but must be "
                         "one of: classify, detect, "));
  EXPECT_THAT(Refused("task: classify\ntask_options:\n  topp_k: 1"),
              StartsWith("config.yaml line 3: unknown option of task classify "
                         "'topp_k'; did you mean 'top_k'?"));
  EXPECT_THAT(Refused("task: embed\ntask_options: {resize: 1}"),
              StartsWith("config.yaml line 2: unknown option of task embed "
                         "'resize'; "));
  EXPECT_THAT(Refused("task: classify\ntask_options: {crop: 1, crop_size: 2}"),
              StartsWith("config.yaml line 2: crop_size is given twice"));
  EXPECT_THAT(Refused("task: classify\ntask_options: {top_k: -1}"),
              StartsWith("config.yaml line 2: top_k is '-1'"));
  EXPECT_THAT(Refused("task_options: {top_k: 1}"),
              StartsWith("config.yaml: task_options needs a task"));
  EXPECT_THAT(Refused("task: classify\ntask_options: 3"),
              StartsWith("config.yaml: task_options needs a task"));
}

TEST(ModelFile, ErrorsNameLineAndKey) {
  EXPECT_EQ(Refused("threads: 1\nmax_batchsize: 3"),
            "config.yaml line 2: unknown setting 'max_batchsize'; did you mean "
            "'max_batch_size'?");
  EXPECT_THAT(Refused("version_polcy: all"),
              StartsWith("config.yaml line 1: unknown setting "
                         "'version_polcy'; did you mean 'version_policy'?"));
  EXPECT_THAT(Refused("threads: many"),
              StartsWith("config.yaml line 1: threads is 'many'"));
  EXPECT_EQ(Refused("threads: 1\nthreads: 2"),
            "config.yaml line 2: threads is given twice; keep one of them");
  EXPECT_THAT(Refused("threads: {a: 1}"),
              StartsWith("config.yaml line 1: threads has no single value"));
  EXPECT_THAT(Refused("- a"), StartsWith("config.yaml holds no settings"));
  EXPECT_THAT(Refused("a: [1"), StartsWith("config.yaml line "));
  for (const char* policy :
       {"version_policy: newest", "version_policy: []",
        "version_policy: {latest: 0}", "version_policy: [0]",
        "version_policy: [a]", "version_policy: {latest: 1, all: 2}"}) {
    EXPECT_THAT(Refused(policy), StartsWith("config.yaml line 1: ")) << policy;
  }
  for (const char* labels :
       {"version_labels: stable", "version_labels: {12: 1}",
        "version_labels: {a/b: 1}", "version_labels: {a: b}",
        "version_labels: {'': 1}"}) {
    EXPECT_THAT(Refused(labels), StartsWith("config.yaml line 1: ")) << labels;
  }
}

TEST(ModelFile, VariablesOfAHandlerAreAMap) {
  const std::string begin = "external: {command: [a], environment: ";
  const auto file = Read(begin + "{A: 1, B: ''}}");
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  EXPECT_EQ(file->pipeline.external->environment.at("A"), "1");
  EXPECT_EQ(file->pipeline.external->environment.at("B"), "");
  EXPECT_TRUE(Read(begin + "}").ok());
  for (const char* other : {"A=1}", "[A=1]}", "''}"}) {
    EXPECT_THAT(Refused(begin + other),
                HasSubstr("environment needs a map such as {NAME: value}"))
        << other;
  }
}

TEST(ModelFile, AnEmptyFileSaysNothing) {
  EXPECT_TRUE(Read("")->fingerprint.empty());
  EXPECT_TRUE(Read("# nothing\n").ok());
}

TEST(ModelFile, SessionsSayHowTheyReadBytes) {
  const auto file = Read(
      "session: {input: x, encoding: pcm16, context: 64, sample_rate: 16000}");
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  ASSERT_NE(file->pipeline.session, nullptr);
  const SessionSettings& session = *file->pipeline.session;
  EXPECT_EQ(SessionText(session),
            "input=x,encoding=pcm16,context=64,sample_rate=16000");
  EXPECT_EQ(SessionText(*ParseSession(SessionText(session))),
            SessionText(session));
  EXPECT_EQ(SessionText(*Read("session: {}")->pipeline.session),
            "encoding=raw");
  EXPECT_NE(file->fingerprint, Read("session: {}")->fingerprint);
  EXPECT_THAT(Refused("session: 5"), HasSubstr("session: it wants lines"));
  EXPECT_THAT(Refused("session: {encoding: mp3}"), HasSubstr("raw or pcm16"));
  EXPECT_THAT(Refused("session: {context: -1}"), HasSubstr("context"));
  EXPECT_THAT(Refused("session: {context: 20000}"), HasSubstr("16384"));
  EXPECT_THAT(Refused("session: {sample_rate: 0}"), HasSubstr("sample_rate"));
  EXPECT_THAT(Refused("session: {rate: 1}"), HasSubstr("unknown key 'rate'"));
  EXPECT_THAT(Refused("session: {input: [x]}"), HasSubstr("single value"));
  const auto refused = [](const std::string& text) {
    return std::string(ParseSession(text).status().message());
  };
  EXPECT_EQ(SessionText(*ParseSession("")), "encoding=raw");
  EXPECT_THAT(refused("pcm16"), HasSubstr("'pcm16' is no key=value"));
  EXPECT_THAT(refused("context=1,,"), HasSubstr("'' is no key=value"));
  EXPECT_THAT(refused("context=1,context=2"), HasSubstr("given twice"));
  EXPECT_THAT(refused("encoding=mp3"), HasSubstr("raw or pcm16"));
  EXPECT_THAT(refused("context=x"), HasSubstr("context"));
  EXPECT_THAT(refused("rate=1"), HasSubstr("unknown key 'rate'"));
}

TEST(ModelFile, ReadsATransducer) {
  const auto file = Read(
      "transducer: {predictor: p.pt2, joiner: j.pt2, segment_length: 8, "
      "right_context_length: 0, feature_stats: s.json, max_symbols: 3}");
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  EXPECT_EQ(TransducerText(*file->pipeline.transducer),
            "predictor p.pt2, joiner j.pt2, segment_length 8, "
            "right_context_length 0, feature_stats s.json, max_symbols 3");
  EXPECT_NE(file->fingerprint, Read("transducer: {}")->fingerprint);
  EXPECT_EQ(TransducerText(*Read("transducer: {}")->pipeline.transducer),
            "predictor predictor.pt2, joiner joiner.pt2, segment_length 16, "
            "right_context_length 4, feature_stats none, max_symbols 10");
  EXPECT_THAT(Refused("transducer: x"), HasSubstr("needs lines such as"));
  EXPECT_THAT(Refused("transducer: {segment_length: 0}"),
              HasSubstr("segment_length"));
  EXPECT_THAT(Refused("transducer: {max_symbols: 101}"), HasSubstr("100"));
  EXPECT_THAT(Refused("transducer: {joiner: [x]}"), HasSubstr("single value"));
  EXPECT_THAT(Refused("transducer: {encoder: x}"),
              HasSubstr("unknown key 'encoder'"));
}

TEST(ModelFile, RaggedInputsSayWhatTheyArePaddedWith) {
  const auto file = Read("ragged_inputs: {ids: 1, x: -0.5, mask: mask}");
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  ASSERT_NE(file->pipeline.ragged, nullptr);
  const RaggedSettings& ragged = *file->pipeline.ragged;
  EXPECT_EQ(RaggedText(ragged), "ids=1,x=-0.5,mask=mask");
  EXPECT_TRUE(ragged.inputs[2].is_mask);
  const auto again = ParseRagged(RaggedText(ragged));
  ASSERT_TRUE(again.ok()) << again.status().ToString();
  EXPECT_EQ(RaggedText(*again), RaggedText(ragged));
  EXPECT_NE(file->fingerprint, Read("ragged_inputs: {ids: 2}")->fingerprint);
}

TEST(ModelFile, RaggedInputsThatSayNothingAreRefused) {
  for (const char* value : {"{x: much}", "{x: nan}", "{x: inf}", "{x: 1e999}",
                            "{x: '1 '}", "{'': 0}", "{x: ''}"}) {
    EXPECT_THAT(Refused(std::string("ragged_inputs: ") + value),
                ::testing::HasSubstr("neither a number nor 'mask'"))
        << value;
  }
  EXPECT_THAT(Refused("ragged_inputs: [x]"),
              ::testing::HasSubstr("lines such"));
  EXPECT_THAT(Refused("ragged_inputs: {x: 0, x: 1}"),
              ::testing::HasSubstr("'x' twice"));
  for (const char* text : {"", "x", "x=0,", "x=0,y", "=0", "x="}) {
    EXPECT_FALSE(ParseRagged(text).ok()) << text;
  }
}

TEST(ModelFile, MicroBatching) {
  const auto file = Read(R"(
micro_batching:
  micro_batch_size: 4
  parallelism: {preprocess: 2, inference: 3}
)");
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  EXPECT_EQ(MicroBatchingText(*file->pipeline.micro_batching),
            "size 4, preprocess 2, inference 3, postprocess 1");
  EXPECT_EQ(Read("{}")->pipeline.micro_batching, nullptr);
  EXPECT_THAT(Refused("micro_batching: 4"),
              ::testing::HasSubstr("needs lines such as"));
  EXPECT_THAT(Refused("micro_batching: {micro_batch_size: 0}"),
              ::testing::HasSubstr("micro_batch_size"));
  EXPECT_THAT(Refused("micro_batching: {micro_batch_size: [1]}"),
              ::testing::HasSubstr("needs a whole number"));
  EXPECT_THAT(Refused("micro_batching: {preprocess: 2}"),
              ::testing::HasSubstr("unknown key 'preprocess'"));
  EXPECT_THAT(Refused("micro_batching: {parallelism: {inference: 65}}"),
              ::testing::HasSubstr("inference"));
  EXPECT_THAT(Refused("micro_batching: {parallelism: {decode: 1}}"),
              ::testing::HasSubstr("unknown key 'decode'"));
}

TEST(ModelFile, Drift) {
  const auto file = Read("drift: {baseline: b.json, window: 50}");
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  EXPECT_EQ(DriftText(*file->pipeline.drift),
            "window 50, max_classes 100, min_predictions 50, baseline b.json");
  EXPECT_EQ(DriftText(*Read("drift: {}")->pipeline.drift),
            "window 1000, max_classes 100, min_predictions 100, no baseline");
  EXPECT_THAT(Refused("drift: true"), ::testing::HasSubstr("needs lines such"));
  EXPECT_THAT(Refused("drift: {window: 0}"), ::testing::HasSubstr("window is"));
  EXPECT_EQ(Read("drift: {min_predictions: 9, window: 9}")
                ->pipeline.drift->min_predictions,
            9);
  EXPECT_THAT(Refused("drift: {min_predictions: 10, window: 9}"),
              ::testing::HasSubstr("min_predictions is 10 but the window has 9 "
                                   "predictions at most; let"));
  EXPECT_THAT(Refused("drift: {min_predictions: 0}"),
              ::testing::HasSubstr("min_predictions is '0'"));
  EXPECT_THAT(Refused("drift: {windows: 1}"),
              ::testing::HasSubstr("unknown key 'windows'"));
}

TEST(ModelFile, Traffic) {
  const auto text = [](const std::string& yaml) {
    const auto file = Read(yaml);
    EXPECT_TRUE(file.ok()) << file.status().ToString();
    const auto resolved =
        ResolveVersions(*file->pipeline.traffic, {{"stable", "1"}}, {"1", "2"});
    return resolved.ok() ? TrafficText(*resolved)
                         : std::string(resolved.status().message());
  };
  EXPECT_EQ(text("traffic: {1: 90, 2: 10}"), "1=90,2=10");
  EXPECT_EQ(text(R"(
traffic:
  weights: {stable: 3, 2: 1}
  pin_by: X-User-Id
  seed: 9
  variant_header: X-Variant
  variants: {a: stable, b: 2}
)"),
            "1=3,2=1 pin_by=x-user-id seed=9 x-variant:a=1,b=2");
  EXPECT_EQ(text("traffic: {variant_header: X-V, variants: {a: 2}}"),
            "x-v:a=2");
  EXPECT_THAT(text("traffic: {3: 1}"), ::testing::HasSubstr("names '3'"));
  EXPECT_THAT(text("traffic: {stable: 1, 1: 1}"),
              ::testing::HasSubstr("version 1 twice"));
  // Traffic changes while versions serve.
  EXPECT_EQ(Read("traffic: {1: 1}")->fingerprint, "");
  EXPECT_THAT(Refused("traffic: 1"), ::testing::HasSubstr("1 to 100 lines"));
  EXPECT_THAT(Refused("traffic: {1: 0, 2: 0}"),
              ::testing::HasSubstr("all weights are 0"));
  EXPECT_THAT(Refused("traffic: {1: 1, 1: 2}"), ::testing::HasSubstr("twice"));
  EXPECT_THAT(Refused("traffic: {1: x}"),
              ::testing::HasSubstr("the weight of '1'"));
  EXPECT_THAT(Refused("traffic: {pin_by: X-U}"),
              ::testing::HasSubstr("add weights"));
  EXPECT_THAT(Refused("traffic: {weights: {1: 1}, pin_by: Cookie}"),
              ::testing::HasSubstr("begins with 'X-'"));
  EXPECT_THAT(Refused("traffic: {weights: {1: 1}, pin_by: X-Api-Key}"),
              ::testing::HasSubstr("neither X-Api-Key"));
  EXPECT_THAT(Refused("traffic: {weights: {1: 1}, variants: {a: 1}}"),
              ::testing::HasSubstr("give both"));
}

TEST(ModelFile, Shadow) {
  const auto text = [](const std::string& yaml) {
    const auto file = Read(yaml);
    EXPECT_TRUE(file.ok()) << file.status().ToString();
    return ShadowText(*file->pipeline.shadow);
  };
  EXPECT_EQ(text("shadow: {version: 2, percent: 12.5}"), "version 2: 12.5 %");
  EXPECT_EQ(text("shadow: [{model: m, version: 2}, {model: n, percent: 1}]"),
            "model m version 2: 100 %, model n: 1 %");
  EXPECT_THAT(Refused("shadow: {percent: 1}"),
              ::testing::HasSubstr("neither a version nor a model"));
  EXPECT_THAT(Refused("shadow: []"), ::testing::HasSubstr("0 targets"));
  for (const char* percent : {"0", "-1", "101", "nan", "x", "[1]"}) {
    EXPECT_THAT(
        Refused(std::string("shadow: {version: 1, percent: ") + percent + "}"),
        ::testing::HasSubstr("percent is"));
  }
  EXPECT_THAT(Refused("shadow: {version: 1, tolerance: -1}"),
              ::testing::HasSubstr("tolerance is '-1'"));
  EXPECT_THAT(Refused("shadow: {version: 1, share: 1}"),
              ::testing::HasSubstr("unknown key 'share'"));
}

}  // namespace
}  // namespace millrace::config
