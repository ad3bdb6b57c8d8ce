// Operators. Division and remainder round towards minus infinity, as Python's
// do and C's do not; whatever could be repeated by a small template (products
// of strings, comparisons of nested lists) pays for its size first.
#include "models/text/jinja/operators.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "models/text/jinja/print.h"
#include "models/text/jinja/unicode.h"

namespace millrace::models::jinja {
namespace {

using Kind = Value::Kind;

Status TooLarge() {
  return InvalidArgument("an integer of the template passes 127 bits");
}

Status Unsupported(std::string_view sign, const Value& a, const Value& b) {
  if (a.IsUndefined()) return InvalidArgument(a.undefined_message());
  if (b.IsUndefined()) return InvalidArgument(b.undefined_message());
  if (sign == "+" && a.IsString()) {
    return InvalidArgument("can only concatenate str (not \"" +
                           std::string(b.TypeName()) + "\") to str");
  }
  return InvalidArgument("unsupported operands for " + std::string(sign) +
                         ": " + std::string(a.TypeName()) + " and " +
                         std::string(b.TypeName()));
}

std::string_view Sign(Operator op) {
  static constexpr std::string_view kSigns[] = {
      "+",  "-",  "*", "/",  "//", "%",  "**", "~",
      "==", "!=", "<", "<=", ">",  ">=", "in", "not in"};
  return kSigns[static_cast<int>(op)];
}

StatusOr<Value> IntegerPower(Integer base, Integer exponent) {
  if (exponent < 0) {
    if (base == 0) return InvalidArgument("zero has no negative power");
    return Value::Float(
        std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  Integer out = 1;
  while (exponent > 0) {
    if (exponent & 1 && __builtin_mul_overflow(out, base, &out)) {
      return TooLarge();
    }
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) {
      return TooLarge();
    }
  }
  return Value::Int(out);
}

StatusOr<Value> OfIntegers(Operator op, Integer a, Integer b) {
  Integer out = 0;
  switch (op) {
    case Operator::kAdd:
      if (__builtin_add_overflow(a, b, &out)) return TooLarge();
      return Value::Int(out);
    case Operator::kSubtract:
      if (__builtin_sub_overflow(a, b, &out)) return TooLarge();
      return Value::Int(out);
    case Operator::kMultiply:
      if (__builtin_mul_overflow(a, b, &out)) return TooLarge();
      return Value::Int(out);
    case Operator::kPower:
      return IntegerPower(a, b);
    default:
      break;
  }
  if (b == 0) return InvalidArgument("division by zero");
  if (op == Operator::kDivide) {
    return Value::Float(static_cast<double>(a) / static_cast<double>(b));
  }
  if (b == -1) {  // the one quotient that may not fit
    if (op == Operator::kModulo) return Value::Int(0);
    if (__builtin_sub_overflow(Integer{0}, a, &out)) return TooLarge();
    return Value::Int(out);
  }
  Integer quotient = a / b, rest = a % b;
  if (rest != 0 && (rest < 0) != (b < 0)) {
    --quotient;
    rest += b;
  }
  return Value::Int(op == Operator::kModulo ? rest : quotient);
}

StatusOr<Value> OfFloats(Operator op, double a, double b) {
  switch (op) {
    case Operator::kAdd:
      return Value::Float(a + b);
    case Operator::kSubtract:
      return Value::Float(a - b);
    case Operator::kMultiply:
      return Value::Float(a * b);
    case Operator::kPower: {
      if (a == 0 && b < 0) return InvalidArgument("zero has no negative power");
      if (a < 0 && b != std::floor(b)) {
        return InvalidArgument("a power that is no real number");
      }
      const double out = std::pow(a, b);
      if (std::isinf(out) && std::isfinite(a) && std::isfinite(b)) {
        return InvalidArgument("a power passes the range of floats");
      }
      return Value::Float(out);
    }
    default:
      break;
  }
  if (b == 0) return InvalidArgument("float division by zero");
  if (op == Operator::kDivide) return Value::Float(a / b);
  double rest = std::fmod(a, b);
  double quotient = (a - rest) / b;
  if (rest != 0 && (rest < 0) != (b < 0)) {
    rest += b;
    quotient -= 1;
  } else if (rest == 0) {
    rest = std::copysign(0.0, b);
  }
  if (op == Operator::kModulo) return Value::Float(rest);
  const double floor = std::floor(quotient);
  return Value::Float(quotient - floor > 0.5 ? floor + 1 : floor);
}

// Strings, lists and tuples times a count.
StatusOr<Value> Repeat(Runtime& runtime, const Value& value, Integer count) {
  if (count < 0) count = 0;
  const Integer size = value.IsString()
                           ? static_cast<Integer>(value.text().size())
                           : static_cast<Integer>(value.items().size());
  if (size == 0) return value;
  if (count > std::numeric_limits<int32_t>::max() ||
      size * count > runtime.limits().max_output_bytes) {
    return InvalidArgument("a repeated value is larger than " +
                           std::to_string(runtime.limits().max_output_bytes));
  }
  if (value.IsString()) {
    Text out;
    for (Integer i = 0; i < count; ++i) out.Append(value.text());
    return runtime.MakeString(std::move(out));
  }
  RETURN_IF_ERROR(runtime.Step(static_cast<int64_t>(size * count)));
  std::vector<Value> out;
  for (Integer i = 0; i < count; ++i) {
    out.insert(out.end(), value.items().begin(), value.items().end());
  }
  return runtime.MakeItems(value.kind(), std::move(out));
}

StatusOr<bool> EqualItems(Runtime& runtime, const std::vector<Value>& a,
                          const std::vector<Value>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    ASSIGN_OR_RETURN(const bool same, Equal(runtime, a[i], b[i]));
    if (!same) return false;
  }
  return true;
}

}  // namespace

StatusOr<bool> Equal(Runtime& runtime, const Value& a, const Value& b) {
  RETURN_IF_ERROR(runtime.Step());
  if (a.IsNumber() && b.IsNumber()) {
    if (a.IsInteger() && b.IsInteger()) return a.integer() == b.integer();
    return a.number() == b.number();
  }
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return true;
    case Kind::kString:
      return a.str() == b.str();
    case Kind::kList:
    case Kind::kTuple:
      return EqualItems(runtime, a.items(), b.items());
    case Kind::kDict: {
      if (a.dict().size() != b.dict().size()) return false;
      for (const auto& [key, value] : a.dict().entries()) {
        const Value* other = b.dict().Find(key);
        if (other == nullptr) return false;
        ASSIGN_OR_RETURN(const bool same, Equal(runtime, value, *other));
        if (!same) return false;
      }
      return true;
    }
    default:
      return a.SameObject(b);
  }
}

StatusOr<int> Compare(Runtime& runtime, const Value& a, const Value& b) {
  RETURN_IF_ERROR(runtime.Step());
  if (a.IsNumber() && b.IsNumber()) {
    if (a.IsInteger() && b.IsInteger()) {
      return a.integer() < b.integer() ? -1 : a.integer() > b.integer();
    }
    return a.number() < b.number() ? -1 : a.number() > b.number();
  }
  if (a.IsString() && b.IsString()) {
    const int order = a.str().compare(b.str());
    return order < 0 ? -1 : order > 0;
  }
  if (a.kind() == b.kind() && a.IsListOrTuple()) {
    const auto& x = a.items();
    const auto& y = b.items();
    for (size_t i = 0; i < x.size() && i < y.size(); ++i) {
      ASSIGN_OR_RETURN(const bool same, Equal(runtime, x[i], y[i]));
      if (!same) return Compare(runtime, x[i], y[i]);
    }
    return x.size() < y.size() ? -1 : x.size() > y.size();
  }
  return Unsupported("<", a, b);
}

StatusOr<bool> Contains(Runtime& runtime, const Value& container,
                        const Value& item) {
  if (container.IsString()) {
    if (!item.IsString()) return Unsupported("in", item, container);
    const std::string_view text = container.str(), part = item.str();
    // Linear where std::string::find may be quadratic.
    return part.empty() || memmem(text.data(), text.size(), part.data(),
                                  part.size()) != nullptr;
  }
  if (container.IsDict()) {
    if (!Dict::Hashable(item)) {
      return InvalidArgument("unhashable type: '" +
                             std::string(item.TypeName()) + "'");
    }
    return container.dict().Find(item) != nullptr;
  }
  if (container.IsUndefined()) return false;
  if (!container.IsSequence()) return Unsupported("in", item, container);
  for (const Value& other : container.items()) {
    ASSIGN_OR_RETURN(const bool same, Equal(runtime, other, item));
    if (same) return true;
  }
  return false;
}

StatusOr<bool> Holds(Runtime& runtime, Operator op, const Value& a,
                     const Value& b) {
  if (op == Operator::kEqual) return Equal(runtime, a, b);
  if (op == Operator::kIn) return Contains(runtime, b, a);
  if (op == Operator::kNotEqual) {
    ASSIGN_OR_RETURN(const bool same, Equal(runtime, a, b));
    return !same;
  }
  if (op == Operator::kNotIn) {
    ASSIGN_OR_RETURN(const bool in, Contains(runtime, b, a));
    return !in;
  }
  if (a.IsNumber() && b.IsNumber() &&
      (std::isnan(a.number()) || std::isnan(b.number()))) {
    return false;
  }
  auto order = Compare(runtime, a, b);
  if (!order.ok()) return std::move(order).status();
  switch (op) {
    case Operator::kLess:
      return *order < 0;
    case Operator::kLessEqual:
      return *order <= 0;
    case Operator::kGreater:
      return *order > 0;
    default:
      return *order >= 0;
  }
}

StatusOr<Value> Arithmetic(Runtime& runtime, Operator op, Value a,
                           const Value& b) {
  if (op == Operator::kConcat) {
    Text out;
    if (a.IsString()) {
      out = std::move(a).TakeText();
    } else {
      ASSIGN_OR_RETURN(out, ToText(runtime, a));
    }
    if (b.IsString()) {
      out.Append(b.text());
    } else {
      ASSIGN_OR_RETURN(const Text right, ToText(runtime, b));
      out.Append(right);
    }
    return runtime.MakeString(std::move(out));
  }
  if (a.IsInteger() && b.IsInteger()) {
    return OfIntegers(op, a.integer(), b.integer());
  }
  if (a.IsNumber() && b.IsNumber()) {
    return OfFloats(op, a.number(), b.number());
  }
  if (op == Operator::kAdd && a.IsString() && b.IsString()) {
    Text out = std::move(a).TakeText();
    out.Append(b.text());
    return runtime.MakeString(std::move(out));
  }
  if (op == Operator::kAdd && a.kind() == b.kind() && a.IsListOrTuple()) {
    std::vector<Value> out = a.items();
    out.insert(out.end(), b.items().begin(), b.items().end());
    return runtime.MakeItems(a.kind(), std::move(out));
  }
  if (op == Operator::kMultiply) {
    if ((a.IsString() || a.IsListOrTuple()) && b.IsInteger()) {
      return Repeat(runtime, a, b.integer());
    }
    if (a.IsInteger() && (b.IsString() || b.IsListOrTuple())) {
      return Repeat(runtime, b, a.integer());
    }
  }
  if (op == Operator::kModulo && a.IsString()) {
    ASSIGN_OR_RETURN(Text out, FormatPercent(runtime, a.text(), b));
    return runtime.MakeString(std::move(out));
  }
  return Unsupported(Sign(op), a, b);
}

StatusOr<Value> Negate(const Value& value) {
  if (value.Is(Kind::kFloat)) return Value::Float(-value.number());
  if (value.IsInteger()) {
    return OfIntegers(Operator::kSubtract, 0, value.integer());
  }
  if (value.IsUndefined()) return InvalidArgument(value.undefined_message());
  return InvalidArgument("bad operand type for unary -: '" +
                         std::string(value.TypeName()) + "'");
}

StatusOr<std::vector<Value>> Iterate(Runtime& runtime, const Value& value) {
  std::vector<Value> out;
  if (value.IsSequence()) {
    out = value.TakeItems();
  } else if (value.IsDict()) {
    for (const auto& entry : value.dict().entries()) out.push_back(entry.first);
  } else if (value.IsString()) {
    const auto offsets = CodePointOffsets(value.str());
    RETURN_IF_ERROR(
        runtime.Make(static_cast<int64_t>(offsets.size() * 4 * sizeof(Value))));
    for (size_t i = 0; i + 1 < offsets.size(); ++i) {
      out.push_back(
          Value::String(value.text().Slice(offsets[i], offsets[i + 1])));
    }
  } else if (!value.IsUndefined()) {
    return InvalidArgument("'" + std::string(value.TypeName()) +
                           "' object is not iterable");
  }
  RETURN_IF_ERROR(
      runtime.Make(static_cast<int64_t>(out.size() * sizeof(Value))));
  return out;
}

StatusOr<int64_t> Length(const Value& value) {
  if (value.IsUndefined()) return 0;
  if (value.IsString()) {
    return static_cast<int64_t>(CountCodePoints(value.str()));
  }
  if (value.IsDict()) return static_cast<int64_t>(value.dict().size());
  if (value.IsSequence() && !value.Is(Kind::kGenerator)) {
    return static_cast<int64_t>(value.items().size());
  }
  return InvalidArgument("object of type '" + std::string(value.TypeName()) +
                         "' has no len()");
}

}  // namespace millrace::models::jinja
