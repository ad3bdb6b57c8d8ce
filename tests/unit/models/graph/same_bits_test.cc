// A row's results are the same bits whatever its batch-mates, its place among
// them, the threads and the way its batch is computed: the real context on the
// tiny networks of tests/data/graph.
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "models/files/npz.h"
#include "models/graph/execution_context.h"
#include "models/graph/import.h"
#include "models/graph/sample_inputs.h"

namespace millrace::models::graph {
namespace {

constexpr int64_t kRows = 5;

class SameBits : public testing::TestWithParam<std::string> {
 protected:
  std::unique_ptr<ExecutionContext> Make(int threads, bool rows_apart) const {
    auto graph = ImportGraph("tests/data/graph/" + GetParam(), nullptr);
    EXPECT_TRUE(graph.ok()) << graph.status().ToString();
    InstanceOptions options;
    const int last = std::thread::hardware_concurrency() > 1 ? 1 : 0;
    if (threads == 2) options.cpus = {0, last};
    options.rows_apart = rows_apart;
    options.precision = precision_;
    auto context = CreateInstance(*std::move(graph), options);
    EXPECT_TRUE(context.ok()) << context.status().ToString();
    return *std::move(context);
  }
  void Check() const;

  Precision precision_ = Precision::kF32;
};

// The rows that `order` names of every input that has rows.
std::vector<Tensor> Rows(const std::vector<Tensor>& inputs,
                         const std::vector<int64_t>& order) {
  std::vector<Tensor> chosen;
  for (const Tensor& input : inputs) {
    Shape shape = input.shape();
    const int64_t bytes = input.num_bytes() / shape[0];
    shape[0] = static_cast<int64_t>(order.size());
    Tensor& rows = chosen.emplace_back(Tensor::Make(input.dtype(), shape));
    for (size_t i = 0; i < order.size(); ++i) {
      std::memcpy(rows.bytes() + static_cast<int64_t>(i) * bytes,
                  input.bytes() + order[i] * bytes, static_cast<size_t>(bytes));
    }
  }
  return chosen;
}

// Row `at` of `got` is row `of` of `want`.
void ExpectRow(const std::vector<Tensor>& got, int64_t at, int64_t got_rows,
               const std::vector<Tensor>& want, int64_t of) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    const int64_t bytes = want[i].num_bytes() / kRows;
    ASSERT_EQ(got[i].num_bytes(), bytes * got_rows);
    EXPECT_EQ(
        std::memcmp(got[i].bytes() + at * bytes, want[i].bytes() + of * bytes,
                    static_cast<size_t>(bytes)),
        0)
        << "output " << i << ", row " << of << " at " << at;
  }
}

// Ids of 1 alone would hide a mistake.
void Vary(std::vector<Tensor>& inputs) {
  for (Tensor& input : inputs) {
    if (input.dtype() != DType::kI64) continue;
    for (int64_t i = 0; i < input.num_elements(); ++i) {
      input.data<int64_t>()[i] = (i * 7 + i / 3) % 2;
    }
  }
}

void SameBits::Check() const {
  const auto reference = Make(1, false);
  std::map<std::string, int64_t> sizes;
  for (const auto& name :
       SizeNames(reference->inputs(), reference->symbols())) {
    sizes[name] = kRows;
  }
  auto inputs =
      SampleInputs(reference->inputs(), reference->symbols(), {.sizes = sizes});
  ASSERT_TRUE(inputs.ok()) << inputs.status().ToString();
  Vary(*inputs);
  std::vector<int64_t> all(kRows);
  std::iota(all.begin(), all.end(), 0);
  const auto want = reference->Run(*inputs);
  ASSERT_TRUE(want.ok()) << want.status().ToString();
  for (const int threads : {1, 2}) {
    for (const bool apart : {false, true}) {
      SCOPED_TRACE(std::to_string(threads) + (apart ? ", apart" : ", whole"));
      const auto context = Make(threads, apart);
      for (const std::vector<int64_t>& order :
           {all, {4, 3, 2, 1, 0}, {2, 2}, {1, 4, 0}, {3}}) {
        const auto got = context->Run(Rows(*inputs, order));
        ASSERT_TRUE(got.ok()) << got.status().ToString();
        for (size_t i = 0; i < order.size(); ++i) {
          ExpectRow(*got, static_cast<int64_t>(i),
                    static_cast<int64_t>(order.size()), *want, order[i]);
        }
      }
    }
  }
}

TEST_P(SameBits, ForARowInEveryBatch) { Check(); }

// The bits of f32 where the CPU has no bf16.
TEST_P(SameBits, ForARowInEveryBatchInBf16) {
  precision_ = Precision::kBf16;
  Check();
}

INSTANTIATE_TEST_SUITE_P(
    Networks, SameBits,
    testing::Values("resnet50.pt2", "mobilenet_v3_large.core.pt2",
                    "efficientnet_b0.onnx", "densenet121.pt2", "unet.ts.onnx",
                    "convnext_tiny.pt2", "vit_tiny.core.pt2", "vit_b_16.pt2",
                    "swin_t.onnx", "speech_conv.pt2", "minilm.onnx",
                    "bert_base.core.pt2", "gpt_small.pt2", "lstm_tagger.pt2",
                    "gru_tagger.onnx", "lstm_tagger.core.pt2"),
    [](const auto& of) {
      std::string name = of.param;
      for (char& c : name) c = c == '.' ? '_' : c;
      return name;
    });

}  // namespace
}  // namespace millrace::models::graph
