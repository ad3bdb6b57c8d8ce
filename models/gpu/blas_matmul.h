// Products of rows by a matrix of weights that cuBLASLt computes, with the same
// bits for a row whatever else is multiplied with it.
//
//   ASSIGN_OR_RETURN(auto blas, BlasMatmul::Open(context));
//   ASSIGN_OR_RETURN(auto product,
//                    blas->Choose(shape, 1024, weights, x, room));
//   if (product != nullptr) error = blas->Call(*product, ...);
//
// cuBLASLt promises the same bits for the same call, not for another number of
// rows. So calls have a multiple of kTileRows rows, kMostCallRows at most, and
// a shape has one algorithm for all of them, without split sums. Before it is
// used it is run: in each number of rows, equal rows must give equal bits in
// each place. An algorithm that does not is dropped, and so is a shape without
// another one: then this program's own kernels multiply.
//
// Calls may come from several threads, each with sums and a workspace of its
// own; all else is used by the context's thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "config/base/status.h"
#include "models/gpu/cublaslt_library.h"
#include "models/gpu/cuda_context.h"

namespace millrace::models {

// What is multiplied; sums are f32. kTf32 and kF32 are f32 in memory.
enum class BlasFactors { kF16, kBf16, kTf32, kF32 };
constexpr int64_t BytesOf(BlasFactors factors) {
  return factors == BlasFactors::kF16 || factors == BlasFactors::kBf16 ? 2 : 4;
}

// Rows of weights and of x begin at multiples of 16 bytes.
struct BlasShape {
  BlasFactors factors = BlasFactors::kF16;
  int64_t outputs = 0;
  int64_t inputs = 0;         // of 16 bytes together a multiple
  int64_t weights_pitch = 0;  // of values, likewise
  int64_t x_pitch = 0;
  bool operator==(const BlasShape&) const = default;
};

// An algorithm for a shape.
class BlasProduct {
 public:
  const BlasShape& shape() const { return shape_; }
  int32_t call_rows() const { return call_rows_; }  // of a call, at most

 private:
  friend class BlasMatmul;
  // How a matrix lies.
  class Layout {
   public:
    Layout() = default;
    Layout(Layout&& other) noexcept;
    Layout& operator=(Layout&& other) noexcept;
    ~Layout();
    // The number of an error.
    int Make(const CublasLtLibrary& library, int type, int64_t rows,
             int64_t columns, int64_t pitch);
    cublaslt::MatrixLayout get() const { return layout_; }

   private:
    const CublasLtLibrary* library_ = nullptr;  // never closed
    cublaslt::MatrixLayout layout_ = nullptr;
  };
  BlasProduct(const BlasShape& shape, int32_t call_rows)
      : shape_(shape), call_rows_(call_rows) {}

  const BlasShape shape_;
  const int32_t call_rows_;
  cublaslt::Algo algo_ = {};
  // By columns, as cuBLASLt has it: W^T · x^T of weights as a matrix of inputs
  // by outputs and x as one of inputs by rows. Of 1, 2, ... tiles of rows.
  Layout weights_;
  std::vector<Layout> x_, sums_;
};

class BlasMatmul {
 public:
  // Below some 300 rows an H100 waits for the weights, so 128 rows take hardly
  // longer than one. Sums of 1024 rows by 12288 outputs are 48 MiB, about what
  // its cache holds when they are read again. Neither was measured.
  static constexpr int32_t kTileRows = 128;
  static constexpr int32_t kMostCallRows = 1024;
  // NVIDIA's advice for Hopper; other GPUs need less.
  static constexpr int64_t kWorkspaceBytes = int64_t{32} << 20;

  // What a call writes.
  struct Room {
    float* sums = nullptr;           // [rows][PitchOfSums]
    std::byte* workspace = nullptr;  // [kWorkspaceBytes]
  };
  // Floats from one row of sums to the next.
  static int64_t PitchOfSums(int64_t outputs) { return (outputs + 7) / 8 * 8; }
  // Of calls for products of `rows` rows: the rows of the largest one.
  static int32_t CallRows(int64_t rows);

  // FAILED_PRECONDITION says in one sentence why cuBLASLt cannot be used.
  static StatusOr<std::unique_ptr<BlasMatmul>> Open(
      std::shared_ptr<CudaContext> context);
  ~BlasMatmul();
  BlasMatmul(const BlasMatmul&) = delete;
  BlasMatmul& operator=(const BlasMatmul&) = delete;

  std::string VersionText() const { return library_->VersionText(); }

  // An algorithm for calls of up to `call_rows` rows, CallRows of something;
  // null: none gives the same bits. `weights` are some of that shape; `x` has
  // room for so many rows, which are overwritten; so has `room`, a row more.
  // Waits for the device.
  StatusOr<std::unique_ptr<const BlasProduct>> Choose(const BlasShape& shape,
                                                      int32_t call_rows,
                                                      const std::byte* weights,
                                                      std::byte* x,
                                                      const Room& room);

  // Sums of `rows` rows of x, a multiple of kTileRows, on `stream` of the
  // context's device, which is the calling thread's. kSuccess or the number of
  // cuBLASLt's error.
  int Call(const BlasProduct& product, const std::byte* weights,
           const std::byte* x, int32_t rows, const Room& room,
           cuda::Stream stream) const;
  // "cuda:0 failed: cuBLASLt cannot <what>: …" for the number of an error.
  Status Failed(const std::string& what, int error) const;

 private:
  BlasMatmul(std::shared_ptr<const CublasLtLibrary> library,
             std::shared_ptr<CudaContext> context);
  Status MakeLayouts(BlasProduct& product) const;
  cublaslt::MatmulDesc DescOf(BlasFactors factors) const {
    return factors == BlasFactors::kTf32 ? tf32_ : f32_;
  }
  // Algorithms that do all numbers of rows in one piece each, the best first.
  std::vector<cublaslt::Algo> Candidates(const BlasProduct& product) const;
  // Whether equal rows give equal bits.
  StatusOr<bool> GivesTheSameBits(const BlasProduct& product,
                                  const std::byte* weights, const std::byte* x,
                                  const Room& room);

  const std::shared_ptr<const CublasLtLibrary> library_;
  const std::shared_ptr<CudaContext> context_;
  cublaslt::Handle handle_ = nullptr;
  // Of products of f16, bf16 and f32 as they are; of f32 rounded to tf32.
  cublaslt::MatmulDesc f32_ = nullptr, tf32_ = nullptr;
  cublaslt::Preference preference_ = nullptr;
};

}  // namespace millrace::models
