// Networks of tests/data/graph, made with PyTorch by tests/data/make_graph.py
// (what is hard to import) and make_tiny_models.py (the models of
// tests/bench/graph, narrow), give what PyTorch gave: in every form,
// interpreted and planned.
//
// Tolerance: all are a few layers of f32 sums of at most some hundred terms of
// order 1, so 1e-5 of the largest value would do; 1e-4 is what is promised.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "models/graph/execution_context.h"
#include "models/graph/import.h"
#include "tests/unit/models/graph/tiny_model_arrays.h"

namespace millrace::models::graph {
namespace {

void Check(const std::string& model, const std::string& form,
           const std::vector<std::string>& tags) {
  const std::string stem = std::string(kFolder) + "/" + model;
  for (const bool interpret : {true, false}) {
    SCOPED_TRACE(form + (interpret ? ", interpreted" : ", planned"));
    auto graph = ImportGraph(stem + form, nullptr);
    ASSERT_TRUE(graph.ok()) << graph.status().ToString();
    InstanceOptions options;
    options.interpret = interpret;
    auto context = CreateInstance(std::move(*graph), options);
    ASSERT_TRUE(context.ok()) << context.status().ToString();
    for (const std::string& tag : tags) {
      SCOPED_TRACE(tag);
      const Arrays arrays = ReadArrays(stem + "." + tag + ".npz");
      const auto got = (*context)->Run(arrays.inputs);
      ASSERT_TRUE(got.ok()) << got.status().ToString();
      ASSERT_EQ(got->size(), arrays.outputs.size());
      for (size_t i = 0; i < got->size(); ++i) {
        SCOPED_TRACE("output " + std::to_string(i));
        ExpectClose((*got)[i], arrays.outputs[i]);
      }
    }
  }
}

struct TinyModel {
  std::string name;
  std::vector<std::string> tags;
};

class TinyModels : public testing::TestWithParam<TinyModel> {};

TEST_P(TinyModels, GiveWhatPyTorchGave) {
  for (const char* form : {".pt2", ".core.pt2", ".onnx"}) {
    const std::string path = std::string(kFolder) + "/" + GetParam().name;
    if (std::filesystem::exists(path + form)) {
      Check(GetParam().name, form, GetParam().tags);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, TinyModels,
    testing::Values(
        TinyModel{"residual", {"b2", "b3"}},
        TinyModel{"encoder", {"b2", "b3", "l11"}},
        TinyModel{"causal", {"b2", "b3", "l11"}},
        TinyModel{"windows", {"b2", "b3"}}, TinyModel{"mutations", {"b2"}},
        TinyModel{"indexing", {"b2"}}, TinyModel{"lstm", {"b2", "b3"}},
        TinyModel{"gru", {"b2", "b3"}}, TinyModel{"bags", {"b2", "b3"}},
        TinyModel{"special", {"b2", "b3"}}, TinyModel{"composed", {"b2"}},
        TinyModel{"spectral", {"b2", "b3"}}, TinyModel{"vision", {"b2"}},
        TinyModel{"nograd", {"b2", "b3"}}, TinyModel{"branches", {"b2", "b3"}},
        TinyModel{"projected", {"b2", "b3"}}, TinyModel{"rare", {"b2"}},
        TinyModel{"sizes", {"b2", "b3"}}),
    [](const auto& of) { return of.param.name; });

class TinyZoo : public testing::TestWithParam<TinyModel> {};

TEST_P(TinyZoo, GivesWhatPyTorchGaveInEveryForm) {
  for (const char* form : {".pt2", ".core.pt2", ".onnx", ".ts.onnx"}) {
    Check(GetParam().name, form, GetParam().tags);
  }
}

const std::vector<std::string> kBatches = {"b1", "b2", "b3"};
const std::vector<std::string> kLengths = {"b1", "b2", "b3", "l11"};

INSTANTIATE_TEST_SUITE_P(
    All, TinyZoo,
    testing::Values(
        TinyModel{"resnet50", kBatches},
        TinyModel{"mobilenet_v3_large", kBatches},
        TinyModel{"efficientnet_b0", kBatches},
        TinyModel{"convnext_tiny", kBatches}, TinyModel{"vit_b_16", kBatches},
        TinyModel{"vit_tiny", kBatches}, TinyModel{"swin_t", kBatches},
        TinyModel{"densenet121", kBatches}, TinyModel{"unet", kBatches},
        TinyModel{"bert_base", kLengths}, TinyModel{"minilm", kLengths},
        TinyModel{"distilbert", kLengths}, TinyModel{"gpt_small", kLengths},
        TinyModel{"dlrm", kBatches}, TinyModel{"lstm_tagger", kBatches},
        TinyModel{"gru_tagger", kBatches}, TinyModel{"speech_conv", kBatches}),
    [](const auto& of) { return of.param.name; });

TEST(TinyModels, OutputsOfADictionaryHaveItsKeys) {
  const auto graph =
      ImportGraph(std::string(kFolder) + "/encoder.pt2", nullptr);
  ASSERT_TRUE(graph.ok()) << graph.status().ToString();
  ASSERT_EQ(graph->outputs.size(), 2u);
  EXPECT_EQ(graph->outputs[0].name, "hidden");
  EXPECT_EQ(graph->outputs[1].name, "pooled");
}

}  // namespace
}  // namespace millrace::models::graph
