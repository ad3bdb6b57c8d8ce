// One row that proves oneDNN: found, linked, and right against a plain double
// reference. A linear layer is its inner product, with weights packed into the
// layout that oneDNN itself chooses.
#include <gtest/gtest.h>

#include <cmath>
#include <oneapi/dnnl/dnnl.hpp>
#include <random>
#include <vector>

namespace {

using dnnl::memory;

// y[m][n] = sum over k of x[m][k] * w[n][k] + b[n], in double.
std::vector<double> Reference(const std::vector<float>& x,
                              const std::vector<float>& w,
                              const std::vector<float>& b, int m, int n,
                              int k) {
  std::vector<double> y(static_cast<size_t>(m) * n);
  for (int i = 0; i < m; ++i) {
    for (int j = 0; j < n; ++j) {
      double sum = b[j];
      for (int l = 0; l < k; ++l) {
        sum += double{x[i * k + l]} * double{w[j * k + l]};
      }
      y[i * n + j] = sum;
    }
  }
  return y;
}

void ExpectLinearMatches(int m, int n, int k) {
  std::mt19937 random(17);
  std::uniform_real_distribution<float> uniform(-1, 1);
  const auto values = [&](int count) {
    std::vector<float> out(count);
    for (float& value : out) value = uniform(random);
    return out;
  };
  std::vector<float> x = values(m * k), w = values(n * k), b = values(n);
  std::vector<float> y(static_cast<size_t>(m) * n);

  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  dnnl::stream stream(engine);
  using Tag = memory::format_tag;
  const auto f32 = memory::data_type::f32;
  const memory::desc x_desc({m, k}, f32, Tag::ab), y_desc({m, n}, f32, Tag::ab);
  const memory::desc w_desc({n, k}, f32, Tag::ab), b_desc({n}, f32, Tag::a);
  const dnnl::inner_product_forward::primitive_desc layer(
      engine, dnnl::prop_kind::forward_inference, x_desc,
      memory::desc({n, k}, f32, Tag::any), b_desc, y_desc);

  memory packed(layer.weights_desc(), engine);
  memory plain(w_desc, engine, w.data());
  dnnl::reorder(plain, packed).execute(stream, plain, packed);
  dnnl::inner_product_forward(layer).execute(
      stream, {{DNNL_ARG_SRC, memory(x_desc, engine, x.data())},
               {DNNL_ARG_WEIGHTS, packed},
               {DNNL_ARG_BIAS, memory(b_desc, engine, b.data())},
               {DNNL_ARG_DST, memory(y_desc, engine, y.data())}});
  stream.wait();

  // Each of k + 1 roundings errs by at most eps / 2 of a partial sum, which is
  // at most k + 1 as |x w| <= 1 and |b| <= 1.
  const double tolerance = 0.5 * 0x1p-23 * (k + 1.0) * (k + 1.0);
  const std::vector<double> wanted = Reference(x, w, b, m, n, k);
  for (size_t i = 0; i < y.size(); ++i) {
    ASSERT_NEAR(y[i], wanted[i], tolerance) << "m " << m << " element " << i;
  }
}

TEST(OneDnn, IsVersionThreePointTwoOrLater) {
  const dnnl_version_t* version = dnnl_version();
  EXPECT_EQ(version->major, 3);
  EXPECT_GE(version->minor, 2);
}

TEST(OneDnn, PrepackedLinearMatchesDouble) {
  for (const int m : {1, 3, 8}) ExpectLinearMatches(m, 96, 160);
  ExpectLinearMatches(2, 17, 33);  // no multiple of any vector
}

}  // namespace
