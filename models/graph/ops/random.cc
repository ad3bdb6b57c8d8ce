// Operators that draw random numbers: RandomNormal, RandomUniform, their Like
// forms, and Bernoulli. With attribute seed each call draws the same numbers
// (which are not those of other runtimes); without, new ones.
#include <cstring>
#include <random>

#include "models/graph/ops/op_groups.h"
#include "models/graph/ops/operands.h"
#include "models/graph/ops/quantize.h"

namespace millrace::models::graph {
namespace {

std::mt19937_64 Generator(const Attrs& attrs) {
  if (!attrs.Has("seed")) return std::mt19937_64(std::random_device()());
  const double seed = attrs.Float("seed", 0);
  uint64_t bits = 0;
  std::memcpy(&bits, &seed, sizeof(bits));
  return std::mt19937_64(bits);
}

// dtype is ONNX's number, as in the file.
StatusOr<DType> TypeOf(const Attrs& attrs, DType otherwise) {
  if (!attrs.Has("dtype")) return otherwise;
  if (attrs.Int("dtype", 0) == 9) return DType::kBool;
  if (attrs.Int("dtype", 0) == 7) return DType::kI64;
  if (attrs.Int("dtype", 0) == 6) return DType::kI32;
  return DTypeOfOnnx(attrs.Int("dtype", 0));
}

Types InferShape(const Call& call) {
  RETURN_IF_ERROR(CountOperands(call, 0, 0));
  ASSIGN_OR_RETURN(const DType dtype, TypeOf(call.attrs(), DType::kF32));
  ASSIGN_OR_RETURN(const Shape shape,
                   Shape::Checked(call.attrs().Ints("shape")));
  if (!IsFloat(dtype)) return InvalidArgument("dtype must be a float");
  return Outputs(call, {{dtype, shape}});
}

Types InferLike(const Call& call) {
  RETURN_IF_ERROR(CountOperands(call, 1, 1));
  ASSIGN_OR_RETURN(const DType dtype, TypeOf(call.attrs(), call.arg(0).dtype));
  if (!IsFloat(dtype)) return InvalidArgument("dtype must be a float");
  return Outputs(call, {{dtype, call.arg(0).shape}});
}

Types InferBernoulli(const Call& call) {
  RETURN_IF_ERROR(OneFloat(call));
  ASSIGN_OR_RETURN(const DType dtype, TypeOf(call.attrs(), call.arg(0).dtype));
  return Outputs(call, {{dtype, call.arg(0).shape}});
}

template <typename Draw>
void Fill(const Result& result, Draw&& draw) {
  DispatchFloat(result.dtype, [&]<typename T>() {
    for (int64_t i = 0; i < result.num_elements(); ++i) {
      result.data<T>()[i] = static_cast<T>(static_cast<MathType<T>>(draw()));
    }
  });
}

Status RunUniform(const Call& call, std::span<const Result> results,
                  const Team&) {
  std::mt19937_64 generator = Generator(call.attrs());
  const double low = call.attrs().Float("low", 0);
  const double high = call.attrs().Float("high", 1);
  std::uniform_real_distribution<double> unit(0, 1);
  Fill(results[0], [&] { return low + (high - low) * unit(generator); });
  return OkStatus();
}

Status RunNormal(const Call& call, std::span<const Result> results,
                 const Team&) {
  std::mt19937_64 generator = Generator(call.attrs());
  const double mean = call.attrs().Float("mean", 0);
  const double scale = call.attrs().Float("scale", 1);
  std::normal_distribution<double> unit(0, 1);
  Fill(results[0], [&] { return mean + scale * unit(generator); });
  return OkStatus();
}

Status RunBernoulli(const Call& call, std::span<const Result> results,
                    const Team&) {
  std::mt19937_64 generator = Generator(call.attrs());
  std::uniform_real_distribution<double> unit(0, 1);
  const int64_t n = results[0].num_elements();
  DispatchFloat(call.arg(0).dtype, [&]<typename P>() {
    const P* p = call.arg(0).data<P>();
    Dispatch(results[0].dtype, [&]<typename T>() {
      for (int64_t i = 0; i < n; ++i) {
        const bool hit = unit(generator) < static_cast<double>(p[i]);
        results[0].data<T>()[i] =
            static_cast<T>(static_cast<MathType<T>>(hit ? 1 : 0));
      }
    });
  });
  return OkStatus();
}

constexpr OpDef kOps[] = {
    {"RandomUniform",
     InferShape,
     RunUniform,
     Work::kWhole,
     {.stands_alone = true},
     false},
    {"RandomUniformLike", InferLike, RunUniform, Work::kWhole, {}, false},
    {"RandomNormal",
     InferShape,
     RunNormal,
     Work::kWhole,
     {.stands_alone = true},
     false},
    {"RandomNormalLike", InferLike, RunNormal, Work::kWhole, {}, false},
    {"Bernoulli", InferBernoulli, RunBernoulli, Work::kWhole, {}, false},
};

}  // namespace

std::span<const OpDef> RandomOps() { return kOps; }

}  // namespace millrace::models::graph
