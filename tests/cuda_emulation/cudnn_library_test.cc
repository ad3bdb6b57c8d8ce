// What models/gpu says to cuDNN: the sentences of a library that cannot serve,
// wrong uses that the library that stands in refuses, and operation graphs that
// the real one takes, which needs no GPU.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "models/gpu/cudnn_graph.h"
#include "tests/cuda_emulation/test_module.h"

namespace millrace::models {
namespace {

using cudnn::Attribute;
using cudnn::Kind;
using cudnn::Type;

constexpr const char* kStandsIn = "of the library that stands in";

class Cudnn : public testing::Test {
 protected:
  ~Cudnn() override {
    unsetenv("MILLRACE_CUDNN");
    unsetenv("MILLRACE_FAKE_CUDNN_VERSION");
  }
  static StatusOr<std::shared_ptr<const CudnnLibrary>> Open(const char* file) {
    setenv("MILLRACE_CUDNN", file, 1);
    return CudnnLibrary::Open();
  }
  static std::string Refusal(const char* file) {
    return std::string(Open(file).status().message());
  }
};

TEST_F(Cudnn, EachRefusalIsOneSentence) {
  if (!Emulated()) GTEST_SKIP() << kStandsIn;
  const std::string none = Refusal("/nonexistent/libcudnn.so.9");
  EXPECT_TRUE(none.starts_with("cuDNN cannot be opened (/nonexistent"));
  EXPECT_TRUE(none.ends_with("MILLRACE_CUDNN, or set conv_backend to native"));
  // Not set: else the file would be this program.
  EXPECT_FALSE(Refusal("").starts_with("''")) << Refusal("");
  EXPECT_EQ(Refusal(EMULATED_MODULE),
            "'" EMULATED_MODULE
            "' is no cuDNN, it has no function cudnnGetVersion; name the right "
            "file with MILLRACE_CUDNN, or set conv_backend to native");
  setenv("MILLRACE_FAKE_CUDNN_VERSION", "8907", 1);
  EXPECT_EQ(Refusal(FAKE_CUDNN),
            "cuDNN in '" FAKE_CUDNN
            "' (version 8) is too old, 9.0.0 or later is needed; update it, or "
            "set conv_backend to native");
  unsetenv("MILLRACE_FAKE_CUDNN_VERSION");
  const auto opened = Open(FAKE_CUDNN);
  ASSERT_TRUE(opened.ok()) << opened.status().ToString();
  EXPECT_EQ((*opened)->VersionText(), "9.10.2");
}

ConvShape Layer() {
  ConvShape shape;
  shape.precision = cuda::GraphPrecision::kF16;
  shape.in = shape.out = {1, 6, 7};
  shape.kernel = {1, 3, 3};
  shape.pad = shape.pad_end = {0, 1, 1};
  shape.channels = 32;
  shape.outputs = 16;
  shape.y = cuda::GraphFormat::kF16;
  shape.has_bias = true;
  shape.f = cuda::Function::kRelu;
  return shape;
}

// Each breaks one rule of cuDNN's interface.
TEST_F(Cudnn, WrongUsesFail) {
  if (!Emulated()) GTEST_SKIP() << kStandsIn;
  const auto opened = Open(FAKE_CUDNN);
  ASSERT_TRUE(opened.ok());
  void* library = dlopen(FAKE_CUDNN, RTLD_NOW | RTLD_NOLOAD);
  const auto wrong =
      reinterpret_cast<int (*)()>(dlsym(library, "millrace_fake_cudnn_wrong"));
  const int before = wrong();
  int uses = 0;
  const auto tensor = [&](auto change) {
    CudnnDescriptor made(*opened, Kind::kTensor);
    made.SetInt(Attribute::kTensorId, 1);
    made.SetEnum(Attribute::kTensorType, Type::kDataType,
                 cudnn::DataType::kF16);
    made.SetInt(Attribute::kTensorAlignment, 16);
    made.SetInts(Attribute::kTensorDimensions, std::array<int64_t, 3>{2, 8, 3});
    change(made);
    made.SetInts(Attribute::kTensorStrides, std::array<int64_t, 3>{24, 1, 8});
    made.Finalize();
    return made;
  };
  EXPECT_EQ(tensor([](CudnnDescriptor&) {}).error(), cudnn::kSuccess);
  const auto fails = [&](auto change) {
    ++uses;
    return tensor(change).error() != cudnn::kSuccess;
  };
  EXPECT_TRUE(fails([](CudnnDescriptor& t) {
    t.SetFloat(Attribute::kTensorAlignment, 16);
  })) << "another type";
  EXPECT_TRUE(fails([](CudnnDescriptor& t) {
    t.SetInt(Attribute::kKnobValue, 1);
  })) << "an attribute of another kind";
  EXPECT_TRUE(fails([](CudnnDescriptor& t) {
    t.SetInts(Attribute::kTensorId, std::array<int64_t, 2>{1, 2});
  })) << "two values";
  EXPECT_TRUE(fails([](CudnnDescriptor& t) {
    t.SetInts(Attribute::kTensorDimensions, std::array<int64_t, 3>{2, 0, 3});
  })) << "a size of zero";
  EXPECT_TRUE(fails([](CudnnDescriptor& t) {
    t.SetInts(Attribute::kTensorDimensions, std::array<int64_t, 2>{2, 8});
  })) << "more strides than sizes";
  EXPECT_TRUE(fails([](CudnnDescriptor& t) {
    t.SetInt(Attribute::kTensorAlignment, 3);
  })) << "no whole values";
  CudnnDescriptor final = tensor([](CudnnDescriptor&) {});
  final.SetInt(Attribute::kTensorId, 2);
  ++uses;
  EXPECT_NE(final.error(), cudnn::kSuccess) << "set when it is final";
  EXPECT_TRUE(fails([](CudnnDescriptor& t) { t.GetInt(Attribute::kTensorId); }))
      << "asked before it is final";
  CudnnDescriptor how(*opened, Kind::kPointwise);
  how.Finalize();
  ++uses;
  EXPECT_NE(how.error(), cudnn::kSuccess) << "what is required is not set";
  CudnnDescriptor node(*opened, Kind::kPointwiseOperation);
  const CudnnDescriptor open(*opened, Kind::kTensor);
  node.SetDescriptor(Attribute::kOperationX, open);
  ++uses;
  EXPECT_NE(node.error(), cudnn::kSuccess) << "a part that is not final";
  CudnnDescriptor other(*opened, Kind::kPointwiseOperation);
  other.SetDescriptor(Attribute::kOperationPointwise,
                      tensor([](CudnnDescriptor&) {}));
  ++uses;
  EXPECT_NE(other.error(), cudnn::kSuccess) << "a part of another kind";
  ConvShape shape = Layer();
  shape.out = {1, 6, 6};
  cudnn::Handle handle = nullptr;
  ASSERT_EQ((*opened)->create(&handle), cudnn::kSuccess);
  ++uses;
  EXPECT_NE(DescribeConvolution(*opened, handle, shape, 4).graph.error(),
            cudnn::kSuccess)
      << "a result of other sizes";
  EXPECT_EQ(DescribeConvolution(*opened, handle, Layer(), 4).graph.error(),
            cudnn::kSuccess);
  ++uses;
  EXPECT_NE(DescribeConvolution(*opened, nullptr, Layer(), 4).graph.error(),
            cudnn::kSuccess)
      << "no handle";
  EXPECT_EQ(wrong() - before, uses);
  EXPECT_EQ((*opened)->destroy(handle), cudnn::kSuccess);
}

// The library that stands in says so, as the real one may not.
TEST_F(Cudnn, AHandleOfTwoThreadsIsSeen) {
  if (!Emulated()) GTEST_SKIP() << kStandsIn;
  const auto opened = Open(FAKE_CUDNN);
  ASSERT_TRUE(opened.ok());
  cudnn::Handle handle = nullptr;
  ASSERT_EQ((*opened)->create(&handle), cudnn::kSuccess);
  std::atomic<bool> seen = false;
  const auto use = [&](int times) {
    for (int i = 0; i < times && !seen; ++i) {
      if ((*opened)->set_stream(handle, nullptr) != cudnn::kSuccess) {
        seen = true;
      }
    }
  };
  use(50);
  EXPECT_FALSE(seen) << "one thread";
  std::thread other(use, 10000);
  use(10000);
  other.join();
  EXPECT_TRUE(seen);
  EXPECT_EQ((*opened)->destroy(handle), cudnn::kSuccess);
}

// Tensors, operations and the graph of them are checked without a GPU.
TEST_F(Cudnn, TheRealLibraryTakesTheGraphs) {
  const char* real = std::getenv("MILLRACE_TEST_CUDNN");
  if (real == nullptr) GTEST_SKIP() << "MILLRACE_TEST_CUDNN names no cuDNN";
  const auto opened = Open(real);
  ASSERT_TRUE(opened.ok()) << opened.status().ToString();
  const auto error = [&](const ConvShape& shape, int64_t images) {
    return DescribeConvolution(*opened, nullptr, shape, images).graph.error();
  };
  using cuda::Function;
  for (const auto precision :
       {cuda::GraphPrecision::kF32, cuda::GraphPrecision::kTf32,
        cuda::GraphPrecision::kF16, cuda::GraphPrecision::kBf16}) {
    ConvShape shape = Layer();
    shape.precision = precision;
    shape.y = shape.factors();
    EXPECT_EQ(error(shape, 1), cudnn::kSuccess);
    EXPECT_EQ(error(shape, 64), cudnn::kSuccess);
    shape.has_bias = false;
    shape.f = Function::kNone;
    EXPECT_EQ(error(shape, 4), cudnn::kSuccess) << "the sums alone";
    shape.groups = 4;
    shape.residual = shape.gate = shape.y;
    for (const bool first : {false, true}) {
      shape.residual_first = first;
      for (const Function f :
           {Function::kNone, Function::kRelu, Function::kClip,
            Function::kLeakyRelu, Function::kSigmoid, Function::kTanh,
            Function::kElu, Function::kGeluErf, Function::kGeluTanh,
            Function::kSilu, Function::kSoftplus}) {
        shape.f = f;
        shape.a = 0.5f;
        shape.b = 6;
        EXPECT_EQ(error(shape, 4), cudnn::kSuccess) << static_cast<int>(f);
      }
    }
    shape.in = {4, 6, 7};
    shape.out = {3, 6, 7};
    shape.kernel = {2, 3, 3};
    EXPECT_EQ(error(shape, 4), cudnn::kSuccess) << "volumes";
    shape.out = {3, 6, 6};
    EXPECT_NE(error(shape, 4), cudnn::kSuccess) << "it does look at them";
  }
}

}  // namespace
}  // namespace millrace::models
