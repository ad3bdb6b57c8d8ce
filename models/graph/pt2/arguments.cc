// Types, sizes and arguments as the file writes them.
#include "models/graph/pt2/arguments.h"

#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "models/tensor/shape.h"

namespace millrace::models::graph::pt2 {
namespace {

constexpr int64_t kStrided = 7;  // the layout
constexpr int64_t kComplex64 = 10;
constexpr int64_t kComplex128 = 11;
constexpr size_t kMaxListItems = 1 << 16;

StatusOr<DType> DTypeOf(int64_t code) {
  switch (code) {  // of the file format, which are not those of torch itself
    case 1:
      return DType::kU8;
    case 2:
      return DType::kI8;
    case 3:
      return DType::kI16;
    case 4:
      return DType::kI32;
    case 5:
      return DType::kI64;
    case 6:
      return DType::kF16;
    case 7:
    case kComplex64:  // of the parts
      return DType::kF32;
    case 8:
    case kComplex128:
      return DType::kF64;
    case 12:
      return DType::kBool;
    case 13:
      return DType::kBF16;
    case 28:
      return DType::kU16;
    case 34:
      return DType::kU32;
    case 35:
      return DType::kU64;
    default:
      return Unimplemented("tensors of the element type " +
                           std::to_string(code) +
                           " (quantised or of 8-bit floats) are not "
                           "supported");
  }
}

// "Symbol('s77', positive=True, integer=True)" → "s77"; else "".
std::string BareSymbol(std::string_view expression) {
  constexpr std::string_view kHead = "Symbol('";
  if (!expression.starts_with(kHead)) return "";
  expression.remove_prefix(kHead.size());
  const size_t end = expression.find('\'');
  if (end == expression.npos || end == 0 || end > 64) return "";
  // What follows are assumptions, up to the closing parenthesis.
  if (expression.find('(', end) != expression.npos ||
      expression.find(')', end) != expression.size() - 1) {
    return "";
  }
  return std::string(expression.substr(0, end));
}

StatusOr<Dim> ParseDim(const Json& json) {
  ASSIGN_OR_RETURN(const auto member, OnlyMember(json));
  const auto& [key, value] = member;
  Dim dim;
  if (key == "as_int") {
    ASSIGN_OR_RETURN(dim.hint, AsInt(*value));
    return dim;
  }
  if (key != "as_expr") {
    return InvalidArgument("the program's JSON has the size '" + Shown(key) +
                           "'");
  }
  dim.fixed = false;
  ASSIGN_OR_RETURN(const std::string text, TextMember(*value, "expr_str"));
  dim.symbol = BareSymbol(text);
  if (const Json* hint = FindMember(*value, "hint");
      hint != nullptr && hint->is_object()) {
    if (const Json* number = FindMember(*hint, "as_int")) {
      ASSIGN_OR_RETURN(dim.hint, AsInt(*number));
    }
  }
  return dim;
}

StatusOr<Scalar> ParseScalar(const Json& json) {
  if (json.is_boolean()) {
    Scalar scalar = Scalar::Int(json.get<bool>() ? 1 : 0);
    scalar.kind = Scalar::Kind::kBool;
    return scalar;
  }
  if (json.is_number_integer()) {
    ASSIGN_OR_RETURN(const int64_t value, AsInt(json));
    return Scalar::Int(value);
  }
  if (!json.is_object()) {
    ASSIGN_OR_RETURN(const double value, AsFloat(json));
    return Scalar::Float(value);
  }
  // {"as_name": N} or {"as_int": 3}
  ASSIGN_OR_RETURN(const auto member, OnlyMember(json));
  const auto& [key, value] = member;
  if (key == "as_name" && value->is_string()) {
    Scalar scalar;
    scalar.kind = Scalar::Kind::kName;
    scalar.name = value->get<std::string>();
    return scalar;
  }
  if (value->is_object()) {
    return InvalidArgument("the program's JSON has the number '" + Shown(key) +
                           "'");
  }
  if (key == "as_float") {
    ASSIGN_OR_RETURN(const double real, AsFloat(*value));
    return Scalar::Float(real);
  }
  return ParseScalar(*value);
}

Status ParseTensorNames(const Json& list, Argument& argument) {
  argument.kind = Argument::Kind::kTensors;
  if (!list.is_array() || list.size() > kMaxListItems) {
    return InvalidArgument("the program's JSON has a bad list of tensors");
  }
  for (const Json& item : list) {
    const Json* tensor = &item;
    if (const Json* inner = FindMember(item, "as_tensor")) tensor = inner;
    if (FindMember(item, "as_none") != nullptr) {
      argument.tensors.emplace_back();
      continue;
    }
    ASSIGN_OR_RETURN(argument.tensors.emplace_back(),
                     TextMember(*tensor, "name"));
  }
  return OkStatus();
}

Status ParseScalars(const Json& list, Argument& argument) {
  argument.kind = Argument::Kind::kScalars;
  if (!list.is_array() || list.size() > kMaxListItems) {
    return InvalidArgument("the program's JSON has a bad list of numbers");
  }
  for (const Json& item : list) {
    ASSIGN_OR_RETURN(Scalar scalar, ParseScalar(item));
    argument.scalars.push_back(std::move(scalar));
  }
  return OkStatus();
}

}  // namespace

StatusOr<TensorMeta> ParseMeta(const Json& json) {
  TensorMeta meta;
  ASSIGN_OR_RETURN(const Json* dtype, Member(json, "dtype"));
  ASSIGN_OR_RETURN(const int64_t code, AsInt(*dtype));
  ASSIGN_OR_RETURN(meta.dtype, DTypeOf(code));
  meta.is_complex = code == kComplex64 || code == kComplex128;
  if (const Json* layout = FindMember(json, "layout")) {
    ASSIGN_OR_RETURN(const int64_t kind, AsInt(*layout));
    if (kind != kStrided) {
      return Unimplemented("sparse tensors are not supported");
    }
  }
  ASSIGN_OR_RETURN(const Json* sizes, ArrayMember(json, "sizes"));
  if (sizes->size() > Shape::kMaxRank) {
    return Unimplemented("a tensor has " + std::to_string(sizes->size()) +
                         " dimensions, the limit is 8");
  }
  for (const Json& size : *sizes) {
    ASSIGN_OR_RETURN(Dim dim, ParseDim(size));
    if (dim.hint < 0 || dim.hint > Shape::kMaxElements) {
      return InvalidArgument("a tensor has the size " +
                             std::to_string(dim.hint));
    }
    meta.sizes.push_back(std::move(dim));
  }
  ASSIGN_OR_RETURN(const Json* strides, ArrayMember(json, "strides"));
  for (const Json& stride : *strides) {
    ASSIGN_OR_RETURN(const Dim dim, ParseDim(stride));
    if (dim.hint < 0) {
      return InvalidArgument("a tensor has the stride " +
                             std::to_string(dim.hint));
    }
    meta.strides.push_back(dim.hint);
  }
  if (meta.strides.size() != meta.sizes.size()) {
    return InvalidArgument("a tensor has not as many strides as sizes");
  }
  if (const Json* offset = FindMember(json, "storage_offset")) {
    ASSIGN_OR_RETURN(const Dim dim, ParseDim(*offset));
    meta.storage_offset = dim.hint;
  }
  return meta;
}

StatusOr<Argument> ParseArgument(const Json& json) {
  ASSIGN_OR_RETURN(const auto member, OnlyMember(json));
  const std::string& key = member.first;
  const Json& value = *member.second;
  Argument argument;
  if (key == "as_none") return argument;
  if (key == "as_optional_tensor") return ParseArgument(value);
  if (key == "as_tensor") {
    argument.kind = Argument::Kind::kTensor;
    ASSIGN_OR_RETURN(argument.tensors.emplace_back(),
                     TextMember(value, "name"));
  } else if (key == "as_tensors" || key == "as_optional_tensors") {
    RETURN_IF_ERROR(ParseTensorNames(value, argument));
  } else if (key == "as_int" || key == "as_bool" || key == "as_sym_int" ||
             key == "as_sym_bool" || key == "as_sym_float" ||
             key == "as_float") {
    argument.kind = Argument::Kind::kScalar;
    ASSIGN_OR_RETURN(Scalar scalar, ParseScalar(value));
    if (key == "as_float" && scalar.kind == Scalar::Kind::kInt) {
      scalar = Scalar::Float(static_cast<double>(scalar.integer));
    }
    argument.scalars.push_back(std::move(scalar));
  } else if (key == "as_ints" || key == "as_floats" || key == "as_bools" ||
             key == "as_sym_ints" || key == "as_sym_floats" ||
             key == "as_sym_bools") {
    RETURN_IF_ERROR(ParseScalars(value, argument));
  } else if ((key == "as_string" || key == "as_operator") &&
             value.is_string()) {
    argument.kind = Argument::Kind::kText;
    argument.text = value.get<std::string>();
  } else if (key == "as_scalar_type") {
    argument.kind = Argument::Kind::kDType;
    ASSIGN_OR_RETURN(const int64_t code, AsInt(value));
    ASSIGN_OR_RETURN(argument.dtype, DTypeOf(code));
  } else {
    argument.kind =
        key == "as_graph" ? Argument::Kind::kGraph : Argument::Kind::kOther;
    argument.text = key;
  }
  return argument;
}

}  // namespace millrace::models::graph::pt2
