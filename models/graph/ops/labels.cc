// Values that are looked up. The second operand is the map (ml/op_data.h).
//
//   ml.Labels  x of any shape -> the same shape in the type of the map's values
//   ml.OneHot  x [n, …] -> FP32 [n, …, categories]
//   ml.Dict    BYTES [n], JSON objects -> FP32 [n, names]
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "config/base/json.h"
#include "config/base/utf8.h"
#include "models/graph/ml/label_map.h"
#include "models/graph/ml/op_data.h"
#include "models/graph/ops/checks.h"
#include "models/graph/ops/dispatch.h"
#include "models/graph/ops/row_rules.h"
#include "models/graph/ops/tabular.h"
#include "models/tensor/strings.h"

namespace millrace::models::graph {
namespace {

StatusOr<const LabelMap*> MapOf(const Call& call) {
  RETURN_IF_ERROR(CheckOperands(call, 2, 2));
  ASSIGN_OR_RETURN(const LabelMap* map, DataOf<LabelMap>(call));
  const bool is_text = call.arg(0).dtype == kString;
  const bool wants_text = map->key_type() == kString;
  if (is_text != wants_text && map->back != nullptr) map = map->back.get();
  if (is_text != (map->key_type() == kString)) {
    return WrongType(call.arg(0));
  }
  return map;
}

// Calls use(i, place) for elements [begin, end).
template <typename Use>
Status LookUp(const LabelMap& map, const Arg& x, int64_t begin, int64_t end,
              Use use) {
  if (x.dtype == kString) {
    for (int64_t i = begin; i < end; ++i) {
      RETURN_IF_ERROR(use(i, map.Find(x.data<std::string_view>()[i])));
    }
    return OkStatus();
  }
  return Dispatch(x.dtype, [&]<typename T>() -> Status {
    for (int64_t i = begin; i < end; ++i) {
      const auto value = static_cast<MathType<T>>(x.data<T>()[i]);
      if constexpr (kIsFloat<T>) {
        RETURN_IF_ERROR(use(i, map.Find(static_cast<double>(value))));
      } else {
        RETURN_IF_ERROR(use(i, map.Find(static_cast<int64_t>(value))));
      }
    }
    return OkStatus();
  });
}

StatusOr<OutTypes> InferLabels(const Call& call) {
  ASSIGN_OR_RETURN(const LabelMap* map, MapOf(call));
  return OutTypes{{map->values().dtype, call.arg(0).shape}};
}

Status RunLabels(const Call& call, std::span<const Result> results,
                 const Team& team) {
  ASSIGN_OR_RETURN(const LabelMap* map, MapOf(call));
  const Result& y = results[0];
  const auto [begin, end] = team.Share(y.num_elements(), 64);
  if (y.dtype == kString) {
    return LookUp(*map, call.arg(0), begin, end, [&](int64_t i, int64_t place) {
      y.data<std::string_view>()[i] =
          place < 0 ? map->otherwise().texts[0]
                    : map->values().texts[static_cast<size_t>(place)];
      return OkStatus();
    });
  }
  return Dispatch(y.dtype, [&, b = begin, e = end]<typename T>() {
    return LookUp(*map, call.arg(0), b, e, [&](int64_t i, int64_t place) {
      const LabelColumn& column = place < 0 ? map->otherwise() : map->values();
      const auto at = static_cast<size_t>(std::max<int64_t>(place, 0));
      if constexpr (kIsFloat<T>) {
        y.data<T>()[i] = T(static_cast<MathType<T>>(column.reals[at]));
      } else {
        y.data<T>()[i] = static_cast<T>(column.numbers[at]);
      }
      return OkStatus();
    });
  });
}

StatusOr<OutTypes> InferOneHot(const Call& call) {
  ASSIGN_OR_RETURN(const LabelMap* map, MapOf(call));
  Shape shape = call.arg(0).shape;
  if (shape.rank() == Shape::kMaxRank) {
    return InvalidArgument("a tensor has 8 dimensions at most");
  }
  shape.Append(static_cast<int64_t>(map->size()));
  RETURN_IF_ERROR(Shape::Checked(shape.dims()).status());
  return OutTypes{{DType::kF32, shape}};
}

Status RunOneHot(const Call& call, std::span<const Result> results,
                 const Team& team) {
  ASSIGN_OR_RETURN(const LabelMap* map, MapOf(call));
  const auto [begin, end] = team.Share(call.arg(0).num_elements());
  const auto width = static_cast<int64_t>(map->size());
  float* y = results[0].data<float>();
  std::fill(y + begin * width, y + end * width, 0.0f);
  const bool zeros = call.attrs().Int("zeros", 1) != 0;
  return LookUp(*map, call.arg(0), begin, end,
                [&](int64_t i, int64_t place) -> Status {
                  if (place >= 0) {
                    y[i * width + place] = 1;
                  } else if (!zeros) {
                    return InvalidArgument(
                        "element " + std::to_string(i) +
                        " is no category of the model, which was exported to "
                        "refuse such (zeros = 0)");
                  }
                  return OkStatus();
                });
}

// [n] or [n, 1]; a single map has no dimension.
StatusOr<OutTypes> InferDict(const Call& call) {
  ASSIGN_OR_RETURN(const LabelMap* map, MapOf(call));
  const Arg& x = call.arg(0);
  if (x.dtype != kString) return WrongType(x);
  return OutTypes{
      {DType::kF32, {x.num_elements(), static_cast<int64_t>(map->size())}}};
}

Status RunDict(const Call& call, std::span<const Result> results, const Team&) {
  ASSIGN_OR_RETURN(const LabelMap* map, MapOf(call));
  const auto width = static_cast<int64_t>(map->size());
  float* y = results[0].data<float>();
  std::fill_n(y, results[0].num_elements(), 0.0f);
  for (int64_t i = 0; i < call.arg(0).num_elements(); ++i) {
    const auto object = ParseJson(call.arg(0).data<std::string_view>()[i]);
    const std::string which = "element " + std::to_string(i);
    if (!object.ok()) return object.status().Prefixed(which);
    if (!object->is_object()) {
      return InvalidArgument(which + " is no JSON object of names and numbers");
    }
    for (const auto& [name, value] : object->items()) {
      if (!value.is_number()) {
        return InvalidArgument(which + " has '" + Shortened(name, 100) +
                               "', which is no number");
      }
      // What was not in the training is left out, as scikit-learn does.
      const int64_t place = map->Find(std::string_view(name));
      if (place >= 0) {
        y[i * width + place] = static_cast<float>(value.get<double>());
      }
    }
  }
  return OkStatus();
}

constexpr OpDef kOps[] = {
    {"ml.Labels",
     InferLabels,
     RunLabels,
     Work::kSplits,
     {.strings = Strings::kTakes, .keeps_rows = rows::OnlyFirst}},
    {"ml.OneHot",
     InferOneHot,
     RunOneHot,
     Work::kSplits,
     {.strings = Strings::kTakes, .keeps_rows = rows::OnlyFirst}},
    {"ml.Dict",
     InferDict,
     RunDict,
     Work::kWhole,
     {.strings = Strings::kTakes, .keeps_rows = rows::OnlyFirst}},
};

}  // namespace

std::span<const OpDef> LabelOps() { return kOps; }

}  // namespace millrace::models::graph
