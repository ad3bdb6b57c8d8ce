// ml.SvmClassifier  x [n, features] -> label [n], scores [n, k] FP32
// ml.SvmRegressor   x [n, features] -> FP32 [n, 1]
// The second operand are their data (ml/op_data.h).
#include <string>
#include <string_view>
#include <vector>

#include "models/graph/ml/op_data.h"
#include "models/graph/ml/support_vectors.h"
#include "models/graph/ops/checks.h"
#include "models/graph/ops/dispatch.h"
#include "models/graph/ops/row_rules.h"
#include "models/graph/ops/tabular.h"
#include "models/tensor/strings.h"

namespace millrace::models::graph {
namespace {

StatusOr<const SupportVectors*> SvmOf(const Call& call) {
  RETURN_IF_ERROR(CheckOperands(call, 2, 2));
  ASSIGN_OR_RETURN(const auto* svm, DataOf<SupportVectors>(call));
  const Arg& x = call.arg(0);
  if (x.shape.rank() != 2 || x.shape[1] != svm->num_features) {
    return InvalidArgument(TypeText(x.dtype, x.shape) +
                           " is no table of rows of " +
                           std::to_string(svm->num_features) + " features");
  }
  return svm;
}

// Calls use(row, x) for this member's rows.
template <typename Use>
void ForRows(const Arg& x, const Team& team, Use use) {
  const auto [begin, end] = team.Share(x.shape[0]);
  const int64_t columns = x.shape[1];
  std::vector<double> row(static_cast<size_t>(columns));
  Dispatch(x.dtype, [&, b = begin, e = end]<typename T>() {
    for (int64_t i = b; i < e; ++i) {
      for (int64_t c = 0; c < columns; ++c) {
        row[static_cast<size_t>(c)] = static_cast<double>(
            static_cast<MathType<T>>(x.data<T>()[i * columns + c]));
      }
      use(i, row);
    }
  });
}

StatusOr<OutTypes> InferClassifier(const Call& call) {
  ASSIGN_OR_RETURN(const SupportVectors* svm, SvmOf(call));
  const int64_t rows = call.arg(0).shape[0];
  const DType label = svm->head.texts.empty() ? DType::kI64 : kString;
  return OutTypes{{label, {rows}}, {DType::kF32, {rows, svm->num_scores()}}};
}

Status RunClassifier(const Call& call, std::span<const Result> results,
                     const Team& team) {
  ASSIGN_OR_RETURN(const SupportVectors* svm, SvmOf(call));
  std::vector<double> scores(static_cast<size_t>(svm->num_scores()));
  ForRows(call.arg(0), team, [&](int64_t row, const std::vector<double>& x) {
    const size_t label = svm->Classify(x, scores);
    if (svm->head.texts.empty()) {
      results[0].data<int64_t>()[row] = svm->head.numbers[label];
    } else {
      results[0].data<std::string_view>()[row] = svm->head.texts[label];
    }
    float* y = results[1].data<float>() + row * svm->num_scores();
    for (const double score : scores) *y++ = static_cast<float>(score);
  });
  return OkStatus();
}

StatusOr<OutTypes> InferRegressor(const Call& call) {
  RETURN_IF_ERROR(SvmOf(call).status());
  return OutTypes{{DType::kF32, {call.arg(0).shape[0], 1}}};
}

Status RunRegressor(const Call& call, std::span<const Result> results,
                    const Team& team) {
  ASSIGN_OR_RETURN(const SupportVectors* svm, SvmOf(call));
  ForRows(call.arg(0), team, [&](int64_t row, const std::vector<double>& x) {
    results[0].data<float>()[row] = static_cast<float>(svm->Regress(x));
  });
  return OkStatus();
}

constexpr OpDef kOps[] = {
    {"ml.SvmClassifier",
     InferClassifier,
     RunClassifier,
     Work::kSplits,
     {.strings = Strings::kTakes, .keeps_rows = rows::OnlyFirst}},
    {"ml.SvmRegressor",
     InferRegressor,
     RunRegressor,
     Work::kSplits,
     {.keeps_rows = rows::OnlyFirst}},
};

}  // namespace

std::span<const OpDef> SupportVectorOps() { return kOps; }

}  // namespace millrace::models::graph
