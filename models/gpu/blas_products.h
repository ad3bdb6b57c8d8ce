// Products of 16-bit rows by 16-bit weights that cuBLASLt computes, with the
// same bits for a row whatever else is multiplied with it.
//
//   ASSIGN_OR_RETURN(auto blas, BlasProducts::Open(context));
//   RETURN_IF_ERROR(blas->Bind(rows, outputs));
//   ASSIGN_OR_RETURN(const BlasProduct* product,
//                    blas->Choose(shape, weights, room));
//   if (product != nullptr) error = blas->Multiply(*product, linear, 0, 300);
//
// cuBLASLt promises the same bits for the same call, not for another number of
// rows. So calls have a multiple of kTileRows rows, kMostCallRows at most, and
// a shape has one algorithm for all of them, without split sums. Before it is
// used it is run: in each number of rows, equal rows must give equal bits in
// each place. An algorithm that does not is dropped, and so is a shape without
// another one: then this program's own kernels multiply.
//
// Used by the context's thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "config/base/status.h"
#include "models/cuda/module_api.h"
#include "models/gpu/cublaslt_library.h"
#include "models/gpu/cuda_context.h"

namespace millrace::models {

struct BlasShape {
  bool bf16 = false;  // else f16
  int64_t outputs = 0;
  int64_t inputs = 0;         // a multiple of 8
  int64_t weights_pitch = 0;  // of values; multiples of 8, as x_pitch
  int64_t x_pitch = 0;
  bool operator==(const BlasShape&) const = default;
};

class BlasProduct;

class BlasProducts {
 public:
  // Below some 300 rows an H100 waits for the weights, so 128 rows take hardly
  // longer than one. Sums of 1024 rows by 12288 outputs are 48 MiB, about what
  // its cache holds when they are read again. Neither was measured.
  static constexpr int32_t kTileRows = 128;
  static constexpr int32_t kMostCallRows = 1024;
  // NVIDIA's advice for Hopper; other GPUs need less.
  static constexpr int64_t kWorkspaceBytes = int64_t{32} << 20;

  // FAILED_PRECONDITION says in one sentence why cuBLASLt cannot be used.
  static StatusOr<std::unique_ptr<BlasProducts>> Open(
      std::shared_ptr<CudaContext> context);
  ~BlasProducts();
  BlasProducts(const BlasProducts&) = delete;
  BlasProducts& operator=(const BlasProducts&) = delete;

  std::string VersionText() const { return library_->VersionText(); }

  // Of calls for products of `rows` rows: the rows of the largest one.
  static int32_t CallRows(int64_t rows);
  // What Bind allocates.
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
  BlasProducts(std::shared_ptr<const CublasLtLibrary> library,
               std::shared_ptr<CudaContext> context);
  Status Failed(const std::string& what, int error) const;
  Status MakeLayouts(BlasProduct& product) const;
  // Algorithms that do all numbers of rows in one piece each, the best first.
  StatusOr<std::vector<cublaslt::Algo>> Candidates(
      const BlasProduct& product) const;
  // Sums of `rows` rows from x on to sums_; the number of cuBLASLt's error.
  int Call(const BlasProduct& product, const std::byte* weights,
           const std::byte* x, int32_t rows);
  // Whether equal rows give equal bits.
  StatusOr<bool> GivesTheSameBits(const BlasProduct& product,
                                  const std::byte* weights,
                                  const std::byte* room);

  const std::shared_ptr<const CublasLtLibrary> library_;
  const std::shared_ptr<CudaContext> context_;
  cublaslt::Handle handle_ = nullptr;
  cublaslt::MatmulDesc desc_ = nullptr;
  cublaslt::Preference preference_ = nullptr;
  int32_t call_rows_ = 0;
  int64_t most_outputs_ = 0;
  CudaBuffer sums_, workspace_;
  // For tests of an algorithm: sums of a row, and what rows differ.
  CudaBuffer expected_, differs_, differs_on_host_;
  std::vector<std::unique_ptr<BlasProduct>> products_;
  Status failure_;
};

}  // namespace millrace::models
