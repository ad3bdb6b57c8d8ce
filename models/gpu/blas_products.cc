#include "models/gpu/blas_products.h"

#include <algorithm>
#include <utility>

namespace millrace::models {

StatusOr<std::unique_ptr<BlasProducts>> BlasProducts::Open(
    std::shared_ptr<CudaContext> context) {
  ASSIGN_OR_RETURN(auto matmul, BlasMatmul::Open(context));
  return std::unique_ptr<BlasProducts>(
      new BlasProducts(std::move(context), std::move(matmul)));
}

int64_t BlasProducts::Bytes(int64_t rows, int64_t outputs) {
  return BlasMatmul::kWorkspaceBytes +
         // And one row that is expected.
         (CallRows(rows) + 1) * BlasMatmul::PitchOfSums(outputs) * 4 +
         BlasMatmul::kMostCallRows * 4;
}

Status BlasProducts::Bind(int64_t rows, int64_t outputs) {
  call_rows_ = CallRows(rows);
  most_outputs_ = outputs;
  const std::string what = "the products of cuBLASLt";
  ASSIGN_OR_RETURN(workspace_,
                   context_->Allocate(BlasMatmul::kWorkspaceBytes, what));
  ASSIGN_OR_RETURN(
      sums_,
      context_->Allocate(
          (call_rows_ + 1) * BlasMatmul::PitchOfSums(outputs) * 4, what));
  return OkStatus();
}

StatusOr<const BlasProduct*> BlasProducts::Choose(const BlasShape& shape,
                                                  const std::byte* weights,
                                                  std::byte* room) {
  CHECK(call_rows_ > 0 && shape.outputs <= most_outputs_,
        "there is room for the products of a shape before it is chosen for");
  for (const auto& [known, product] : products_) {
    if (known == shape) return product.get();
  }
  ASSIGN_OR_RETURN(
      std::unique_ptr<const BlasProduct> product,
      matmul_->Choose(shape, call_rows_, weights, room, this->room()));
  products_.emplace_back(shape, std::move(product));
  return products_.back().second.get();
}

int BlasProducts::Multiply(const BlasProduct& product,
                           const cuda::LinearArgs& args, int32_t first,
                           int32_t end) {
  for (int32_t at = first; at < end;) {
    const int32_t rows = CallRows(std::min(end - at, call_rows_));
    const int error = matmul_->Call(product, args.weights.data,
                                    args.rounded + at * args.rounded_bytes,
                                    rows, room(), context_->device().stream);
    if (error != cublaslt::kSuccess) {
      failure_ =
          matmul_->Failed("multiply " + std::to_string(rows) + " rows", error);
      return error;
    }
    const int32_t count = std::min(rows, end - at);
    const int finished = context_->module().finish_product(
        context_->device().stream,
        {.product = args,
         .sums = sums_.as<float>(),
         .pitch = BlasMatmul::PitchOfSums(product.shape().outputs),
         .first = at,
         .count = count});
    if (finished != 0) return finished;
    at += count;
  }
  return 0;
}

Status BlasProducts::TakeFailure() {
  return std::exchange(failure_, OkStatus());
}

}  // namespace millrace::models
