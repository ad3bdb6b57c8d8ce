#include "models/graph/cuda/blas_layers.h"

#include <algorithm>
#include <random>

#include "config/base/log.h"
#include "models/graph/cuda/pack_factors.h"

namespace millrace::models::graph {
namespace {

using cuda::GraphFormat;
using cuda::GraphPrecision;

constexpr int32_t kTileRows = BlasMatmul::kTileRows;

struct Factors {
  BlasFactors factors;
  GraphFormat format;  // of rows that cuBLASLt reads where they lie
};
Factors FactorsOf(GraphPrecision precision) {
  switch (precision) {
    case GraphPrecision::kF16:
      return {BlasFactors::kF16, GraphFormat::kF16};
    case GraphPrecision::kBf16:
      return {BlasFactors::kBf16, GraphFormat::kBf16};
    case GraphPrecision::kTf32:
      return {BlasFactors::kTf32, GraphFormat::kF32};
    case GraphPrecision::kF32:
      break;
  }
  return {BlasFactors::kF32, GraphFormat::kF32};
}
GraphPrecision PrecisionOf(BlasFactors factors) {
  switch (factors) {
    case BlasFactors::kF16:
      return GraphPrecision::kF16;
    case BlasFactors::kBf16:
      return GraphPrecision::kBf16;
    case BlasFactors::kTf32:
      return GraphPrecision::kTf32;
    case BlasFactors::kF32:
      break;
  }
  return GraphPrecision::kF32;
}

int64_t RowOfSums(const BlasShape& shape) {
  return BlasMatmul::PitchOfSums(shape.outputs) * 4;
}

// Of a call, at most. It follows from the shape, as the algorithm does.
int32_t CallRowsOf(const BlasShape& shape) {
  constexpr int64_t kMostSumBytes = int64_t{64} << 20;
  const int64_t rows = kMostSumBytes / RowOfSums(shape);
  return std::max(kTileRows,
                  BlasMatmul::CallRows(rows / kTileRows * kTileRows));
}

// Weights to try algorithms with: a few random rows again and again.
std::vector<std::byte> SomeWeights(const BlasShape& shape) {
  constexpr int64_t kDifferent = 64;
  const int64_t rows = std::min(kDifferent, shape.outputs);
  std::vector<float> values(static_cast<size_t>(rows * shape.weights_pitch));
  std::mt19937 random(2);
  std::uniform_real_distribution<float> uniform(-1, 1);
  for (float& value : values) value = uniform(random);
  const auto row_bytes =
      static_cast<size_t>(shape.weights_pitch * BytesOf(shape.factors));
  std::vector<std::byte> weights(static_cast<size_t>(shape.outputs) *
                                 row_bytes);
  RoundFactors(PrecisionOf(shape.factors), values.data(),
               static_cast<int64_t>(values.size()), weights.data());
  for (size_t at = static_cast<size_t>(rows) * row_bytes; at < weights.size();
       ++at) {
    weights[at] = weights[at - static_cast<size_t>(rows) * row_bytes];
  }
  return weights;
}

}  // namespace

StatusOr<std::unique_ptr<BlasLayers>> BlasLayers::Open(
    const cuda::Module* module, int32_t ordinal) {
  ASSIGN_OR_RETURN(
      auto context,
      CudaContext::Open(
          module, ordinal,
          {.setting = "gemm_backend",
           .remedy = "end what else runs on it, or set gemm_backend to "
                     "native"}));
  ASSIGN_OR_RETURN(auto matmul, BlasMatmul::Open(context));
  return std::unique_ptr<BlasLayers>(
      new BlasLayers(std::move(context), std::move(matmul)));
}

std::optional<BlasShape> BlasLayers::ShapeOf(const cuda::ProductArgs& args,
                                             GraphFormat format) {
  const Factors factors = FactorsOf(args.precision);
  const int64_t bytes = BytesOf(factors.factors);
  const int64_t in_unit = cuda::kPackedUnit / bytes;
  // Sums of a row lie densely, as the kernel behind the product reads them.
  // Of a stack the count may be that of a batch: what multiplies a row must not
  // follow from it.
  if (args.rank > 0 || args.count != 1 || format != factors.format ||
      args.a_k != 1 || args.k % in_unit != 0 || args.a_row % in_unit != 0 ||
      args.a_row < args.k || args.n != BlasMatmul::PitchOfSums(args.n)) {
    return std::nullopt;
  }
  return BlasShape{
      .factors = factors.factors,
      .outputs = args.n,
      .inputs = args.k,
      .weights_pitch = PackedRowBytes(args.precision, args.k) / bytes,
      .x_pitch = args.a_row};
}

StatusOr<std::unique_ptr<const BlasProduct>> BlasLayers::Try(
    const BlasShape& shape) {
  const int32_t rows = CallRowsOf(shape);
  const std::string what = "trying the products of cuBLASLt";
  const std::vector<std::byte> some = SomeWeights(shape);
  const auto weight_bytes = static_cast<int64_t>(some.size());
  ASSIGN_OR_RETURN(const CudaBuffer weights,
                   context_->Allocate(weight_bytes, what));
  ASSIGN_OR_RETURN(
      const CudaBuffer x,
      context_->Allocate(rows * shape.x_pitch * BytesOf(shape.factors), what));
  ASSIGN_OR_RETURN(const CudaBuffer sums,
                   context_->Allocate((rows + 1) * RowOfSums(shape), what));
  ASSIGN_OR_RETURN(const CudaBuffer workspace,
                   context_->Allocate(BlasMatmul::kWorkspaceBytes, what));
  RETURN_IF_ERROR(context_->Upload(weights.data(), some.data(), weight_bytes));
  return matmul_->Choose(shape, rows, weights.data(), x.data(),
                         {sums.as<float>(), workspace.data()});
}

const BlasProduct* BlasLayers::Choose(const BlasShape& shape) {
  MutexLock lock(mu_);
  for (const auto& [known, product] : products_) {
    if (known == shape) return product.get();
  }
  StatusOr<std::unique_ptr<const BlasProduct>> tried = Try(shape);
  if (!tried.ok() || *tried == nullptr) {
    LogInfo("native kernels multiply layers of a shape, not cuBLASLt",
            {{"inputs", shape.inputs},
             {"outputs", shape.outputs},
             {"why", tried.ok() ? "no algorithm gives a row the same bits in "
                                  "each place"
                                : std::string(tried.status().message())}});
  }
  products_.emplace_back(shape,
                         tried.ok() ? std::move(tried).value() : nullptr);
  return products_.back().second.get();
}

int64_t BlasLayers::ScratchBytes(const BlasProduct& product) {
  return BlasMatmul::kWorkspaceBytes +
         product.call_rows() * RowOfSums(product.shape());
}

int64_t BlasLayers::ReadsBehind(const BlasProduct& product) {
  const BlasShape& shape = product.shape();
  return (kTileRows - 1) * shape.x_pitch * BytesOf(shape.factors);
}

int BlasLayers::Multiply(const BlasProduct& product,
                         const cuda::ProductArgs& args,
                         const cuda::Module& module, cuda::Stream stream,
                         std::byte* scratch) const {
  const BlasMatmul::Room room = {
      reinterpret_cast<float*>(scratch + BlasMatmul::kWorkspaceBytes), scratch};
  for (int64_t first = 0; first < args.m; first += product.call_rows()) {
    const int64_t count =
        std::min<int64_t>(args.m - first, product.call_rows());
    const cuda::ValuesIn rows = args.a + first * args.a_row;
    const int error = matmul_->Call(
        product, static_cast<const std::byte*>(args.packed_b.data),
        static_cast<const std::byte*>(rows.data), BlasMatmul::CallRows(count),
        room, stream);
    if (error != cublaslt::kSuccess) return -error;
    const int64_t at = first * args.y_row;
    cuda::GraphEpilogue end = args.epilogue;
    if (end.residual.any()) end.residual += at;
    if (end.gate.any()) end.gate += at;
    const int joined = module.graph_join_pieces(stream, {.partial = room.sums,
                                                         .pieces = 1,
                                                         .m = count,
                                                         .n = args.n,
                                                         .y = args.y + at,
                                                         .y_row = args.y_row,
                                                         .rank = 0,
                                                         .count = 1,
                                                         .sizes = {},
                                                         .y_strides = {},
                                                         .epilogue = end,
                                                         .wide = false});
    if (joined != 0) return joined;
  }
  return 0;
}

}  // namespace millrace::models::graph
