#include "config/load.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "config/base/wrap.h"
#include "config/foreign_names.h"
#include "config/settings_visitor.h"
#include "config/speculation.h"

namespace millrace::config {
namespace {

namespace fs = std::filesystem;

class LoadTest : public testing::Test {
 protected:
  LoadTest() {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    file_ = fs::path(testing::TempDir()) /
            ("millrace_load_" + std::to_string(getpid()) + info->name());
    sources_.getenv = [this](const std::string& name) {
      const auto at = environment_.find(name);
      return at == environment_.end() ? std::nullopt
                                      : std::optional(at->second);
    };
  }
  ~LoadTest() override { fs::remove(file_); }

  void File(const std::string& yaml) {
    std::ofstream(file_) << yaml;
    sources_.config_file = file_.string();
  }
  Settings Good() {
    auto loaded = Load(sources_);
    EXPECT_TRUE(loaded.ok()) << loaded.status().ToString();
    return loaded.ok() ? loaded->settings : Settings();
  }
  std::string Bad() {
    const auto loaded = Load(sources_);
    EXPECT_FALSE(loaded.ok());
    return std::string(loaded.status().message());
  }
  static bool Has(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  }

  fs::path file_;
  std::map<std::string, std::string> environment_;
  Sources sources_;
};

TEST_F(LoadTest, ADraftModelIsAMethodOfItsOwn) {
  LlmSettings llm;
  const auto method = [&] { return *SpeculativeMethodOf(llm); };
  EXPECT_EQ(method(), SpeculativeMethod::kNgram);
  llm.speculative_model = "small.gguf";
  EXPECT_EQ(method(), SpeculativeMethod::kDraftModel);
  llm.speculative_method = "draft_model";
  EXPECT_EQ(method(), SpeculativeMethod::kDraftModel);
  llm.num_speculative_tokens = 0;
  EXPECT_EQ(method(), SpeculativeMethod::kNone);
  llm.num_speculative_tokens = 5;
  llm.speculative_method = "none";
  EXPECT_EQ(method(), SpeculativeMethod::kNone) << "off is off";

  sources_.models.push_back({.path = "model.gguf"});
  sources_.flags = {{"speculative-method", "ngram"},
                    {"model-draft", "small.gguf"}};
  EXPECT_TRUE(Has(Bad(), "speculative_model is 'small.gguf'; leave one"));
  sources_.flags = {{"speculative-method", "draft_model"}};
  EXPECT_TRUE(Has(Bad(), "set speculative_model to a smaller one"));
}

TEST_F(LoadTest, NothingGivenMeansTheDefaultsOfTheStructs) {
  const auto loaded = Load(sources_);
  ASSERT_TRUE(loaded.ok());
  EXPECT_EQ(loaded->settings.server.http_port, 8000);
  EXPECT_EQ(loaded->settings.llm.max_num_seqs, 64);
  EXPECT_TRUE(loaded->origins.empty());
}

TEST_F(LoadTest, FlagWinsOverEnvironmentOverFile) {
  File("http_port: 1\ngrpc_port: 1\nmetrics_port: 1\n");
  environment_ = {{"MILLRACE_GRPC_PORT", "2"}, {"MILLRACE_METRICS_PORT", "2"}};
  sources_.flags = {{"metrics-port", "3"}};
  const auto loaded = Load(sources_);
  ASSERT_TRUE(loaded.ok()) << loaded.status().ToString();
  EXPECT_EQ(loaded->settings.server.http_port, 1);
  EXPECT_EQ(loaded->settings.server.grpc_port, 2);
  EXPECT_EQ(loaded->settings.server.metrics_port, 3);
  EXPECT_EQ(loaded->origins.at("http_port"), Origin::kFile);
  EXPECT_EQ(loaded->origins.at("grpc_port"), Origin::kEnvironment);
  EXPECT_EQ(loaded->origins.at("metrics_port"), Origin::kFlag);
  EXPECT_EQ(loaded->origins.count("host"), 0u);
}

TEST_F(LoadTest, UnknownKeyNamesTheNearest) {
  File("host: a\nhtp_port: 9\n");
  const std::string error = Bad();
  EXPECT_TRUE(Has(error, "line 2")) << error;
  EXPECT_TRUE(
      Has(error, "unknown setting 'htp_port'; did you mean 'http_port'"))
      << error;
  EXPECT_EQ(UnknownFlag("htp-port").message(),
            "unknown flag --htp-port; did you mean --http-port?");
  sources_ = {};
  sources_.flags = {{"max-num-sqs", "3"}};
  EXPECT_TRUE(Has(Bad(), "did you mean --max-num-seqs?"));
}

TEST_F(LoadTest, WhatIsNearNothingGetsNoSuggestion) {
  EXPECT_EQ(UnknownFlag("foo").message(),
            "unknown flag --foo; millrace serve --help-all lists the flags");
  EXPECT_EQ(UnknownFlag("x").message(),
            "unknown flag -x; millrace serve --help-all lists the flags");
  EXPECT_TRUE(Has(std::string(UnknownFlag("iso").message()), "--isa?"));
  EXPECT_TRUE(Has(std::string(UnknownFlag("no-acess-log").message()),
                  "--no-access-log?"));
  File("foo: 1\n");
  EXPECT_TRUE(Has(Bad(), "unknown setting 'foo'; millrace serve --help-all"));
}

TEST_F(LoadTest, FlagsOfOtherServersAreAnswered) {
  for (const auto& [name, words] :
       std::vector<std::pair<std::string, std::string>>{
           {"lora", "--lora is a flag of other servers: say --lora-modules"},
           {"ngl", "-ngl is a flag of other servers: all layers of a model"},
           {"mem-fraction-static", "--kv-cache-memory-bytes"},
           {"pipeline-parallel-size", "--threads"},
           {"dtype", "--compute-dtype"},
           {"trust-remote-code", "no code of a model is ever run"},
           {"temp", "--override-generation-config"},
           {"v", "-v is a flag of other servers: say --log-level debug"},
           {"ssl-ciphers", "TLS 1.2"}}) {
    EXPECT_TRUE(Has(std::string(UnknownFlag(name).message()), words)) << name;
  }
  File("models: [{path: m, lora: x}]\n");
  EXPECT_TRUE(Has(Bad(), "'lora'; say --lora-modules NAME=PATH"));
}

// A name that is ours has no answer for those of others.
TEST(ForeignNames, NoneIsASetting) {
  Settings settings;
  VisitSettings(settings, [](const SettingInfo& info, SettingRef) {
    EXPECT_EQ(ForeignNameAnswer(info.name), "") << info.name;
    for (const auto& alias : info.aliases) {
      EXPECT_EQ(ForeignNameAnswer(alias.name), "") << alias.name;
    }
  });
}

TEST(ForeignNames, FlagsOfTritonsCommandLineAreAnswered) {
  for (const char* name :
       {"strict_readiness", "disable_auto_complete_config", "backend_directory",
        "backend_config", "log_info", "log_file", "trace_config",
        "allow_gpu_metrics", "pinned_memory_pool_byte_size"}) {
    EXPECT_NE(ForeignNameAnswer(name), "") << name;
  }
}

TEST_F(LoadTest, ErrorsNameFlagsAsTheyAreTyped) {
  sources_.flags = {{"isa", "none"}};
  EXPECT_TRUE(Has(Bad(), "--isa is 'none'"));
  sources_.flags = {{"no-access-log", "x"}};
  EXPECT_TRUE(Has(Bad(), "--no-access-log is 'x'"));
  sources_.flags = {{"np", "x"}};
  EXPECT_TRUE(Has(Bad(), "-np (max_num_seqs) is 'x'"));
  sources_.flags = {{"t", "x"}};
  EXPECT_TRUE(Has(Bad(), "-t (threads) is 'x'"));
}

TEST_F(LoadTest, VariablesThatAreNoSettingAreWarnedOf) {
  sources_.environment = [] {
    return Environment{{"MILLRACE_HTTP_PROT", "9"},
                       {"MILLRACE_HTTP_PORT", "9"},
                       {"MILLRACE_CACHE", "/x"},
                       {"MILLRACE_FROBNICATE", "1"},
                       {"MILLRACE_EMPTY", ""},
                       {"PATH", "/bin"},
                       // Of Kubernetes, for services called millrace and
                       // millrace-web.
                       {"MILLRACE_PORT", "tcp://10.0.0.1:80"},
                       {"MILLRACE_SERVICE_HOST", "10.0.0.1"},
                       {"MILLRACE_PORT_80_TCP_ADDR", "10.0.0.1"},
                       {"MILLRACE_WEB_SERVICE_PORT_HTTP", "80"}};
  };
  const auto loaded = Load(sources_);
  ASSERT_TRUE(loaded.ok());
  EXPECT_EQ(loaded->warnings,
            (std::vector<std::string>{
                "the environment variable MILLRACE_FROBNICATE has no effect: "
                "there is no such setting",
                "the environment variable MILLRACE_HTTP_PROT has no effect: "
                "there is no such setting; did you mean "
                "MILLRACE_HTTP_PORT?"}));
}

TEST_F(LoadTest, AnOverrideOfSamplingMayBeAMap) {
  File(
      "override_generation_config: {temperature: 0.5}\n"
      "models: [{path: m.gguf, override_generation_config: {top_k: 4}}]\n");
  const Settings settings = Good();
  EXPECT_EQ(settings.llm.override_generation_config, R"({"temperature": 0.5})");
  EXPECT_EQ(settings.models[0].llm.override_generation_config,
            R"({"top_k": 4})");
}

TEST_F(LoadTest, ErrorsSayWhereTheValueCameFrom) {
  File("http_port: 70000\n");
  EXPECT_EQ(Bad(), file_.string() +
                       " line 1: http_port is '70000' but must be at most "
                       "65535");
  sources_.config_file.clear();
  environment_ = {{"MILLRACE_HTTP_PORT", "tcp://10.0.0.1:80"}};
  EXPECT_EQ(Bad(),
            "MILLRACE_HTTP_PORT is 'tcp://10.0.0.1:80' but must be a "
            "whole number");
  environment_.clear();
  sources_.flags = {{"http-port", "-1"}};
  EXPECT_EQ(Bad(), "--http-port is '-1' but must be at least 0");
}

TEST_F(LoadTest, AliasesReachTheCanonicalSetting) {
  sources_.flags = {{"ctx-size", "4K"}, {"np", "7"},
                    {"port", "9000"},   {"cache-size", "2"},
                    {"t", "3"},         {"exit-timeout-secs", "9"}};
  const Settings settings = Good();
  EXPECT_EQ(settings.llm.max_model_len, 4096);
  EXPECT_EQ(settings.llm.max_num_seqs, 7);
  EXPECT_EQ(settings.server.http_port, 9000);
  EXPECT_EQ(settings.llm.kv_cache_memory_bytes, 2'000'000'000);
  EXPECT_EQ(settings.common.threads, 3);
  EXPECT_EQ(settings.server.shutdown_timeout_ms, 9000);
}

TEST_F(LoadTest, LettersOfTheCommandLineAreNoKeysOfFiles) {
  for (const std::string name : {"t", "c", "b", "ub", "np", "a", "tp"}) {
    sources_.flags = {{name, "2"}};
    File("models: [{path: m.gguf}]\n");
    Good();
    sources_.flags.clear();
    File(name + ": 2\n");
    EXPECT_TRUE(Has(Bad(), "unknown setting '" + name + "'")) << name;
    File("models: [{path: m.gguf, " + name + ": 2}]\n");
    EXPECT_TRUE(Has(Bad(), "unknown setting '" + name + "'")) << name;
    EXPECT_FALSE(IsModelSetting(name));
  }
  EXPECT_TRUE(IsModelSetting("ctx_size"));
}

TEST_F(LoadTest, EnvironmentKnowsNoAliasesAndEmptyMeansUnset) {
  environment_ = {{"MILLRACE_PORT", "tcp://10.0.0.1:80"},
                  {"MILLRACE_HTTP_PORT", ""}};
  EXPECT_EQ(Good().server.http_port, 8000);
}

TEST_F(LoadTest, SwitchesStandAloneOrAreTurnedOff) {
  sources_.flags = {{"no-auth", ""}, {"no-access-log", ""}};
  Settings settings = Good();
  EXPECT_TRUE(settings.server.no_auth);
  EXPECT_FALSE(settings.server.access_log);
  sources_.flags = {{"no-huge-pages", "false"}, {"access-log", "off"}};
  settings = Good();
  EXPECT_TRUE(settings.llm.huge_pages);
  EXPECT_FALSE(settings.server.access_log);
}

TEST_F(LoadTest, KindsOfFlags) {
  EXPECT_EQ(KindOfFlag("no-auth"), FlagKind::kSwitch);
  EXPECT_EQ(KindOfFlag("no-huge-pages"), FlagKind::kSwitch);
  EXPECT_EQ(KindOfFlag("http_port"), FlagKind::kValue);
  EXPECT_EQ(KindOfFlag("np"), FlagKind::kValue);
  EXPECT_EQ(KindOfFlag("no-http-port"), FlagKind::kUnknown);
  EXPECT_EQ(KindOfFlag("no-no-auth"), FlagKind::kUnknown);
  EXPECT_EQ(KindOfFlag(""), FlagKind::kUnknown);
}

TEST_F(LoadTest, ModelOverridesGeneralAndFlagOverridesBoth) {
  File(
      "max_num_seqs: 8\nthreads: 1\n"
      "models:\n"
      "  - path: /a/one.gguf\n"
      "    max_num_seqs: 2\n"
      "    kv_cache_dtype: f32\n"
      "    served_model_name: [x, y]\n"
      "  - {path: /a/two.gguf, name: second, max_num_seqs: 3}\n");
  Settings settings = Good();
  ASSERT_EQ(settings.models.size(), 2u);
  EXPECT_EQ(settings.models[0].llm.max_num_seqs, 2);
  EXPECT_EQ(settings.models[0].common.threads, 1);
  EXPECT_EQ(settings.models[0].llm.kv_cache_dtype, "f32");
  EXPECT_EQ(settings.models[0].served_model_name,
            (std::vector<std::string>{"x", "y"}));
  EXPECT_EQ(settings.models[1].name, "second");
  EXPECT_EQ(settings.models[1].llm.max_num_seqs, 3);
  EXPECT_EQ(settings.models[1].llm.kv_cache_dtype, "f16");
  sources_.flags = {{"max-num-seqs", "5"}};
  settings = Good();
  EXPECT_EQ(settings.models[0].llm.max_num_seqs, 5);
  EXPECT_EQ(settings.models[1].llm.max_num_seqs, 5);
}

TEST_F(LoadTest, GeneralSettingsReachModelsWhateverTheOrderInTheFile) {
  File("models: [{path: m.gguf}]\nthreads: 4\n");
  EXPECT_EQ(Good().models[0].common.threads, 4);
}

TEST_F(LoadTest, ModelsOfTheCommandLineStandBeforeTheFiles) {
  File("threads: 4\nmodels: [{path: m.gguf, threads: 1}]\n");
  sources_.models = {{.name = "n", .path = "other.gguf"}};
  const Settings settings = Good();
  ASSERT_EQ(settings.models.size(), 2u);
  EXPECT_EQ(settings.models[0].path, "other.gguf");
  EXPECT_EQ(settings.models[0].common.threads, 4);
  EXPECT_EQ(settings.models[1].path, "m.gguf");
  EXPECT_EQ(settings.models[1].common.threads, 1);
  sources_.models = {{.path = "other/m.gguf"}};
  EXPECT_TRUE(Has(Bad(), "the command line and " + file_.string() +
                             " both name a model 'm'"));
}

TEST_F(LoadTest, ServedNameFlagBelongsToTheOnlyModel) {
  sources_.flags = {{"served-model-name", "gpt, assistant"}};
  EXPECT_EQ(Good().served_model_name.size(), 2u);  // no model known yet
  sources_.models = {{.path = "m.gguf"}};
  EXPECT_EQ(Good().models[0].served_model_name,
            (std::vector<std::string>{"gpt", "assistant"}));
  sources_.models.push_back({.path = "n.gguf"});
  EXPECT_TRUE(Has(Bad(), "there are 2 models"));
}

TEST_F(LoadTest, OneIdCannotMeanTwoModels) {
  sources_.models = {{.path = "a/m.gguf"}, {.name = "m", .path = "n.gguf"}};
  EXPECT_TRUE(Has(Bad(), "'m'"));
}

TEST_F(LoadTest, TheIdOfAnAddressIsKnownOnceItIsPulled) {
  sources_.models = {{.path = "hf://org/Llama-3.1-8B"},
                     {.path = "hf://org/Llama-3.2-1B"}};
  Settings settings = Good();
  ASSERT_EQ(settings.models.size(), 2u);
  settings.models[0].path = "cache/1/model.gguf";
  settings.models[1].path = "cache/2/model.gguf";
  EXPECT_EQ(CheckModelIds(settings.models, sources_).message(),
            "two models, or two names of one, are 'model'; give one of them "
            "another name");
  settings.models[1].name = "other";
  EXPECT_TRUE(CheckModelIds(settings.models, sources_).ok());
  // What is named is compared at once.
  sources_.models = {{.name = "m", .path = "hf://org/a"},
                     {.name = "m", .path = "hf://org/b"}};
  EXPECT_TRUE(Has(Bad(), "two models, or two names of one, are 'm'"));
}

TEST_F(LoadTest, BadFilesGetOneSentence) {
  sources_.config_file = "/nonexistent/x.yaml";
  EXPECT_TRUE(Has(Bad(), "'/nonexistent/x.yaml' cannot be read"));
  sources_.config_file = testing::TempDir();
  EXPECT_TRUE(Has(Bad(), "cannot be read"));
  File("a: [1\nb: 2");
  EXPECT_TRUE(Has(Bad(), "is no YAML"));
  File("- http_port\n");
  EXPECT_TRUE(Has(Bad(), "holds no settings"));
  File("http_port: [1, 2]\n");
  EXPECT_TRUE(Has(Bad(), "no single value"));
  File("http_port:\n");
  EXPECT_TRUE(Has(Bad(), "no single value"));
  // Of a list every item is taken or refused.
  File("lora_modules:\n  - a=/a\n  - {name: b, path: /b}\n");
  EXPECT_EQ(Bad(), file_.string() +
                       " line 3: an item of lora_modules has no single value; "
                       "write it as --lora-modules takes it");
  File("load_model: [a, ~, b]\n");
  EXPECT_TRUE(Has(Bad(), "an item of load_model has no single value"));
  File("models: [{path: m.gguf, served_model_name: [[x]]}]\n");
  EXPECT_TRUE(Has(Bad(), "an item of served_model_name has no single value"));
  File("? [1, 2]\n: 3\n");
  Bad();
  File("http_port: 1\nport: 2\n");
  EXPECT_TRUE(Has(Bad(), "http_port is given twice"));
  File("models: one.gguf\n");
  EXPECT_TRUE(Has(Bad(), "models is no list"));
  File("models: [one.gguf]\n");
  EXPECT_TRUE(Has(Bad(), "'- path: FILE'"));
  File("models: [{name: x}]\n");
  EXPECT_TRUE(Has(Bad(), "has no path"));
  File("models: [{path: x, http_port: 3}]\n");
  EXPECT_TRUE(Has(Bad(), "http_port belongs to the server, not to a model"));
  File("path: x\n");
  EXPECT_TRUE(Has(Bad(), "path belongs to a model"));
  File("models: [{path: x, threads: many}]\n");
  EXPECT_TRUE(Has(Bad(), "line 1: threads is 'many'"));
  File("");
  Good();
}

TEST_F(LoadTest, DeepAndSelfReferringYamlEnds) {
  File(std::string(100'000, '['));
  Bad();
  File("host: &a [*a]\n");
  Bad();
}

TEST_F(LoadTest, ListsAreSequencesOrTextsWithCommas) {
  File("preferred_batch_size: [4, 8]\n");
  EXPECT_EQ(Good().graph.preferred_batch_size,
            (std::vector<std::string>{"4", "8"}));
  sources_.flags = {{"preferred-batch-size", "2,16"}};
  EXPECT_EQ(Good().graph.preferred_batch_size,
            (std::vector<std::string>{"2", "16"}));
}

TEST_F(LoadTest, DumpShowsOriginsHidesSecretsAndReadsBack) {
  File(
      "http_max_input_size: 3MiB\nheader_timeout: 1500ms\n"
      "models:\n  - path: \"/a b/\\\"m\\\".gguf\"\n    threads: 2\n");
  environment_ = {{"MILLRACE_API_KEY", "sk-secret"}};
  sources_.flags = {{"max-queue-size", "5"}};
  const auto loaded = Load(sources_);
  ASSERT_TRUE(loaded.ok()) << loaded.status().ToString();
  const std::string dump = Dump(*loaded);
  EXPECT_FALSE(Has(dump, "sk-secret"));
  EXPECT_TRUE(Has(dump, "api_key: \"***\"")) << dump;
  const auto line = [&](const std::string& name) {
    const size_t at = dump.find("\n" + name + ":") + 1;
    return dump.substr(at, dump.find('\n', at) - at);
  };
  EXPECT_TRUE(Has(line("http_max_input_size"), "3MiB "));
  EXPECT_TRUE(line("http_max_input_size").ends_with("# file"));
  EXPECT_TRUE(line("api_key").ends_with("# environment"));
  EXPECT_TRUE(line("max_queue_size").ends_with("# flag"));
  EXPECT_TRUE(line("http_port").ends_with("# default"));

  File(dump);
  environment_.clear();
  sources_.flags.clear();
  const Settings again = Good();
  EXPECT_EQ(again.server.http_max_input_bytes, 3 << 20);
  EXPECT_EQ(again.server.header_timeout_ms, 1500);
  EXPECT_EQ(again.common.max_queue_size, 5);
  ASSERT_EQ(again.models.size(), 1u);
  EXPECT_EQ(again.models[0].path, "/a b/\"m\".gguf");
  EXPECT_EQ(again.models[0].common.threads, 2);
}

TEST_F(LoadTest, HelpNamesEverySettingWithItsDefault) {
  const std::string help = FlagsHelp(1000, /*all=*/true);
  EXPECT_TRUE(Has(help, "--http-port N"));
  EXPECT_TRUE(Has(help, "(0 to 65535, default 8000); also --port"));
  EXPECT_TRUE(Has(help, "--idle-timeout TIME"));
  EXPECT_TRUE(Has(help, "default 75s"));
  EXPECT_TRUE(Has(help, "also -np --parallel"));
  Settings settings;
  VisitSettings(settings, [&](const SettingInfo& info, SettingRef) {
    std::string flag = "  --" + std::string(info.name);
    for (char& c : flag) c = c == '_' ? '-' : c;
    EXPECT_TRUE(Has(help, flag)) << flag;
    EXPECT_FALSE(info.help.empty()) << info.name;
    EXPECT_FALSE(info.group.empty()) << info.name;
  });
}

TEST_F(LoadTest, HelpFitsTheTerminal) {
  for (const size_t width : {size_t{80}, size_t{120}}) {
    for (const bool all : {false, true}) {
      std::istringstream lines(FlagsHelp(width, all));
      for (std::string line; std::getline(lines, line);) {
        EXPECT_LE(TextColumns(line), width) << line;
      }
    }
  }
  const std::string few = FlagsHelp(80, false);
  EXPECT_TRUE(Has(few, "--max-model-len"));
  EXPECT_FALSE(Has(few, "--idle-timeout"));
  EXPECT_LT(std::count(few.begin(), few.end(), '\n'), 70);
}

TEST(Examples, EachFileLoadsAndServesAModel) {
  int files = 0;
  for (const auto& entry : fs::directory_iterator("config/examples")) {
    const auto loaded = Load({.config_file = entry.path().string(),
                              .getenv = [](const std::string&) {
                                return std::optional<std::string>();
                              }});
    ASSERT_TRUE(loaded.ok()) << loaded.status().ToString();
    EXPECT_FALSE(loaded->settings.models.empty()) << entry.path();
    ++files;
  }
  EXPECT_GE(files, 4);
}

}  // namespace
}  // namespace millrace::config
