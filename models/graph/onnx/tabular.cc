// Operators of ai.onnx.ml that prepare columns: with operators of ONNX's own
// where there are such.
#include "models/graph/onnx/tabular.h"

#include <cmath>
#include <limits>
#include <utility>

#include "models/graph/ml/label_map.h"
#include "models/graph/onnx_dtype.h"
#include "models/tensor/strings.h"

namespace millrace::models::graph {
namespace {

using Values = StatusOr<std::vector<ValueId>>;

ValueId FloatList(NodeWriter& node, const std::vector<double>& values) {
  const std::vector<float> floats(values.begin(), values.end());
  return node.Constant(Tensor::From<float>(
      DType::kF32, {static_cast<int64_t>(floats.size())}, std::span(floats)));
}

Values ArrayFeatureExtractor(NodeWriter& node) {
  const bool row = node.rank_of(node.in(0)) == 1;
  const ValueId indices = node.Emit("Reshape", {node.in(1), node.Ints({-1})});
  ValueId picked = node.Emit("Gather", {node.in(0), indices},
                             {{"axis", AttrValue(int64_t{-1})}});
  if (row) picked = node.Emit("Unsqueeze", {picked, node.Ints({0})});
  return std::vector<ValueId>{picked};
}

Values Binarizer(NodeWriter& node) {
  const auto threshold = static_cast<float>(node.attrs.Float("threshold", 0));
  const ValueId above =
      node.Emit("Greater", {node.in(0), node.FloatLike(threshold, node.in(0))});
  return std::vector<ValueId>{node.Emit("CastLike", {above, node.in(0)})};
}

Values FeatureVectorizer(NodeWriter& node) {
  std::vector<ValueId> columns;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    columns.push_back(AsFloat(node, node.in(i)));
  }
  return std::vector<ValueId>{node.Emit("Concat", std::move(columns),
                                        {{"axis", AttrValue(int64_t{1})}})};
}

Values Imputer(NodeWriter& node) {
  const ValueId x = node.in(0);
  const auto& floats = node.attrs.Floats("imputed_value_floats");
  const auto& ints = node.attrs.Ints("imputed_value_int64s");
  ValueId missing = kNoValue;
  ValueId imputed = kNoValue;
  if (!floats.empty()) {
    const double replaced = node.attrs.Float("replaced_value_float", 0);
    missing =
        std::isnan(replaced)
            ? node.Emit("IsNaN", {x})
            : node.Emit("Equal",
                        {x, node.FloatLike(static_cast<float>(replaced), x)});
    imputed = FloatList(node, floats);
  } else if (!ints.empty()) {
    const int64_t replaced = node.attrs.Int("replaced_value_int64", 0);
    missing =
        node.Emit("Equal", {x, node.Emit("CastLike", {node.Int(replaced), x})});
    imputed = node.Ints(ints);
  } else {
    return InvalidArgument("there are no imputed values");
  }
  return std::vector<ValueId>{
      node.Emit("Where", {missing, node.Emit("CastLike", {imputed, x}), x})};
}

Values Normalizer(NodeWriter& node) {
  const std::string norm(node.attrs.Text("norm", "MAX"));
  const char* reduce = norm == "MAX"  ? "ReduceMax"
                       : norm == "L1" ? "ReduceL1"
                       : norm == "L2" ? "ReduceL2"
                                      : nullptr;
  if (reduce == nullptr) {
    return InvalidArgument("there is no norm '" + norm + "'");
  }
  const ValueId x = AsFloat(node, node.in(0));
  const ValueId size = node.Emit(reduce, {x, node.Ints({-1})},
                                 {{"keepdims", AttrValue(int64_t{1})}});
  const ValueId divisor = node.Emit(
      "Where",
      {node.Emit("Equal", {size, node.Float(0)}), node.Float(1), size});
  return std::vector<ValueId>{node.Emit("Div", {x, divisor})};
}

Values Scaler(NodeWriter& node) {
  const auto& offset = node.attrs.Floats("offset");
  const auto& scale = node.attrs.Floats("scale");
  ValueId x = AsFloat(node, node.in(0));
  if (!offset.empty()) x = node.Emit("Sub", {x, FloatList(node, offset)});
  if (!scale.empty()) x = node.Emit("Mul", {x, FloatList(node, scale)});
  return std::vector<ValueId>{x};
}

// Maps of class to score do not exist in requests and answers: the scores are
// answered as they are, a column for each class in the order of its labels.
Values ZipMap(NodeWriter& node) { return std::vector<ValueId>{node.in(0)}; }

// ---- tables ----
// One of three lists becomes a column; empty: none is given.
StatusOr<LabelColumn> ReadColumn(NodeWriter& node, const std::string& prefix) {
  LabelColumn column;
  if (const auto& texts = node.attrs.Texts(prefix + "_strings");
      !texts.empty()) {
    return LabelColumn::Of(texts);
  }
  if (const auto& numbers = node.attrs.Ints(prefix + "_int64s");
      !numbers.empty()) {
    return LabelColumn::Of(numbers);
  }
  if (const auto& reals = node.attrs.Floats(prefix + "_floats");
      !reals.empty()) {
    return LabelColumn::Of(reals, DType::kF32);
  }
  StatusOr<Tensor> tensor = node.tensor_attr(prefix + "_tensor");
  if (tensor.status().code() == StatusCode::kNotFound) return column;
  RETURN_IF_ERROR(tensor.status());
  return LabelColumn::Of(*tensor);
}

Values EmitLabels(NodeWriter& node, std::shared_ptr<const LabelMap> map) {
  RETURN_IF_ERROR(node.charge(map->num_bytes()));
  return std::vector<ValueId>{
      node.Emit("ml.Labels", {node.in(0), DataValue(node, std::move(map))})};
}

// What keys become that are not there.
StatusOr<LabelColumn> ReadDefault(NodeWriter& node, DType dtype) {
  StatusOr<Tensor> tensor = node.tensor_attr("default_tensor");
  if (tensor.ok() && tensor->num_elements() == 1 && tensor->dtype() == dtype) {
    return LabelColumn::Of(*tensor);
  }
  if (dtype == kString) {
    return LabelColumn::Of(std::vector<std::string>{
        std::string(node.attrs.Text("default_string", "_Unused"))});
  }
  if (IsFloat(dtype)) {
    return LabelColumn::Of({node.attrs.Float("default_float", -0.0)}, dtype);
  }
  LabelColumn column = LabelColumn::Of(
      std::vector<int64_t>{node.attrs.Int("default_int64", -1)});
  column.dtype = dtype;
  return column;
}

// Numbers for texts and texts for numbers, whichever comes in.
Values BothWays(NodeWriter& node, const std::vector<std::string>& texts,
                const std::vector<int64_t>& numbers) {
  ASSIGN_OR_RETURN(LabelColumn number, ReadDefault(node, DType::kI64));
  ASSIGN_OR_RETURN(LabelColumn text, ReadDefault(node, kString));
  ASSIGN_OR_RETURN(auto back,
                   LabelMap::Make(LabelColumn::Of(numbers),
                                  LabelColumn::Of(texts), std::move(text)));
  ASSIGN_OR_RETURN(
      auto map, LabelMap::Make(LabelColumn::Of(texts), LabelColumn::Of(numbers),
                               std::move(number)));
  map->back = std::move(back);
  return EmitLabels(node, std::move(map));
}

Values LabelEncoder(NodeWriter& node) {
  if (node.opset < 2) {
    const auto& texts = node.attrs.Texts("classes_strings");
    std::vector<int64_t> numbers;
    for (size_t i = 0; i < texts.size(); ++i) {
      numbers.push_back(static_cast<int64_t>(i));
    }
    return BothWays(node, texts, numbers);
  }
  ASSIGN_OR_RETURN(LabelColumn keys, ReadColumn(node, "keys"));
  ASSIGN_OR_RETURN(LabelColumn values, ReadColumn(node, "values"));
  ASSIGN_OR_RETURN(LabelColumn otherwise, ReadDefault(node, values.dtype));
  ASSIGN_OR_RETURN(auto map, LabelMap::Make(std::move(keys), std::move(values),
                                            std::move(otherwise)));
  return EmitLabels(node, std::move(map));
}

Values CategoryMapper(NodeWriter& node) {
  const auto& texts = node.attrs.Texts("cats_strings");
  const auto& numbers = node.attrs.Ints("cats_int64s");
  return BothWays(node, texts, numbers);
}

Values OneHotEncoder(NodeWriter& node) {
  const auto& texts = node.attrs.Texts("cats_strings");
  const auto& numbers = node.attrs.Ints("cats_int64s");
  std::vector<int64_t> places;
  for (size_t i = 0; i < std::max(texts.size(), numbers.size()); ++i) {
    places.push_back(static_cast<int64_t>(i));
  }
  ASSIGN_OR_RETURN(
      auto map,
      LabelMap::Make(
          texts.empty() ? LabelColumn::Of(numbers) : LabelColumn::Of(texts),
          LabelColumn::Of(places), LabelColumn::Of(std::vector<int64_t>{-1})));
  RETURN_IF_ERROR(node.charge(map->num_bytes()));
  return std::vector<ValueId>{node.Emit(
      "ml.OneHot", {node.in(0), DataValue<LabelMap>(node, std::move(map))},
      {{"zeros", AttrValue(node.attrs.Int("zeros", 1))}})};
}

// Maps come as JSON objects in BYTES: { "name": number, … }.
Values DictVectorizer(NodeWriter& node) {
  std::vector<std::string> names = node.attrs.Texts("string_vocabulary");
  for (const int64_t key : node.attrs.Ints("int64_vocabulary")) {
    names.push_back(std::to_string(key));
  }
  std::vector<int64_t> places;
  for (size_t i = 0; i < names.size(); ++i) {
    places.push_back(static_cast<int64_t>(i));
  }
  ASSIGN_OR_RETURN(
      auto map, LabelMap::Make(LabelColumn::Of(names), LabelColumn::Of(places),
                               LabelColumn::Of(std::vector<int64_t>{-1})));
  RETURN_IF_ERROR(node.charge(map->num_bytes()));
  return std::vector<ValueId>{node.Emit(
      "ml.Dict", {node.in(0), DataValue<LabelMap>(node, std::move(map))})};
}

constexpr RewriteRow kRows[] = {
    {"ArrayFeatureExtractor", ArrayFeatureExtractor},
    {"Binarizer", Binarizer},
    {"CategoryMapper", CategoryMapper},
    {"DictVectorizer", DictVectorizer},
    {"FeatureVectorizer", FeatureVectorizer},
    {"Imputer", Imputer},
    {"LabelEncoder", LabelEncoder},
    {"Normalizer", Normalizer},
    {"OneHotEncoder", OneHotEncoder},
    {"Scaler", Scaler},
    {"ZipMap", ZipMap},
};

}  // namespace

StatusOr<std::vector<double>> TensorNumbers(NodeWriter& node,
                                            const std::string& name) {
  StatusOr<Tensor> tensor = node.tensor_attr(name);
  if (tensor.status().code() == StatusCode::kNotFound) {
    return std::vector<double>();
  }
  RETURN_IF_ERROR(tensor.status());
  if (tensor->dtype() == kString) {
    return InvalidArgument("attribute '" + name + "' holds no numbers");
  }
  ASSIGN_OR_RETURN(const LabelColumn column, LabelColumn::Of(*tensor));
  if (!column.reals.empty()) return column.reals;
  return std::vector<double>(column.numbers.begin(), column.numbers.end());
}

ValueId AsFloat(NodeWriter& node, ValueId value) {
  return node.Emit("Cast", {value},
                   {{"to", AttrValue(OnnxNumber(DType::kF32))}});
}

StatusOr<std::shared_ptr<ClassifierHead>> ReadLabels(
    NodeWriter& node, const std::string& prefix) {
  auto head = std::make_shared<ClassifierHead>();
  head->texts = node.attrs.Texts(prefix + "strings");
  if (head->texts.empty()) {
    for (const char* name : {"int64s", "ints"}) {
      const auto& numbers = node.attrs.Ints(prefix + name);
      if (!numbers.empty()) head->numbers = numbers;
    }
  }
  if (head->num_labels() == 0) return InvalidArgument("there are no labels");
  return head;
}

StatusOr<std::vector<ValueId>> EmitClassify(
    NodeWriter& node, ValueId scores, std::shared_ptr<ClassifierHead> head) {
  ASSIGN_OR_RETURN(head->post, PostTransformNamed(
                                   node.attrs.Text("post_transform", "NONE")));
  // Both results are made, whichever are read.
  return node.EmitAll(
      "ml.Classify", {scores, DataValue<ClassifierHead>(node, std::move(head))},
      {true, true});
}

Rewrite FindTabular(std::string_view op) {
  if (const Rewrite found = FindRow(kRows, op)) return found;
  if (const Rewrite found = FindTabularTrees(op)) return found;
  return FindTabularScores(op);
}

}  // namespace millrace::models::graph
