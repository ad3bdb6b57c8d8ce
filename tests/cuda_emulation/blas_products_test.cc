// Products by cuBLASLt beside double precision: rows in any number and place,
// the same bits, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "models/gpu/blas_products.h"
#include "models/llm/cuda/pack_rows.h"
#include "models/tensor/float16.h"
#include "tests/cuda_emulation/blas_test_library.h"
#include "tests/cuda_emulation/test_module.h"

namespace millrace::models {
namespace {

class BlasProductsTest : public testing::Test {
 protected:
  BlasProductsTest() {
    context_ = Must(CudaContext::Open(Must(OpenCudaModule()), 0,
                                      {.setting = "", .remedy = "end others"}));
  }

  void SetUp() override {
    if (!environment_.has_library()) {
      GTEST_SKIP() << "MILLRACE_TEST_CUBLASLT names no cuBLASLt";
    }
    const auto blas = BlasProducts::Open(context_);
    ASSERT_TRUE(blas.ok()) << blas.status().ToString();
  }
  std::unique_ptr<BlasProducts> MustOpen() {
    return Must(BlasProducts::Open(context_));
  }
  template <typename T>
  CudaBuffer Upload(const std::vector<T>& values) {
    const auto bytes = static_cast<int64_t>(values.size() * sizeof(T));
    CudaBuffer buffer = Must(context_->Allocate(bytes, "a test"));
    EXPECT_TRUE(context_->Upload(buffer.data(), values.data(), bytes).ok());
    EXPECT_TRUE(context_->Wait().ok());
    return buffer;
  }
  std::vector<float> Read(const CudaBuffer& from, int64_t count) {
    std::vector<float> values(static_cast<size_t>(count));
    EXPECT_TRUE(context_->Download(values.data(), from.data(), count * 4).ok());
    EXPECT_TRUE(context_->Wait().ok());
    return values;
  }
  static std::string WhyNot() {
    StatusOr<const cuda::Module*> module = OpenCudaModule();
    StatusOr<std::shared_ptr<CudaContext>> context =
        CudaContext::Open(*module, 0, {.setting = "", .remedy = ""});
    const auto blas = BlasProducts::Open(*context);
    return blas.ok() ? "it can" : std::string(blas.status().message());
  }

  const BlasEnvironment environment_;
  std::shared_ptr<CudaContext> context_;
};

// A matrix and rows of x, in memory as a model keeps them.
struct Case {
  bool bf16;
  int64_t outputs;
  int64_t inputs;
  int64_t rows;

  cuda::WeightFormat format() const {
    return bf16 ? cuda::WeightFormat::kBF16 : cuda::WeightFormat::kF16;
  }
  cuda::InputFormat input() const {
    return bf16 ? cuda::InputFormat::kBF16 : cuda::InputFormat::kF16;
  }
  int64_t padded() const { return CudaInputs(inputs); }
  int64_t weight_bytes() const { return CudaRowBytes(format(), inputs); }
  int64_t row_bytes() const { return cuda::RoundedBytes(input(), padded()); }
  // Room behind the rows, which a call may read.
  int64_t room() const { return rows + BlasProducts::kTileRows; }
  BlasShape shape() const {
    return {.factors = bf16 ? BlasFactors::kBf16 : BlasFactors::kF16,
            .outputs = outputs,
            .inputs = padded(),
            .weights_pitch = weight_bytes() / 2,
            .x_pitch = row_bytes() / 2};
  }
};

// Numbers that f16 and bf16 have, small enough to be added in double precision.
struct Values {
  std::vector<double> values;  // [count][inputs]
  std::vector<std::byte> bytes;

  Values(const Case& c, int64_t count, int64_t row_bytes, bool scaled,
         uint32_t seed)
      : bytes(static_cast<size_t>(count * row_bytes)) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    for (int64_t row = 0; row < count; ++row) {
      std::byte* to = bytes.data() + row * row_bytes;
      // As behind rows of activations; of f16 a power of two.
      const float scale = !scaled || c.bf16 ? 1.0f : row % 3 == 0 ? 4 : 0.5f;
      for (int64_t i = 0; i < c.inputs; ++i) {
        const float value = normal(random);
        uint16_t bits;
        if (c.bf16) {
          uint32_t word;
          std::memcpy(&word, &value, 4);
          bits = static_cast<uint16_t>(word >> 16);
        } else {
          bits = FloatToHalf(value);
        }
        std::memcpy(to + 2 * i, &bits, 2);
        const uint32_t word = uint32_t{bits} << 16;
        float as_bf16;
        std::memcpy(&as_bf16, &word, 4);
        values.push_back(double{scale} *
                         (c.bf16 ? as_bf16 : HalfToFloat(bits)));
      }
      if (scaled) std::memcpy(to + 2 * c.padded(), &scale, 4);
    }
  }
};

class BlasProductsOf : public BlasProductsTest,
                       public testing::WithParamInterface<Case> {};

// A sum of n products in f32 is off by n roundings of 2^-24 of the sum of
// magnitudes at most, and so by how it is added.
TEST_P(BlasProductsOf, AreNearDoublePrecisionAndTheSameInAnyPlace) {
  const Case c = GetParam();
  const Values weights(c, c.outputs, c.weight_bytes(), false, 1);
  const Values x(c, c.rows, c.row_bytes(), true, 2);
  const auto blas = MustOpen();
  ASSERT_TRUE(blas->Bind(c.rows, c.outputs).ok());
  const CudaBuffer on_weights = Upload(weights.bytes);
  std::vector<std::byte> rows = x.bytes;
  rows.resize(static_cast<size_t>(c.room() * c.row_bytes()), std::byte{0xff});
  const CudaBuffer on_x = Upload(rows);
  const CudaBuffer probe = Upload(rows);
  StatusOr<const BlasProduct*> product =
      blas->Choose(c.shape(), on_weights.data(), probe.data());
  ASSERT_TRUE(product.ok()) << product.status().ToString();
  ASSERT_NE(*product, nullptr);
  EXPECT_EQ(*blas->Choose(c.shape(), on_weights.data(), probe.data()),
            *product);

  std::vector<float> bias(static_cast<size_t>(c.outputs));
  std::iota(bias.begin(), bias.end(), -3.0f);
  const CudaBuffer on_bias = Upload(bias);
  const int64_t pitch = (c.outputs + 7) / 8 * 8;
  const std::vector<float> before(static_cast<size_t>(c.rows * pitch), 2.0f);
  // All rows; then some of them, from another first one on: every second.
  std::vector<int32_t> some;
  for (int32_t row = c.rows > 1 ? 1 : 0; row < c.rows; row += 2) {
    some.push_back(row);
  }
  const CudaBuffer on_some = Upload(some);
  std::vector<std::vector<float>> outputs;
  for (const bool all : {true, false}) {
    const CudaBuffer y = Upload(before);
    const cuda::LinearArgs args = {
        .weights = {.data = on_weights.data(),
                    .row_bytes = c.weight_bytes(),
                    .inputs = static_cast<int32_t>(c.padded()),
                    .outputs = static_cast<int32_t>(c.outputs),
                    .format = c.format()},
        .bias = on_bias.as<float>(),
        .rounded = on_x.data(),
        .rounded_bytes = c.row_bytes(),
        .row_ids = all ? nullptr : on_some.as<int32_t>(),
        .rows = static_cast<int32_t>(all ? c.rows : some.size()),
        .adds = true,
        .scale = 0.25f,
        .y = y.as<float>(),
        .out_pitch = pitch};
    ASSERT_EQ(
        blas->Multiply(**product, args, all ? 0 : some.front(),
                       all ? static_cast<int32_t>(c.rows) : some.back() + 1),
        0);
    outputs.push_back(Read(y, c.rows * pitch));
  }
  for (int64_t row = 0; row < c.rows; ++row) {
    const bool in_both = c.rows == 1 || row % 2 == 1;
    for (int64_t o = 0; o < c.outputs; ++o) {
      double sum = 0, size = 0;
      for (int64_t i = 0; i < c.inputs; ++i) {
        const double term =
            weights.values[static_cast<size_t>(o * c.inputs + i)] *
            x.values[static_cast<size_t>(row * c.inputs + i)];
        sum += term;
        size += std::fabs(term);
      }
      const double expected = 2 + 0.25 * (sum + static_cast<double>(o) - 3);
      const auto at = static_cast<size_t>(row * pitch + o);
      ASSERT_NEAR(outputs[0][at], expected,
                  static_cast<double>(c.inputs + 8) * 0x1p-24 *
                      (size + std::fabs(expected) + 3))
          << row << " " << o;
      ASSERT_EQ(outputs[1][at], in_both ? outputs[0][at] : 2.0f)
          << row << " " << o;
    }
    for (int64_t o = c.outputs; o < pitch; ++o) {
      ASSERT_EQ(outputs[0][static_cast<size_t>(row * pitch + o)], 2.0f);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, BlasProductsOf,
                         testing::Values(Case{false, 72, 64, 300},
                                         Case{true, 12, 64, 1100},
                                         Case{false, 5, 40, 1},
                                         Case{true, 5, 37, 128},
                                         Case{false, 600, 96, 130}),
                         [](const auto& each) {
                           const Case& c = each.param;
                           return std::string(c.bf16 ? "BF16_" : "F16_") +
                                  std::to_string(c.outputs) + "x" +
                                  std::to_string(c.inputs) + "_" +
                                  std::to_string(c.rows);
                         });

// What the rest needs: one product of 64 outputs, and rows for it.
class OneProduct : public BlasProductsTest {
 protected:
  OneProduct()
      : weights_(Upload(Values(c_, 64, c_.weight_bytes(), false, 1).bytes)),
        x_(Upload(Values(c_, c_.room(), c_.row_bytes(), true, 2).bytes)),
        room_(Upload(std::vector<std::byte>(
            static_cast<size_t>(c_.room() * c_.row_bytes())))),
        y_(Upload(std::vector<float>(static_cast<size_t>(c_.rows * 64)))) {}

  const BlasProduct* Choose(BlasProducts& blas) {
    EXPECT_TRUE(blas.Bind(c_.rows, 64).ok());
    const auto chosen = blas.Choose(c_.shape(), weights_.data(), room_.data());
    EXPECT_TRUE(chosen.ok()) << chosen.status().ToString();
    return *chosen;
  }
  int Multiply(BlasProducts& blas, const BlasProduct& product) {
    return blas.Multiply(product,
                         {.weights = {.data = weights_.data(),
                                      .row_bytes = c_.weight_bytes(),
                                      .inputs = 64,
                                      .outputs = 64,
                                      .format = c_.format()},
                          .rounded = x_.data(),
                          .rounded_bytes = c_.row_bytes(),
                          .rows = static_cast<int32_t>(c_.rows),
                          .y = y_.as<float>(),
                          .out_pitch = 64},
                         0, static_cast<int32_t>(c_.rows));
  }

  const Case c_ = {true, 64, 64, 200};
  const CudaBuffer weights_, x_, room_, y_;
};

TEST_F(OneProduct, RunsInAGraphAsOftenAsAsked) {
  const auto blas = MustOpen();
  const BlasProduct* product = Choose(*blas);
  ASSERT_NE(product, nullptr);
  ASSERT_EQ(Multiply(*blas, *product), 0);
  const std::vector<float> expected = Read(y_, c_.rows * 64);
  const std::vector<float> zeros(expected.size(), 0.0f);
  StatusOr<CudaGraph> graph = context_->Capture(
      [&] { return context_->Launched(Multiply(*blas, *product)); });
  ASSERT_TRUE(graph.ok()) << graph.status().ToString();
  for (int run = 0; run < 2; ++run) {
    ASSERT_TRUE(context_
                    ->Upload(y_.data(), zeros.data(),
                             static_cast<int64_t>(zeros.size()) * 4)
                    .ok());
    ASSERT_TRUE(context_->Run(*graph).ok());
    EXPECT_EQ(Read(y_, c_.rows * 64), expected);
  }
}

TEST_F(OneProduct, AlgorithmsWhoseBitsDependOnThePlaceAreDropped) {
  if (!Emulated()) GTEST_SKIP() << "of the library that stands in";
  const auto outputs = [&](const char* what) {
    BlasEnvironment::Tell(what);
    const auto blas = MustOpen();
    const BlasProduct* product = Choose(*blas);
    if (product == nullptr) return std::vector<float>();
    EXPECT_EQ(Multiply(*blas, *product), 0);
    return Read(y_, c_.rows * 64);
  };
  const std::vector<float> expected = outputs("");
  EXPECT_EQ(expected.size(), 200u * 64);
  EXPECT_EQ(outputs("uneven"), expected) << "by the second algorithm";
  EXPECT_TRUE(outputs("all_uneven").empty());
  EXPECT_TRUE(outputs("none").empty());
  EXPECT_EQ(BlasEnvironment::Alive(), 0) << "all is given back";
}

TEST_F(OneProduct, ACallThatFailsSaysSoAndTheNextOneRuns) {
  if (!Emulated()) GTEST_SKIP() << "of the library that stands in";
  const auto blas = MustOpen();
  const BlasProduct* product = Choose(*blas);
  ASSERT_NE(product, nullptr);
  BlasEnvironment::Tell(
      ("matmul:" + std::to_string(BlasEnvironment::Products() + 1)).c_str());
  EXPECT_NE(Multiply(*blas, *product), 0);
  EXPECT_EQ(blas->TakeFailure().message(),
            "cuda:0 failed: cuBLASLt cannot multiply 256 rows: the function "
            "failed to launch");
  EXPECT_TRUE(blas->TakeFailure().ok());
  EXPECT_EQ(Multiply(*blas, *product), 0);
}

TEST_F(BlasProductsTest, SaysInOneSentenceWhyItCannotBeUsed) {
  if (!Emulated()) GTEST_SKIP() << "of the library that stands in";
  using testing::HasSubstr;
  EXPECT_EQ(WhyNot(), "it can");
  EXPECT_EQ(MustOpen()->VersionText(), "13.1.0");
  BlasEnvironment::Tell("create");
  EXPECT_EQ(WhyNot(),
            "cuBLASLt 13.1.0 cannot serve cuda:0: the library was not "
            "initialized; set gemm_backend to native");
  BlasEnvironment::Tell("");
  setenv("MILLRACE_FAKE_CUBLASLT_VERSION", "110805", 1);
  EXPECT_THAT(WhyNot(), HasSubstr("is too old, 12.0.0 or later is needed"));
  setenv("MILLRACE_CUBLASLT", std::getenv("MILLRACE_CUDA_MODULE"), 1);
  EXPECT_THAT(WhyNot(), HasSubstr("is no cuBLASLt, it has no function "
                                  "cublasLtGetVersion"));
  setenv("MILLRACE_CUBLASLT", "/nonexistent/libcublasLt.so", 1);
  EXPECT_THAT(WhyNot(), HasSubstr("cuBLASLt cannot be opened (/nonexistent/"));
}

TEST(BlasRows, AreWholeTilesUpToTheLargestCall) {
  EXPECT_EQ(BlasProducts::CallRows(1), 128);
  EXPECT_EQ(BlasProducts::CallRows(129), 256);
  EXPECT_EQ(BlasProducts::CallRows(1024), 1024);
  EXPECT_EQ(BlasProducts::CallRows(5000), 1024);
}

}  // namespace
}  // namespace millrace::models
