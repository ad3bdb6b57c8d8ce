#include "models/gpu/blas_products.h"

#include <algorithm>
#include <array>
#include <random>
#include <span>
#include <utility>

namespace millrace::models {
namespace {

// Of memory that cuBLASLt is told: rows begin there.
constexpr uint32_t kAlignment = 16;
// Algorithms that are asked for.
constexpr int kMostCandidates = 8;

int64_t RoundUp(int64_t n, int64_t unit) {
  return (n + unit - 1) / unit * unit;
}

// Floats from one row of sums to the next.
int64_t PitchOfSums(int64_t outputs) { return RoundUp(outputs, 8); }

class Layout {
 public:
  Layout() = default;
  Layout(Layout&& other) noexcept { *this = std::move(other); }
  Layout& operator=(Layout&& other) noexcept {
    std::swap(library_, other.library_);
    std::swap(layout_, other.layout_);
    return *this;
  }
  ~Layout() {
    if (layout_ != nullptr) library_->layout_destroy(layout_);
  }
  // The number of an error.
  int Make(const CublasLtLibrary& library, int type, int64_t rows,
           int64_t columns, int64_t pitch) {
    library_ = &library;
    return library.layout_create(&layout_, type, static_cast<uint64_t>(rows),
                                 static_cast<uint64_t>(columns), pitch);
  }
  cublaslt::MatrixLayout get() const { return layout_; }

 private:
  const CublasLtLibrary* library_ = nullptr;  // never closed
  cublaslt::MatrixLayout layout_ = nullptr;
};

// A value of some -2 to 2, whose sums are rounded in each addition.
uint16_t RandomValue(std::mt19937& random, bool bf16) {
  const uint32_t bits = random();
  const uint32_t sign = bits >> 16 & 0x8000;
  // Exponents -6 to 0, all bits behind the point.
  const uint32_t exponent = (bf16 ? 127u : 15u) - (bits >> 16 & 0xff) % 7;
  return static_cast<uint16_t>(sign | (bf16 ? exponent << 7 | (bits & 0x7f)
                                            : exponent << 10 | (bits & 0x3ff)));
}

}  // namespace

class BlasProduct {
 public:
  explicit BlasProduct(const BlasShape& of) : shape(of) {}

  const BlasShape shape;
  bool usable = false;
  cublaslt::Algo algo = {};
  // By columns, as cuBLASLt has it: W^T · x^T of weights as a matrix of inputs
  // by outputs and x as one of inputs by rows. Of 1, 2, ... tiles of rows.
  Layout weights;
  std::vector<Layout> x, sums;
};

BlasProducts::BlasProducts(std::shared_ptr<const CublasLtLibrary> library,
                           std::shared_ptr<CudaContext> context)
    : library_(std::move(library)), context_(std::move(context)) {}

BlasProducts::~BlasProducts() {
  products_.clear();
  if (preference_ != nullptr) library_->preference_destroy(preference_);
  if (desc_ != nullptr) library_->desc_destroy(desc_);
  if (handle_ != nullptr) library_->destroy(handle_);
}

Status BlasProducts::Failed(const std::string& what, int error) const {
  return Internal("cuda:" + std::to_string(context_->device().ordinal) +
                  " failed: cuBLASLt cannot " + what + ": " +
                  library_->TextOf(error));
}

StatusOr<std::unique_ptr<BlasProducts>> BlasProducts::Open(
    std::shared_ptr<CudaContext> context) {
  ASSIGN_OR_RETURN(auto library, CublasLtLibrary::Open());
  RETURN_IF_ERROR(context->MakeCurrent());
  std::unique_ptr<BlasProducts> blas(
      new BlasProducts(std::move(library), std::move(context)));
  const CublasLtLibrary& lt = *blas->library_;
  int error = lt.create(&blas->handle_);
  if (error == cublaslt::kSuccess) {
    error = lt.desc_create(&blas->desc_, cublaslt::kComputeF32, cublaslt::kF32);
  }
  const auto set_desc = [&](int attribute, int32_t value) {
    if (error != cublaslt::kSuccess) return;
    error = lt.desc_set(blas->desc_, attribute, &value, sizeof value);
  };
  const auto set_preference = [&](int attribute, auto value) {
    if (error != cublaslt::kSuccess) return;
    error =
        lt.preference_set(blas->preference_, attribute, &value, sizeof value);
  };
  set_desc(cublaslt::kDescTransposesA, cublaslt::kTransposed);
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

int32_t BlasProducts::CallRows(int64_t rows) {
  return static_cast<int32_t>(
      std::min<int64_t>(RoundUp(rows, kTileRows), kMostCallRows));
}

int64_t BlasProducts::Bytes(int64_t rows, int64_t outputs) {
  return kWorkspaceBytes +
         (CallRows(rows) + 1) * PitchOfSums(outputs) * 4 +  // and one expected
         kMostCallRows * 4;
}

Status BlasProducts::Bind(int64_t rows, int64_t outputs) {
  call_rows_ = CallRows(rows);
  most_outputs_ = outputs;
  const std::string what = "the products of cuBLASLt";
  const int64_t row_bytes = PitchOfSums(outputs) * 4;
  ASSIGN_OR_RETURN(workspace_, context_->Allocate(kWorkspaceBytes, what));
  ASSIGN_OR_RETURN(sums_, context_->Allocate(call_rows_ * row_bytes, what));
  ASSIGN_OR_RETURN(expected_, context_->Allocate(row_bytes, what));
  ASSIGN_OR_RETURN(differs_, context_->Allocate(kMostCallRows * 4, what));
  ASSIGN_OR_RETURN(differs_on_host_,
                   context_->AllocateHost(kMostCallRows * 4, what));
  return OkStatus();
}

Status BlasProducts::MakeLayouts(BlasProduct& product) const {
  const BlasShape& shape = product.shape;
  const int type = shape.bf16 ? cublaslt::kBF16 : cublaslt::kF16;
  int error = product.weights.Make(*library_, type, shape.inputs, shape.outputs,
                                   shape.weights_pitch);
  for (int32_t rows = kTileRows; rows <= call_rows_; rows += kTileRows) {
    Layout x, sums;
    if (error == cublaslt::kSuccess) {
      error = x.Make(*library_, type, shape.inputs, rows, shape.x_pitch);
    }
    if (error == cublaslt::kSuccess) {
      error = sums.Make(*library_, cublaslt::kF32, shape.outputs, rows,
                        PitchOfSums(shape.outputs));
    }
    product.x.push_back(std::move(x));
    product.sums.push_back(std::move(sums));
  }
  return error == cublaslt::kSuccess ? OkStatus()
                                     : Failed("describe a matrix", error);
}

StatusOr<std::vector<cublaslt::Algo>> BlasProducts::Candidates(
    const BlasProduct& product) const {
  std::array<cublaslt::HeuristicResult, kMostCandidates> results = {};
  int count = 0;
  const cublaslt::MatrixLayout largest = product.sums.back().get();
  const int error = library_->get_heuristic(
      handle_, desc_, product.weights.get(), product.x.back().get(), largest,
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
    for (size_t i = 0; fits && i < product.x.size(); ++i) {
      cublaslt::HeuristicResult checked = {};
      const cublaslt::MatrixLayout sums = product.sums[i].get();
      fits = library_->algo_check(handle_, desc_, product.weights.get(),
                                  product.x[i].get(), sums, sums, &result.algo,
                                  &checked) == cublaslt::kSuccess &&
             checked.workspace_bytes <= static_cast<size_t>(kWorkspaceBytes);
    }
    if (fits) candidates.push_back(result.algo);
  }
  return candidates;
}

int BlasProducts::Call(const BlasProduct& product, const std::byte* weights,
                       const std::byte* x, int32_t rows) {
  constexpr float kOne = 1, kZero = 0;
  const auto tiles = static_cast<size_t>(rows / kTileRows);
  const cublaslt::MatrixLayout sums = product.sums[tiles - 1].get();
  return library_->matmul(
      handle_, desc_, &kOne, weights, product.weights.get(), x,
      product.x[tiles - 1].get(), &kZero, sums_.data(), sums, sums_.data(),
      sums, &product.algo, workspace_.data(),
      static_cast<size_t>(kWorkspaceBytes), context_->device().stream);
}

StatusOr<bool> BlasProducts::GivesTheSameBits(const BlasProduct& product,
                                              const std::byte* weights,
                                              const std::byte* room) {
  const int64_t pitch = PitchOfSums(product.shape.outputs);
  const auto outputs = static_cast<int32_t>(product.shape.outputs);
  const cuda::Stream stream = context_->device().stream;
  auto* const differs = differs_on_host_.as<int32_t>();
  for (int32_t rows = kTileRows; rows <= call_rows_; rows += kTileRows) {
    if (Call(product, weights, room, rows) != cublaslt::kSuccess) return false;
    if (rows == kTileRows) {
      RETURN_IF_ERROR(context_->Launched(context_->module().gather_rows(
          stream, {.from = sums_.as<float>(),
                   .num_rows = 1,
                   .width = static_cast<int32_t>(pitch),
                   .pitch = pitch,
                   .to = expected_.as<float>()})));
    }
    RETURN_IF_ERROR(context_->Launched(context_->module().compare_rows(
        stream, {.x = sums_.as<float>(),
                 .pitch = pitch,
                 .expected = expected_.as<float>(),
                 .width = outputs,
                 .rows = rows,
                 .differs = differs_.as<int32_t>()})));
    RETURN_IF_ERROR(context_->Download(differs, differs_.data(), rows * 4));
    RETURN_IF_ERROR(context_->Wait());
    if (std::find(differs, differs + rows, 1) != differs + rows) return false;
  }
  return true;
}

StatusOr<const BlasProduct*> BlasProducts::Choose(const BlasShape& shape,
                                                  const std::byte* weights,
                                                  std::byte* room) {
  CHECK(call_rows_ > 0 && shape.outputs <= most_outputs_,
        "there is room for the products of a shape before it is chosen for");
  for (const auto& known : products_) {
    if (known->shape == shape) return known->usable ? known.get() : nullptr;
  }
  auto product = std::make_unique<BlasProduct>(shape);
  RETURN_IF_ERROR(MakeLayouts(*product));
  // Equal rows.
  std::mt19937 random(1);
  std::vector<uint16_t> rows(static_cast<size_t>(call_rows_ * shape.x_pitch),
                             0);
  for (int64_t i = 0; i < shape.inputs; ++i) {
    rows[static_cast<size_t>(i)] = RandomValue(random, shape.bf16);
  }
  for (int64_t row = 1; row < call_rows_; ++row) {
    std::copy_n(rows.begin(), shape.x_pitch,
                rows.begin() + row * shape.x_pitch);
  }
  RETURN_IF_ERROR(context_->Upload(room, rows.data(),
                                   static_cast<int64_t>(rows.size()) * 2));
  RETURN_IF_ERROR(context_->Wait());
  ASSIGN_OR_RETURN(const std::vector<cublaslt::Algo> candidates,
                   Candidates(*product));
  for (const cublaslt::Algo& algo : candidates) {
    product->algo = algo;
    ASSIGN_OR_RETURN(product->usable,
                     GivesTheSameBits(*product, weights, room));
    if (product->usable) break;
  }
  products_.push_back(std::move(product));
  const BlasProduct& made = *products_.back();
  return made.usable ? &made : nullptr;
}

int BlasProducts::Multiply(const BlasProduct& product,
                           const cuda::LinearArgs& args, int32_t first,
                           int32_t end) {
  for (int32_t at = first; at < end;) {
    const int32_t rows = CallRows(std::min(end - at, call_rows_));
    const int error = Call(product, args.weights.data,
                           args.rounded + at * args.rounded_bytes, rows);
    if (error != cublaslt::kSuccess) {
      failure_ = Failed("multiply " + std::to_string(rows) + " rows", error);
      return error;
    }
    const int32_t count = std::min(rows, end - at);
    const int finished = context_->module().finish_product(
        context_->device().stream, {.product = args,
                                    .sums = sums_.as<float>(),
                                    .pitch = PitchOfSums(product.shape.outputs),
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
