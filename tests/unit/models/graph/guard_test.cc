// The guard: what it reports, and that as few layers as will do go back to f32.
#include "models/graph/guard.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "models/cpu/isa.h"
#include "models/graph/quantize/calibrate.h"
#include "tests/unit/models/graph/graph_maker.h"

namespace millrace::models::graph {
namespace {

// Layers one after the other, each wider in its values than the one before.
class GuardTest : public testing::Test {
 protected:
  static constexpr int kLayers = 6;

  GuardTest() {
    ValueId x = m_.Input({9, 48});
    for (int i = 0; i < kLayers; ++i) {
      x = m_.Node("Relu", {m_.Node("MatMul", {x, m_.Weight({48, 48})})});
    }
    m_.graph.AddOutput("y", x);
    std::vector<Tensor>& sample = samples_.emplace_back();
    for (const Tensor& input : m_.Inputs()) sample.push_back(input.Share());
  }

  Guarded Make(const InstanceOptions& options, double max_error) {
    // Whatever bf16 takes here.
    auto guarded =
        CreateGuarded(m_.graph, options, samples_, max_error,
                      [](ExecutionContext&,
                         const TensorSets&) -> StatusOr<double> { return 1; });
    EXPECT_TRUE(guarded.ok()) << guarded.status().ToString();
    return *std::move(guarded);
  }

  void ExpectFallsBackOnlyAsFarAsItMust(const InstanceOptions& options) {
    const Guarded all = Make(options, 1);
    EXPECT_EQ(all.report.layers, kLayers);
    EXPECT_TRUE(all.report.f32_layers.empty());
    EXPECT_GT(all.report.error, 0);
    EXPECT_EQ(all.report.error, all.report.asked_error);

    const double allowed = all.report.error * 0.8;
    const Guarded some = Make(options, allowed);
    EXPECT_EQ(some.report.asked_error, all.report.error);
    EXPECT_LE(some.report.error, allowed);
    EXPECT_GT(some.report.error, 0);
    EXPECT_FALSE(some.report.f32_layers.empty());
    EXPECT_LT(some.report.f32_layers.size(), size_t{kLayers});

    const Guarded none = Make(options, 0);
    EXPECT_EQ(none.report.f32_layers.size(), size_t{kLayers});
    EXPECT_EQ(none.report.error, 0);
    // What is reported is what serves.
    for (const Guarded* guarded : {&all, &some, &none}) {
      auto plain = CreateInstance(m_.graph.Copy(), {});
      ASSERT_TRUE(plain.ok());
      const auto got = RunAll(*guarded->context, samples_);
      const auto want = RunAll(**plain, samples_);
      ASSERT_TRUE(got.ok() && want.ok());
      EXPECT_EQ(ErrorOf(*got, *want), guarded->report.error);
    }
  }

  GraphMaker m_;
  TensorSets samples_;
};

TEST_F(GuardTest, Bf16FallsBackOnlyAsFarAsItMust) {
  if (FindBf16Products("auto") == nullptr) {
    GTEST_SKIP() << "this CPU has no fast products of bf16";
  }
  ExpectFallsBackOnlyAsFarAsItMust({{.precision = Precision::kBf16}, {}});
}

TEST_F(GuardTest, Bf16ThatIsSlowerIsServedInF32) {
  if (FindBf16Products("auto") == nullptr) {
    GTEST_SKIP() << "this CPU has no products of bf16";
  }
  for (const double bf16_ms : {4.0, 5.0, 6.0}) {
    // The first time is that of f32.
    std::vector<double> times = {5.0, bf16_ms};
    auto guarded = CreateGuarded(
        m_.graph, {{.precision = Precision::kBf16}, {}}, samples_, 1,
        [&](ExecutionContext&, const TensorSets&) -> StatusOr<double> {
          const double ms = times.front();
          times.erase(times.begin());
          return ms;
        });
    ASSERT_TRUE(guarded.ok()) << guarded.status().ToString();
    const PrecisionReport& report = guarded->report;
    EXPECT_EQ(report.f32_ms, 5.0);
    EXPECT_EQ(report.reduced_ms, bf16_ms);
    const bool slower = bf16_ms > 5;
    EXPECT_EQ(report.too_slow, slower);
    EXPECT_EQ(report.f32_layers.size(), slower ? size_t{kLayers} : 0);
    EXPECT_GT(report.asked_error, 0);
    auto plain = CreateInstance(m_.graph.Copy(), {});
    ASSERT_TRUE(plain.ok());
    const auto got = RunAll(*guarded->context, samples_);
    const auto want = RunAll(**plain, samples_);
    ASSERT_TRUE(got.ok() && want.ok());
    EXPECT_EQ(ErrorOf(*got, *want), report.error);
    EXPECT_EQ(report.error == 0, slower);
  }
}

TEST_F(GuardTest, TimesAreMeasured) {
  auto context = CreateInstance(m_.graph.Copy(), {});
  ASSERT_TRUE(context.ok());
  const auto ms = LeastMs(**context, samples_);
  ASSERT_TRUE(ms.ok());
  EXPECT_GT(*ms, 0);
  EXPECT_LT(*ms, 1000);
}

TEST_F(GuardTest, Int8FallsBackOnlyAsFarAsItMust) {
  auto table = Calibrate(m_.graph, samples_, {});
  ASSERT_TRUE(table.ok()) << table.status().ToString();
  InstanceOptions options;
  options.quantization =
      std::make_shared<const QuantizationTable>(*std::move(table));
  ExpectFallsBackOnlyAsFarAsItMust(options);
}

TEST_F(GuardTest, WantsASample) {
  const auto guarded = CreateGuarded(m_.graph, {}, {}, 0.1);
  ASSERT_FALSE(guarded.ok());
  EXPECT_EQ(guarded.status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace millrace::models::graph
