// Products of a graph by weights that cuBLASLt multiplies (models/gpu/
// blas_matmul.h): which layers these are, and one of them.
//
//   ASSIGN_OR_RETURN(auto blas, BlasLayers::Open(module, 0));
//   const BlasProduct* product = blas->Choose(shape);  // null: use kernels
//   step.scratch_bytes = BlasLayers::ScratchBytes(*product);
//   error = blas->Multiply(*product, layer, module, stream, scratch);
//
// Sums come as f32 into scratch memory of the step, some rows at a time; the
// kernel that joins pieces of sums makes results of them. cuBLASLt could add a
// bias and apply a function itself, but it writes whole tiles of rows, also
// behind the last one, and rounds a bias as it rounds results.
//
// Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "config/base/mutex.h"
#include "config/base/status.h"
#include "models/gpu/blas_matmul.h"
#include "models/gpu/cuda_context.h"

namespace millrace::models::graph {

class BlasLayers {
 public:
  // FAILED_PRECONDITION says in one sentence why cuBLASLt cannot be used.
  static StatusOr<std::unique_ptr<BlasLayers>> Open(const cuda::Module* module,
                                                    int32_t ordinal);

  // Of a product as kernels take it, in a plan where `format` is that of its
  // rows; none: cuBLASLt cannot read or write it as it lies. Its rows do not
  // decide.
  static std::optional<BlasShape> ShapeOf(const cuda::ProductArgs& args,
                                          cuda::GraphFormat format);

  // An algorithm for the shape, of which there is one as long as this lives;
  // null: none gives the same bits, or trying failed, which is a line in the
  // log.
  const BlasProduct* Choose(const BlasShape& shape) EXCLUDES(mu_);

  static int64_t ScratchBytes(const BlasProduct& product);
  // So many bytes behind the rows of `a` are read.
  static int64_t ReadsBehind(const BlasProduct& product);
  // y of args.m rows, as GraphProduct; packed_b in the order of rows of
  // outputs. 0, the number of a kernel's error, or cuBLASLt's times -1.
  int Multiply(const BlasProduct& product, const cuda::ProductArgs& args,
               const cuda::Module& module, cuda::Stream stream,
               std::byte* scratch) const;
  // For the number of cuBLASLt's error.
  Status Failed(int error) const { return matmul_->Failed("multiply", error); }

 private:
  BlasLayers(std::shared_ptr<CudaContext> context,
             std::unique_ptr<BlasMatmul> matmul)
      : context_(std::move(context)), matmul_(std::move(matmul)) {}
  StatusOr<std::unique_ptr<const BlasProduct>> Try(const BlasShape& shape)
      REQUIRES(mu_);

  Mutex mu_;  // held while algorithms are tried
  const std::shared_ptr<CudaContext> context_;
  const std::unique_ptr<BlasMatmul> matmul_;
  // Null: kernels multiply.
  std::vector<std::pair<BlasShape, std::unique_ptr<const BlasProduct>>>
      products_ GUARDED_BY(mu_);
};

}  // namespace millrace::models::graph
