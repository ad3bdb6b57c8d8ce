// Products of prompts of language models, 16-bit rows by 16-bit weights, that
// cuBLASLt computes in buffers of this object (blas_matmul.h tells how a row
// keeps its bits).
//
//   ASSIGN_OR_RETURN(auto blas, BlasProducts::Open(context));
//   RETURN_IF_ERROR(blas->Bind(rows, outputs));
//   ASSIGN_OR_RETURN(const BlasProduct* product,
//                    blas->Choose(shape, weights, room));
//   if (product != nullptr) error = blas->Multiply(*product, linear, 0, 300);
//
// Used by the context's thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "config/base/status.h"
#include "models/cuda/module_api.h"
#include "models/gpu/blas_matmul.h"
#include "models/gpu/cuda_context.h"

namespace millrace::models {

class BlasProducts {
 public:
  static constexpr int32_t kTileRows = BlasMatmul::kTileRows;

  // FAILED_PRECONDITION says in one sentence why cuBLASLt cannot be used.
  static StatusOr<std::unique_ptr<BlasProducts>> Open(
      std::shared_ptr<CudaContext> context);

  std::string VersionText() const { return matmul_->VersionText(); }

  // Of calls for products of `rows` rows: the rows of the largest one.
  static int32_t CallRows(int64_t rows) { return BlasMatmul::CallRows(rows); }
  // What Bind and Choose allocate.
  static int64_t Bytes(int64_t rows, int64_t outputs);
  // Room for products of so many rows and outputs at most.
  Status Bind(int64_t rows, int64_t outputs);

  // The product of the shape, of which there is one; null: no algorithm gives
  // the same bits. `weights` are some of that shape; `room` has CallRows rows
  // of x, which are overwritten. Waits for the device.
  StatusOr<const BlasProduct*> Choose(const BlasShape& shape,
                                      const std::byte* weights,
                                      std::byte* room);

  // args as MultiplyOnTensors takes them, rows in ascending order within
  // [first, end). Rows between them and up to kTileRows - 1 behind `end` are
  // read, whatever they are. 0, or the number of an error: of a kernel, or with
  // TakeFailure cuBLASLt's.
  int Multiply(const BlasProduct& product, const cuda::LinearArgs& args,
               int32_t first, int32_t end);
  // Of the last call of Multiply that failed in cuBLASLt; fine: none did.
  Status TakeFailure();

 private:
  BlasProducts(std::shared_ptr<CudaContext> context,
               std::unique_ptr<BlasMatmul> matmul)
      : context_(std::move(context)), matmul_(std::move(matmul)) {}
  BlasMatmul::Room room() const {
    return {sums_.as<float>(), workspace_.data()};
  }

  const std::shared_ptr<CudaContext> context_;
  const std::unique_ptr<BlasMatmul> matmul_;
  int32_t call_rows_ = 0;
  int64_t most_outputs_ = 0;
  CudaBuffer sums_, workspace_;
  // Of each shape; null: none is usable.
  std::vector<std::pair<BlasShape, std::unique_ptr<const BlasProduct>>>
      products_;
  Status failure_;
};

}  // namespace millrace::models
