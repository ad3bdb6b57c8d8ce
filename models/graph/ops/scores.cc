// The ends of tabular models: decision trees, post transforms and labels of
// classes. The last operand of ml.Trees and ml.Classify are their data
// (ml/op_data.h).
//
//   ml.Trees          x [n, features] -> sums [n, targets], FP64 of FP64, else
//                     FP32
//   ml.PostTransform  scores [n, k] -> the same shape, FP32
//   ml.Classify       scores [n, k] -> label [n], scores [n, classes] FP32
#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "models/graph/ml/op_data.h"
#include "models/graph/ml/scores.h"
#include "models/graph/ml/tree_ensemble.h"
#include "models/graph/ops/checks.h"
#include "models/graph/ops/operands.h"
#include "models/graph/ops/row_rules.h"
#include "models/graph/ops/tabular.h"
#include "models/tensor/strings.h"

namespace millrace::models::graph {
namespace {

// [n, k]: a single row may come without its first dimension.
StatusOr<Shape> RowsOf(const Arg& x) {
  if (x.shape.rank() == 2) return x.shape;
  if (x.shape.rank() == 1) return Shape{1, x.shape[0]};
  return InvalidArgument(TypeText(x.dtype, x.shape) +
                         " is no table of rows and columns");
}

StatusOr<OutTypes> InferTrees(const Call& call) {
  RETURN_IF_ERROR(CheckOperands(call, 2, 2));
  ASSIGN_OR_RETURN(const auto* trees, DataOf<TreeEnsemble>(call));
  const Arg& x = call.arg(0);
  if (x.dtype != DType::kF32 && x.dtype != DType::kF64 &&
      x.dtype != DType::kI32 && x.dtype != DType::kI64) {
    return WrongType(x);
  }
  ASSIGN_OR_RETURN(const Shape rows, RowsOf(x));
  if (rows[1] < trees->num_features) {
    return InvalidArgument("a row has " + std::to_string(rows[1]) +
                           " features, but the trees ask for number " +
                           std::to_string(trees->num_features - 1) +
                           ", counted from 0");
  }
  const DType out = x.dtype == DType::kF64 ? DType::kF64 : DType::kF32;
  return OutTypes{{out, {rows[0], trees->num_targets}}};
}

Status RunTrees(const Call& call, std::span<const Result> results,
                const Team& team) {
  ASSIGN_OR_RETURN(const auto* data, DataOf<TreeEnsemble>(call));
  const TreeEnsemble& trees = *data;
  const Arg& x = call.arg(0);
  const auto [begin, end] = team.Share(results[0].shape[0]);
  const int64_t columns = x.shape.back();
  const auto predict = [&, b = begin, e = end]<typename T, typename Out>() {
    std::vector<double> sums(static_cast<size_t>(trees.num_targets));
    for (int64_t row = b; row < e; ++row) {
      trees.Predict(x.data<T>() + row * columns, sums.data());
      std::transform(sums.begin(), sums.end(),
                     results[0].data<Out>() + row * trees.num_targets,
                     [](double sum) { return static_cast<Out>(sum); });
    }
  };
  switch (x.dtype) {
    case DType::kF64:
      predict.operator()<double, double>();
      break;
    case DType::kI32:
      predict.operator()<int32_t, float>();
      break;
    case DType::kI64:
      predict.operator()<int64_t, float>();
      break;
    default:
      predict.operator()<float, float>();
  }
  return OkStatus();
}

StatusOr<OutTypes> InferPost(const Call& call) {
  RETURN_IF_ERROR(CheckOperands(call, 1, 1));
  RETURN_IF_ERROR(FloatOperand(call, 0, "the scores"));
  RETURN_IF_ERROR(
      PostTransformNamed(call.attrs().Text("post_transform", "NONE")).status());
  ASSIGN_OR_RETURN(const Shape rows, RowsOf(call.arg(0)));
  return OutTypes{{DType::kF32, rows}};
}

Status RunPost(const Call& call, std::span<const Result> results,
               const Team& team) {
  ASSIGN_OR_RETURN(
      const PostTransform post,
      PostTransformNamed(call.attrs().Text("post_transform", "NONE")));
  const auto [begin, end] = team.Share(results[0].shape[0]);
  const int64_t k = results[0].shape[1];
  std::vector<double> scores(static_cast<size_t>(k));
  DispatchFloat(call.arg(0).dtype, [&, b = begin, e = end]<typename T>() {
    for (int64_t row = b; row < e; ++row) {
      const T* x = call.arg(0).data<T>() + row * k;
      for (size_t i = 0; i < scores.size(); ++i) {
        scores[i] = static_cast<double>(static_cast<MathType<T>>(x[i]));
      }
      ApplyPostTransform(post, scores);
      for (size_t i = 0; i < scores.size(); ++i) {
        results[0].data<float>()[row * k + static_cast<int64_t>(i)] =
            static_cast<float>(scores[i]);
      }
    }
  });
  return OkStatus();
}

StatusOr<OutTypes> InferClassify(const Call& call) {
  RETURN_IF_ERROR(CheckOperands(call, 2, 2));
  ASSIGN_OR_RETURN(const auto* head, DataOf<ClassifierHead>(call));
  RETURN_IF_ERROR(FloatOperand(call, 0, "the scores"));
  ASSIGN_OR_RETURN(const Shape rows, RowsOf(call.arg(0)));
  if (rows[1] < 1) return InvalidArgument("there are no scores");
  const auto answered =
      static_cast<int64_t>(head->num_answered(static_cast<size_t>(rows[1])));
  const DType label = head->texts.empty() ? DType::kI64 : kString;
  return OutTypes{{label, {rows[0]}}, {DType::kF32, {rows[0], answered}}};
}

Status RunClassify(const Call& call, std::span<const Result> results,
                   const Team& team) {
  ASSIGN_OR_RETURN(const auto* data, DataOf<ClassifierHead>(call));
  const ClassifierHead& head = *data;
  const int64_t k = call.arg(0).shape.back();
  const int64_t answered = results[1].shape[1];
  const auto [begin, end] = team.Share(results[0].shape[0]);
  std::vector<double> scores(static_cast<size_t>(std::max(k, answered)));
  DispatchFloat(call.arg(0).dtype, [&, b = begin, e = end]<typename T>() {
    for (int64_t row = b; row < e; ++row) {
      const T* x = call.arg(0).data<T>() + row * k;
      for (int64_t i = 0; i < k; ++i) {
        scores[static_cast<size_t>(i)] =
            static_cast<double>(static_cast<MathType<T>>(x[i]));
      }
      const size_t label = head.Classify(scores, static_cast<size_t>(k));
      if (head.texts.empty()) {
        results[0].data<int64_t>()[row] = head.numbers[label];
      } else {
        results[0].data<std::string_view>()[row] = head.texts[label];
      }
      for (int64_t i = 0; i < answered; ++i) {
        results[1].data<float>()[row * answered + i] =
            static_cast<float>(scores[static_cast<size_t>(i)]);
      }
    }
  });
  return OkStatus();
}

constexpr OpDef kOps[] = {
    {"ml.Trees",
     InferTrees,
     RunTrees,
     Work::kSplits,
     {.keeps_rows = rows::OnlyFirst}},
    {"ml.PostTransform",
     InferPost,
     RunPost,
     Work::kSplits,
     {.keeps_rows = rows::OnlyFirst}},
    {"ml.Classify",
     InferClassify,
     RunClassify,
     Work::kSplits,
     {.strings = Strings::kTakes, .keeps_rows = rows::OnlyFirst}},
};

}  // namespace

std::span<const OpDef> ScoreOps() { return kOps; }

}  // namespace millrace::models::graph
