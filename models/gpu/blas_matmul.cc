#include "models/gpu/blas_matmul.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <random>
#include <span>
#include <utility>

namespace millrace::models {
namespace {

// Of memory that cuBLASLt is told: rows begin there.
constexpr uint32_t kAlignment = 16;
// Algorithms that are asked for.
constexpr int kMostCandidates = 8;

int TypeOf(BlasFactors factors) {
  switch (factors) {
    case BlasFactors::kF16:
      return cublaslt::kF16;
    case BlasFactors::kBf16:
      return cublaslt::kBF16;
    case BlasFactors::kTf32:
    case BlasFactors::kF32:
      break;
  }
  return cublaslt::kF32;
}

// A value of some -2 to 2, whose sums are rounded in each addition: exponents
// -6 to 0, all bits behind the point.
uint32_t RandomValue(std::mt19937& random, BlasFactors factors) {
  const uint32_t bits = random();
  const uint32_t less = (bits >> 16 & 0xff) % 7;
  switch (factors) {
    case BlasFactors::kF16:
      return (bits >> 16 & 0x8000) | (15 - less) << 10 | (bits & 0x3ff);
    case BlasFactors::kBf16:
      return (bits >> 16 & 0x8000) | (127 - less) << 7 | (bits & 0x7f);
    case BlasFactors::kTf32:
    case BlasFactors::kF32:
      break;
  }
  return (bits & 0x80000000) | (127 - less) << 23 | (random() & 0x7fffff);
}

// Equal rows.
std::vector<std::byte> EqualRows(const BlasShape& shape, int32_t rows) {
  const auto bytes = static_cast<size_t>(BytesOf(shape.factors));
  const size_t row_bytes = bytes * static_cast<size_t>(shape.x_pitch);
  std::vector<std::byte> x(static_cast<size_t>(rows) * row_bytes);
  std::mt19937 random(1);
  for (size_t i = 0; i < static_cast<size_t>(shape.inputs); ++i) {
    const uint32_t value = RandomValue(random, shape.factors);
    std::memcpy(x.data() + i * bytes, &value, bytes);
  }
  for (size_t row = 1; row < static_cast<size_t>(rows); ++row) {
    std::memcpy(x.data() + row * row_bytes, x.data(), row_bytes);
  }
  return x;
}

}  // namespace

BlasProduct::Layout::Layout(Layout&& other) noexcept {
  *this = std::move(other);
}
BlasProduct::Layout& BlasProduct::Layout::operator=(Layout&& other) noexcept {
  std::swap(library_, other.library_);
  std::swap(layout_, other.layout_);
  return *this;
}
BlasProduct::Layout::~Layout() {
  if (layout_ != nullptr) library_->layout_destroy(layout_);
}
int BlasProduct::Layout::Make(const CublasLtLibrary& library, int type,
                              int64_t rows, int64_t columns, int64_t pitch) {
  library_ = &library;
  return library.layout_create(&layout_, type, static_cast<uint64_t>(rows),
                               static_cast<uint64_t>(columns), pitch);
}

BlasMatmul::BlasMatmul(std::shared_ptr<const CublasLtLibrary> library,
                       std::shared_ptr<CudaContext> context)
    : library_(std::move(library)), context_(std::move(context)) {}

BlasMatmul::~BlasMatmul() {
  if (preference_ != nullptr) library_->preference_destroy(preference_);
  for (const cublaslt::MatmulDesc desc : {f32_, tf32_}) {
    if (desc != nullptr) library_->desc_destroy(desc);
  }
  if (handle_ != nullptr) library_->destroy(handle_);
}

Status BlasMatmul::Failed(const std::string& what, int error) const {
  return Internal("cuda:" + std::to_string(context_->device().ordinal) +
                  " failed: cuBLASLt cannot " + what + ": " +
                  library_->TextOf(error));
}

StatusOr<std::unique_ptr<BlasMatmul>> BlasMatmul::Open(
    std::shared_ptr<CudaContext> context) {
  ASSIGN_OR_RETURN(auto library, CublasLtLibrary::Open());
  RETURN_IF_ERROR(context->MakeCurrent());
  std::unique_ptr<BlasMatmul> blas(
      new BlasMatmul(std::move(library), std::move(context)));
  const CublasLtLibrary& lt = *blas->library_;
  int error = lt.create(&blas->handle_);
  const auto make_desc = [&](cublaslt::MatmulDesc& desc, int compute) {
    if (error == cublaslt::kSuccess) {
      error = lt.desc_create(&desc, compute, cublaslt::kF32);
    }
    if (error == cublaslt::kSuccess) {
      error = lt.desc_set(desc, cublaslt::kDescTransposesA,
                          &cublaslt::kTransposed, sizeof cublaslt::kTransposed);
    }
  };
  const auto set_preference = [&](int attribute, auto value) {
    if (error != cublaslt::kSuccess) return;
    error =
        lt.preference_set(blas->preference_, attribute, &value, sizeof value);
  };
  make_desc(blas->f32_, cublaslt::kComputeF32);
  make_desc(blas->tf32_, cublaslt::kComputeTf32);
  if (error == cublaslt::kSuccess) {
    error = lt.preference_create(&blas->preference_);
  }
  set_preference(cublaslt::kPrefMaxWorkspaceBytes,
                 static_cast<uint64_t>(kWorkspaceBytes));
  set_preference(cublaslt::kPrefReductionSchemes, cublaslt::kNoReduction);
  for (const int matrix :
       {cublaslt::kPrefAlignmentA, cublaslt::kPrefAlignmentB,
        cublaslt::kPrefAlignmentC, cublaslt::kPrefAlignmentD}) {
    set_preference(matrix, kAlignment);
  }
  if (error != cublaslt::kSuccess) {
    return FailedPrecondition(
               "cuBLASLt " + blas->VersionText() + " cannot serve cuda:" +
               std::to_string(blas->context_->device().ordinal) + ": " +
               lt.TextOf(error) + "; set gemm_backend to native")
        .At("gemm_backend");
  }
  return blas;
}

int32_t BlasMatmul::CallRows(int64_t rows) {
  return static_cast<int32_t>(std::min<int64_t>(
      (rows + kTileRows - 1) / kTileRows * kTileRows, kMostCallRows));
}

Status BlasMatmul::MakeLayouts(BlasProduct& product) const {
  const BlasShape& shape = product.shape_;
  const int type = TypeOf(shape.factors);
  int error = product.weights_.Make(*library_, type, shape.inputs,
                                    shape.outputs, shape.weights_pitch);
  for (int32_t rows = kTileRows; rows <= product.call_rows_;
       rows += kTileRows) {
    BlasProduct::Layout x, sums;
    if (error == cublaslt::kSuccess) {
      error = x.Make(*library_, type, shape.inputs, rows, shape.x_pitch);
    }
    if (error == cublaslt::kSuccess) {
      error = sums.Make(*library_, cublaslt::kF32, shape.outputs, rows,
                        PitchOfSums(shape.outputs));
    }
    product.x_.push_back(std::move(x));
    product.sums_.push_back(std::move(sums));
  }
  return error == cublaslt::kSuccess ? OkStatus()
                                     : Failed("describe a matrix", error);
}

std::vector<cublaslt::Algo> BlasMatmul::Candidates(
    const BlasProduct& product) const {
  std::array<cublaslt::HeuristicResult, kMostCandidates> results = {};
  int count = 0;
  const cublaslt::MatmulDesc desc = DescOf(product.shape_.factors);
  const cublaslt::MatrixLayout largest = product.sums_.back().get();
  const int error = library_->get_heuristic(
      handle_, desc, product.weights_.get(), product.x_.back().get(), largest,
      largest, preference_, kMostCandidates, results.data(), &count);
  std::vector<cublaslt::Algo> candidates;
  // It has none where it cannot multiply such matrices, which is an error here.
  if (error != cublaslt::kSuccess) return candidates;
  for (const cublaslt::HeuristicResult& result :
       std::span(results).first(static_cast<size_t>(count))) {
    if (result.state != cublaslt::kSuccess) continue;
    int32_t splits = 0;
    uint32_t reduction = 0;
    size_t written = 0;
    if (library_->algo_config_get(&result.algo, cublaslt::kConfigSplits,
                                  &splits, sizeof splits,
                                  &written) != cublaslt::kSuccess ||
        library_->algo_config_get(&result.algo, cublaslt::kConfigReduction,
                                  &reduction, sizeof reduction,
                                  &written) != cublaslt::kSuccess ||
        splits > 1 || reduction != cublaslt::kNoReduction) {
      continue;
    }
    bool fits = true;
    for (size_t i = 0; fits && i < product.x_.size(); ++i) {
      cublaslt::HeuristicResult checked = {};
      const cublaslt::MatrixLayout sums = product.sums_[i].get();
      fits = library_->algo_check(handle_, desc, product.weights_.get(),
                                  product.x_[i].get(), sums, sums, &result.algo,
                                  &checked) == cublaslt::kSuccess &&
             checked.workspace_bytes <= static_cast<size_t>(kWorkspaceBytes);
    }
    if (fits) candidates.push_back(result.algo);
  }
  return candidates;
}

int BlasMatmul::Call(const BlasProduct& product, const std::byte* weights,
                     const std::byte* x, int32_t rows, const Room& room,
                     cuda::Stream stream) const {
  constexpr float kOne = 1, kZero = 0;
  const auto tiles = static_cast<size_t>(rows / kTileRows);
  const cublaslt::MatrixLayout sums = product.sums_[tiles - 1].get();
  return library_->matmul(handle_, DescOf(product.shape_.factors), &kOne,
                          weights, product.weights_.get(), x,
                          product.x_[tiles - 1].get(), &kZero, room.sums, sums,
                          room.sums, sums, &product.algo_, room.workspace,
                          static_cast<size_t>(kWorkspaceBytes), stream);
}

StatusOr<bool> BlasMatmul::GivesTheSameBits(const BlasProduct& product,
                                            const std::byte* weights,
                                            const std::byte* x,
                                            const Room& room) {
  const int64_t pitch = PitchOfSums(product.shape_.outputs);
  const auto outputs = static_cast<int32_t>(product.shape_.outputs);
  const int32_t most = product.call_rows_;
  const cuda::Stream stream = context_->device().stream;
  float* const expected = room.sums + most * pitch;
  const std::string what = "trying the products of cuBLASLt";
  ASSIGN_OR_RETURN(const CudaBuffer on_device,
                   context_->Allocate(most * 4, what));
  ASSIGN_OR_RETURN(const CudaBuffer on_host,
                   context_->AllocateHost(most * 4, what));
  auto* const differs = on_host.as<int32_t>();
  for (int32_t rows = kTileRows; rows <= most; rows += kTileRows) {
    if (Call(product, weights, x, rows, room, stream) != cublaslt::kSuccess) {
      return false;
    }
    if (rows == kTileRows) {
      RETURN_IF_ERROR(context_->Launched(context_->module().gather_rows(
          stream, {.from = room.sums,
                   .num_rows = 1,
                   .width = static_cast<int32_t>(pitch),
                   .pitch = pitch,
                   .to = expected})));
    }
    RETURN_IF_ERROR(context_->Launched(context_->module().compare_rows(
        stream, {.x = room.sums,
                 .pitch = pitch,
                 .expected = expected,
                 .width = outputs,
                 .rows = rows,
                 .differs = on_device.as<int32_t>()})));
    RETURN_IF_ERROR(context_->Download(differs, on_device.data(), rows * 4));
    RETURN_IF_ERROR(context_->Wait());
    if (std::find(differs, differs + rows, 1) != differs + rows) return false;
  }
  return true;
}

StatusOr<std::unique_ptr<const BlasProduct>> BlasMatmul::Choose(
    const BlasShape& shape, int32_t call_rows, const std::byte* weights,
    std::byte* x, const Room& room) {
  std::unique_ptr<BlasProduct> product(new BlasProduct(shape, call_rows));
  RETURN_IF_ERROR(context_->MakeCurrent());
  RETURN_IF_ERROR(MakeLayouts(*product));
  const std::vector<std::byte> rows = EqualRows(shape, call_rows);
  RETURN_IF_ERROR(
      context_->Upload(x, rows.data(), static_cast<int64_t>(rows.size())));
  RETURN_IF_ERROR(context_->Wait());
  for (const cublaslt::Algo& algo : Candidates(*product)) {
    product->algo_ = algo;
    ASSIGN_OR_RETURN(const bool usable,
                     GivesTheSameBits(*product, weights, x, room));
    if (usable) return std::unique_ptr<const BlasProduct>(std::move(product));
  }
  return std::unique_ptr<const BlasProduct>();
}

}  // namespace millrace::models
