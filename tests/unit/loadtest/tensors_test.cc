#include "loadtest/tensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "loadtest/input_files.h"
#include "loadtest/server_stages.h"

namespace millrace::loadtest {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string Npy(const std::string& header, const std::string& data) {
  std::string file = "\x93NUMPY";
  file += '\1';
  file += '\0';
  file += static_cast<char>(header.size());
  file += '\0';
  return file + header + data;
}

TEST(Npy, ReadsDatatypeShapeAndBytes) {
  const auto tensor = ParseNpy(
      Npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }\n",
          std::string(24, 'x')));
  ASSERT_TRUE(tensor.ok()) << tensor.status().ToString();
  EXPECT_EQ(tensor->spec.datatype, "FP32");
  EXPECT_THAT(tensor->spec.shape, ElementsAre(2, 3));
  EXPECT_EQ(tensor->bytes.size(), 24u);
  const auto vector = ParseNpy(
      Npy("{'descr': '|u1', 'fortran_order': False, 'shape': (3,), }", "abc"));
  EXPECT_THAT(vector->spec.shape, ElementsAre(3));
  const auto scalar = ParseNpy(
      Npy("{'descr': '|b1', 'fortran_order': False, 'shape': (), }", "a"));
  EXPECT_TRUE(scalar->spec.shape.empty());
}

TEST(Npy, ErrorsSayWhy) {
  const auto message = [](const std::string& file) {
    return std::string(ParseNpy(file).status().message());
  };
  EXPECT_THAT(message("PK\3\4 and more bytes"), HasSubstr("begin"));
  EXPECT_THAT(message(Npy("{'descr': '<f4', 'fortran_order': True, "
                          "'shape': (1,), }",
                          "aaaa")),
              HasSubstr("Fortran"));
  EXPECT_THAT(message(Npy("{'descr': '<c8', 'fortran_order': False, "
                          "'shape': (1,), }",
                          "aaaa")),
              HasSubstr("<c8"));
  EXPECT_THAT(message(Npy("{'descr': '<f4', 'fortran_order': False, "
                          "'shape': (2,), }",
                          "aaaa")),
              HasSubstr("needs 8"));
  EXPECT_THAT(message(Npy("{'descr': '<f4', 'fortran_order': False, "
                          "'shape': (99999999999999999999,), }",
                          "aaaa")),
              HasSubstr("too large"));
  std::string cut = Npy("{'descr': '<f4'}", "");
  cut[8] = 'z';
  EXPECT_THAT(message(cut), HasSubstr("cut short"));
  EXPECT_FALSE(ParseNpy(Npy("", "")).ok());
}

TEST(Tensors, MetadataGivesNamesTypesAndSizes) {
  const auto specs = ParseMetadata(
      R"({"inputs":[{"name":"x","datatype":"FP32","shape":[-1,4]}]})");
  ASSERT_TRUE(specs.ok());
  EXPECT_EQ((*specs)[0].name, "x");
  EXPECT_THAT((*specs)[0].shape, ElementsAre(-1, 4));
  for (const char* wrong :
       {"", "{}", R"({"inputs":[{}]})",
        R"({"inputs":[{"name":1,"datatype":"X","shape":[]}]})",
        R"({"inputs":[{"name":"x","datatype":"X","shape":["a"]}]})"}) {
    EXPECT_FALSE(ParseMetadata(wrong).ok()) << wrong;
  }
}

TEST(Tensors, VariableSizesComeFromBatchSizeAndShape) {
  Options options;
  options.batch_size = 3;
  const std::vector<TensorSpec> specs = {{"x", "FP32", {-1, 4}},
                                         {"ids", "INT64", {-1, -1}}};
  EXPECT_THAT(std::string(MakeTensors(options, specs, 1).status().message()),
              HasSubstr("--shape ids:"));
  options.shapes = {{"ids", {3, 5}}};
  const auto tensors = MakeTensors(options, specs, 1);
  ASSERT_TRUE(tensors.ok()) << tensors.status().ToString();
  EXPECT_EQ((*tensors)[0].bytes.size(), 3u * 4 * 4);
  EXPECT_EQ((*tensors)[1].bytes.size(), 3u * 5 * 8);
  for (size_t i = 0; i < 12; ++i) {
    float value = -1;
    std::memcpy(&value, (*tensors)[0].bytes.data() + 4 * i, 4);
    EXPECT_GE(value, 0);
    EXPECT_LT(value, 1);
  }
  EXPECT_NE(MakeTensors(options, specs, 2)->front().bytes,
            tensors->front().bytes);
  options.shapes = {{"y", {1}}};
  EXPECT_THAT(std::string(MakeTensors(options, specs, 1).status().message()),
              HasSubstr("inputs are x, ids"));
}

TEST(Tensors, ExactRowsAreThoseOfEveryVariableFirstSize) {
  Options options;
  options.batch_size = 4;
  options.shapes = {{"ids", {1, 5}}, {"scale", {3}}};
  const std::vector<TensorSpec> specs = {{"ids", "INT64", {-1, -1}},
                                         {"x", "FP32", {-1, 2}},
                                         {"scale", "FP32", {3}}};
  EXPECT_THAT(MakeTensors(options, specs, 0)->front().spec.shape,
              ElementsAre(1, 5))
      << "--shape says all sizes";
  options.exact_rows = true;
  const auto tensors = MakeTensors(options, specs, 0);
  ASSERT_TRUE(tensors.ok()) << tensors.status().ToString();
  EXPECT_THAT((*tensors)[0].spec.shape, ElementsAre(4, 5));
  EXPECT_EQ((*tensors)[0].bytes.size(), 4u * 5 * 8);
  EXPECT_THAT((*tensors)[1].spec.shape, ElementsAre(4, 2));
  EXPECT_THAT((*tensors)[2].spec.shape, ElementsAre(3)) << "it has no rows";
}

TEST(Tensors, BinaryBodiesHoldTheJsonThenTheBytes) {
  const std::vector<Tensor> tensors = {{{"x", "UINT8", {2}}, "\1\2"},
                                       {{"y", "BOOL", {1}}, "\1"}};
  int64_t json_bytes = 0;
  const std::string body = *KserveBody(tensors, true, &json_bytes);
  EXPECT_EQ(body.substr(static_cast<size_t>(json_bytes)), "\1\2\1");
  const auto json =
      nlohmann::json::parse(body.substr(0, static_cast<size_t>(json_bytes)));
  EXPECT_EQ(json["inputs"][0]["parameters"]["binary_data_size"], 2);
  EXPECT_EQ(json["parameters"]["binary_data_output"], true);
}

TEST(Tensors, JsonBodiesHoldNumbersAndStrings) {
  Options options;
  const std::vector<TensorSpec> specs = {{"s", "BYTES", {2}},
                                         {"b", "BOOL", {1}}};
  std::vector<Tensor> tensors = *MakeTensors(options, specs, 1);
  const float half = 0.5f;
  tensors.push_back({{"f", "FP32", {1}},
                     std::string(reinterpret_cast<const char*>(&half), 4)});
  int64_t json_bytes = 0;
  const auto json =
      nlohmann::json::parse(*KserveBody(tensors, false, &json_bytes));
  EXPECT_EQ(json["inputs"][0]["data"].size(), 2u);
  EXPECT_EQ(json["inputs"][0]["data"][1].get<std::string>().size(), 16u);
  EXPECT_TRUE(json["inputs"][1]["data"][0].is_boolean());
  EXPECT_EQ(json["inputs"][2]["data"][0], 0.5);
  tensors.push_back({{"h", "FP16", {1}}, "ab"});
  EXPECT_THAT(
      std::string(KserveBody(tensors, false, &json_bytes).status().message()),
      HasSubstr("--tensor-format binary"));
}

// A folder of three files and a hidden one.
class InputFiles : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(testing::TempDir()) / "input_files";
    std::filesystem::create_directories(folder_);
    Write("b.bin", "\xff second");
    Write("a.bin", "first");
    Write("c.bin", "third");
    Write(".hidden", "no");
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void Write(const std::string& name, const std::string& bytes) {
    std::ofstream(folder_ / name, std::ios::binary) << bytes;
  }

  std::filesystem::path folder_;
};

TEST_F(InputFiles, OfAFolderAreSentInTurn) {
  const auto files = FilesAt("--input", folder_.string());
  ASSERT_TRUE(files.ok());
  ASSERT_EQ(files->size(), 3u);
  Options options;
  for (const std::string& file : *files) {
    options.input_files.emplace_back("image", file);
  }
  const std::vector<TensorSpec> specs = {{"image", "BYTES", {-1, 1}}};
  EXPECT_EQ(NumTensorRequests(options, specs), 3);
  const auto bytes = [&](int64_t index) {
    return MakeTensors(options, specs, index)->front().bytes;
  };
  EXPECT_EQ(bytes(0), std::string("\5\0\0\0first", 9));
  EXPECT_EQ(bytes(2), std::string("\5\0\0\0third", 9));
  options.batch_size = 2;
  EXPECT_THAT(bytes(1), HasSubstr("third"));
  EXPECT_THAT(bytes(1), HasSubstr("first"))
      << "the third and, again, the first";
  int64_t json_bytes = 0;
  const auto tensors = *MakeTensors(options, specs, 0);
  EXPECT_THAT(
      std::string(KserveBody(tensors, false, &json_bytes).status().message()),
      HasSubstr("no UTF-8"));
}

TEST_F(InputFiles, AFileHasTheRowsThatItHas) {
  Write("two.npy",
        Npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }\n",
            std::string(24, 'x')));
  Options options;
  options.input_files = {{"x", (folder_ / "two.npy").string()}};
  options.exact_rows = true;
  const std::vector<TensorSpec> specs = {{"x", "FP32", {-1, 3}}};
  EXPECT_THAT(std::string(MakeTensors(options, specs, 0).status().message()),
              HasSubstr("no input of a request has 1 rows (x [2,3])"));
  options.batch_size = 2;
  EXPECT_TRUE(MakeTensors(options, specs, 0).ok());
  options.endpoint = EndpointType::kTorchserve;
  EXPECT_THAT(std::string(MakeTensorRequests(options).status().message()),
              HasSubstr("say --rows 1"));
}

TEST_F(InputFiles, ALinkToNothingIsNamed) {
  std::filesystem::create_symlink("absent", folder_ / "d.bin");
  const auto files = FilesAt("--input", folder_.string());
  ASSERT_FALSE(files.ok());
  EXPECT_THAT(std::string(files.status().message()),
              HasSubstr("'d.bin' cannot be read: No such file"));
}

TEST(Tensors, FilesOfUndeclaredInputsAreSentInsteadOfTheDeclaredOnes) {
  Options options;
  const std::vector<TensorSpec> specs = {{"pixels", "FP32", {-1, 3, 8, 8}}};
  EXPECT_EQ(SentInputs(options, specs)[0].name, "pixels");
  options.input_files = {{"image", "a.jpg"}, {"image", "b.jpg"}};
  const auto sent = SentInputs(options, specs);
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].name, "image");
  EXPECT_EQ(sent[0].datatype, "BYTES");
  options.input_files = {{"other", "a.npy"}};
  EXPECT_EQ(SentInputs(options, specs)[0].name, "pixels") << "is refused later";
}

TEST_F(InputFiles, PicturesOfADataSetBecomeDataUris) {
  Write("cat.png", "\x89PNG\r\n\x1a\n");
  auto dataset = *ParseJsonl(
      R"({"text": "what?", "image": "cat.png"})"
      "\n"
      R"({"turns": [{"text": "x", "images": ["http://a/b", "cat.png"]}]})");
  ASSERT_TRUE(InlineImages(folder_.string(), dataset).ok());
  EXPECT_EQ(dataset[0].turns[0].images[0],
            "data:image/png;base64,iVBORw0KGgo=");
  EXPECT_EQ(dataset[1].turns[0].images[0], "http://a/b");
  EXPECT_EQ(dataset[1].turns[0].images[1], dataset[0].turns[0].images[0]);
  Options options;
  const auto requests = MakeTextRequests(options, "m", dataset);
  std::string scratch;
  EXPECT_THAT(std::string(requests->Bytes(0, 0, {}, scratch)),
              HasSubstr(R"([{"type":"text","text":"what?"},{"type":)"
                        R"("image_url","image_url":{"url":"data:image/png)"));
  dataset[0].turns[0].images = {"a.bin"};
  EXPECT_THAT(std::string(InlineImages(folder_.string(), dataset).message()),
              HasSubstr("is no picture"));
  dataset[0].turns[0].images = {"none.png"};
  EXPECT_THAT(std::string(InlineImages(folder_.string(), dataset).message()),
              HasSubstr("cannot be read"));
  EXPECT_FALSE(ParseJsonl(R"({"text": "x", "image": 3})").ok());
}

TEST(ServerStages, AreMeansOfWhatWasCountedBetween) {
  const auto stats = [](int count, int ns) {
    return ParseServerStages(
        R"({"model_stats":[{"inference_stats":{"queue":{"count":)" +
        std::to_string(count) + R"(,"ns":)" + std::to_string(ns) + "}}}]}");
  };
  const auto means = MeanStagesMs(stats(10, 5'000'000), stats(30, 45'000'000));
  ASSERT_EQ(means.size(), 1u);
  EXPECT_EQ(means.at("queue"), 2);
  EXPECT_TRUE(MeanStagesMs(stats(1, 1), stats(1, 1)).empty());
  EXPECT_TRUE(ParseServerStages("[]").empty());
}

}  // namespace
}  // namespace millrace::loadtest
