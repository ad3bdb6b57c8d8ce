// Python's operators over values.
#pragma once

#include <cstdint>

#include "config/base/status.h"
#include "models/text/jinja/runtime.h"
#include "models/text/jinja/value.h"

namespace millrace::models::jinja {

enum class Operator : uint8_t {
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kFloorDivide,
  kModulo,
  kPower,
  kConcat,
  kEqual,
  kNotEqual,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kIn,
  kNotIn,
};

StatusOr<bool> Equal(Runtime& runtime, const Value& a, const Value& b);
// Below, equal or above zero as a is less, equal or greater; an error when the
// two have no order.
StatusOr<int> Compare(Runtime& runtime, const Value& a, const Value& b);
StatusOr<bool> Contains(Runtime& runtime, const Value& container,
                        const Value& item);
// Any of kEqual to kNotIn.
StatusOr<bool> Holds(Runtime& runtime, Operator op, const Value& a,
                     const Value& b);
// Any of kAdd to kConcat.
StatusOr<Value> Arithmetic(Runtime& runtime, Operator op, Value a,
                           const Value& b);
StatusOr<Value> Negate(const Value& value);

// The items a loop over the value sees; an error when it has none to give.
StatusOr<std::vector<Value>> Iterate(Runtime& runtime, const Value& value);
StatusOr<int64_t> Length(const Value& value);

// format % values, where values is a tuple, a dict or a single value.
StatusOr<Text> FormatPercent(Runtime& runtime, const Text& format,
                             const Value& values);

}  // namespace millrace::models::jinja
