#include "server/lifecycle/model_directory.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace millrace::server {
namespace {

namespace fs = std::filesystem;

class ModelDirectoryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::path(testing::TempDir()) /
            ("millrace_models_" + std::to_string(getpid()));
    fs::create_directories(root_);
  }
  void TearDown() override { fs::remove_all(root_); }

  void Put(const std::string& path, const std::string& text = "x") {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  ModelDirectory Directory() {
    return {root_.string(), config::ModelSettings{}};
  }
  // "1 a/1/model.onnx, …"
  std::string Plans(const std::string& name, const std::string& config = {}) {
    const auto plans = Directory().Find(name, config);
    if (!plans.ok()) return std::string(plans.status().message());
    std::string text;
    for (const VersionPlan& plan : *plans) {
      EXPECT_EQ(plan.settings.name, name);
      text += (text.empty() ? "" : ", ") + plan.version + " " +
              fs::relative(plan.settings.path, root_).string();
    }
    return text;
  }

  fs::path root_;
};

TEST_F(ModelDirectoryTest, NamesAreFoldersAndModelFiles) {
  Put("b/1/model.onnx");
  Put("a.onnx");
  Put("notes.txt");
  Put(".git/1/model.onnx");
  EXPECT_EQ(*Directory().Names(), (std::vector<std::string>{"a", "b"}));
}

TEST_F(ModelDirectoryTest, TheNewestVersionUnlessThePolicySaysMore) {
  Put("m/9/model.onnx");
  Put("m/10/model.pt2");
  Put("m/11/notes.txt");
  Put("m/012/model.onnx");
  Put("m/old/model.onnx");
  EXPECT_EQ(Plans("m"), "10 m/10/model.pt2");
  Put("m/config.pbtxt", "version_policy { all {} }");
  EXPECT_EQ(Plans("m"), "9 m/9/model.onnx, 10 m/10/model.pt2");
  EXPECT_EQ(Plans("m", R"({"versionPolicy":{"specific":{"versions":[9]}}})"),
            "9 m/9/model.onnx");
}

TEST_F(ModelDirectoryTest, PlainFilesAndFoldersOfHuggingFace) {
  Put("a.gguf");
  Put("hf/3/config.json");
  EXPECT_EQ(Plans("a"), "1 a.gguf");
  EXPECT_EQ(Plans("hf"), "3 hf/3");
}

TEST_F(ModelDirectoryTest, FileNameOfTheConfiguration) {
  Put("m/1/net.onnx");
  Put("m/config.pbtxt", "default_model_filename: \"net.onnx\"");
  EXPECT_EQ(Plans("m"), "1 m/1/net.onnx");
  Put("m/config.pbtxt", "default_model_filename: \"../../etc/net.onnx\"");
  EXPECT_NE(Plans("m").find("must be the name of a file"), std::string::npos);
}

TEST_F(ModelDirectoryTest, YamlConfiguresAModel) {
  Put("m/1/model.onnx");
  Put("m/2/model.onnx");
  Put("m/config.yaml",
      "version_policy: all\nversion_labels: {old: 1, new: 2}\n"
      "max_batch_size: 4\ninstance_count: 2\n");
  auto plans = Directory().Find("m", {});
  ASSERT_TRUE(plans.ok()) << plans.status().ToString();
  ASSERT_EQ(plans->size(), 2u);
  EXPECT_EQ((*plans)[0].labels, (std::vector<std::string>{"old"}));
  EXPECT_EQ((*plans)[1].labels, (std::vector<std::string>{"new"}));
  EXPECT_EQ((*plans)[1].settings.graph.max_batch_size, 4);
  EXPECT_EQ((*plans)[1].settings.graph.instance_count, 2);
  EXPECT_NE((*plans)[0].config.find("\"all\""), std::string::npos);
  const std::string stamp = (*plans)[0].stamp;

  // What changes while serving is no reason to load again.
  Put("m/config.yaml",
      "version_policy: all\nversion_labels: {old: 2}\nmax_batch_size: 4\n");
  plans = Directory().Find("m", {});
  EXPECT_EQ((*plans)[0].stamp, stamp);
  EXPECT_EQ((*plans)[0].settings.graph.instance_count, 1);
  Put("m/config.yaml", "version_policy: all\nmax_batch_size: 5\n");
  EXPECT_NE((*Directory().Find("m", {}))[0].stamp, stamp);

  Put("m/config.yaml", "version_labels: {old: 1}");
  EXPECT_NE(Plans("m").find("calls version 1 'old'"), std::string::npos)
      << Plans("m");
  Put("m/config.pbtxt", "");
  EXPECT_NE(Plans("m").find("both configure the model"), std::string::npos);
}

TEST_F(ModelDirectoryTest, ErrorsNameTheModelAndTheRemedy) {
  Put("empty/config.pbtxt", "");
  EXPECT_NE(Plans("empty").find("empty/1/model.onnx (or .pt2, .gguf)"),
            std::string::npos)
      << Plans("empty");
  EXPECT_EQ(Directory().Find("none", {}).status().code(),
            StatusCode::kNotFound);
  EXPECT_EQ(Directory().Find("..", {}).status().code(), StatusCode::kNotFound);
  Put("m/1/model.onnx");
  Put("m/config.pbtxt", "name: \"other\"");
  EXPECT_NE(Plans("m").find("name is 'other'"), std::string::npos);
  Put("m/config.pbtxt", "nmae: \"m\"");
  EXPECT_NE(Plans("m").find("m/config.pbtxt line 1: unknown field 'nmae'"),
            std::string::npos)
      << Plans("m");
  EXPECT_EQ(ModelDirectory("/no/such/folder", {}).CheckRoot().field(),
            "model_repository");
}

TEST_F(ModelDirectoryTest, FilesOfOtherRuntimesAndAFolderTooDeepAreNamed) {
  Put("m/1/model.pt");
  EXPECT_NE(Plans("m").find("m/1/model.pt' is not read here: export"),
            std::string::npos)
      << Plans("m");
  Put("n/1/model.onnx");
  const Status deep =
      ModelDirectory((root_ / "n").string(), {}).Find("1", {}).status();
  EXPECT_NE(deep.message().find("n' is the folder of one model, of which '1' "
                                "is a version"),
            std::string::npos)
      << deep.ToString();
}

TEST_F(ModelDirectoryTest, StampOfAFolderIsOfItsVersionAlone) {
  Put("hf/1/config.json");
  Put("hf/1/model.safetensors");
  Put("hf/config.yaml", "version_policy: [1]");
  const std::string stamp = (*Directory().Find("hf", {}))[0].stamp;
  Put("hf/2/config.json");
  Put("hf/config.yaml", "version_policy: [1]\nversion_labels: {a: 1}");
  EXPECT_EQ((*Directory().Find("hf", {}))[0].stamp, stamp);
  Put("hf/1/model.safetensors", "longer");
  EXPECT_NE((*Directory().Find("hf", {}))[0].stamp, stamp);
}

TEST_F(ModelDirectoryTest, StampOfAnEnsembleFollowsItsMembers) {
  Put("folder/1/model.onnx");
  Put("plain.onnx");
  Put("ens/config.yaml",
      "ensemble:\n  steps:\n"
      "    - {model: folder, inputs: {x: A}, outputs: {y: B}}\n"
      "    - {model: plain, inputs: {x: B}, outputs: {y: C}}\n");
  const auto stamp = [&] {
    const auto plans = Directory().Find("ens", {});
    EXPECT_TRUE(plans.ok()) << plans.status().ToString();
    return plans.ok() ? (*plans)[0].stamp : std::string();
  };
  const std::string first = stamp();
  EXPECT_EQ(stamp(), first);
  Put("folder/1/model.onnx", "longer");
  const std::string second = stamp();
  EXPECT_NE(second, first);
  Put("plain.onnx", "longer");
  EXPECT_NE(stamp(), second);
}

TEST_F(ModelDirectoryTest, StampFollowsFilesAndConfiguration) {
  Put("m/1/model.onnx");
  const auto stamp = [&] { return (*Directory().Find("m", {}))[0].stamp; };
  const std::string first = stamp();
  EXPECT_EQ(stamp(), first);
  Put("m/1/model.onnx", "longer");
  const std::string second = stamp();
  EXPECT_NE(second, first);
  Put("m/config.pbtxt", "max_batch_size: 2");
  const std::string third = stamp();
  EXPECT_NE(third, second);
  Put("m/config.pbtxt", "max_batch_size: 2 instance_group [ { count: 3 } ]");
  EXPECT_EQ(stamp(), third) << "instances change while serving";
}

}  // namespace
}  // namespace millrace::server
