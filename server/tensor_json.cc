// Numbers come and go one by one: a tensor has too many for a tree. A flat list
// is accepted. A nested one must be nested as the shape says, because a
// transposed list is a frequent mistake.
#include "server/tensor_json.h"

#include <charconv>
#include <cmath>
#include <concepts>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <type_traits>
#include <vector>

#include "config/base/utf8.h"
#include "models/tensor/float16.h"
#include "models/tensor/strings.h"

namespace millrace::server {
namespace {

using models::BFloat16;
using models::DType;
using models::Half;
using models::Tensor;

// Calls use(T()) for the type that stores elements of `dtype`.
template <typename Use>
auto ForType(DType dtype, Use use) {
  switch (dtype) {
    case DType::kBool:
      return use(bool());
    case DType::kU8:
      return use(uint8_t());
    case DType::kU16:
      return use(uint16_t());
    case DType::kU32:
      return use(uint32_t());
    case DType::kU64:
      return use(uint64_t());
    case DType::kI8:
      return use(int8_t());
    case DType::kI16:
      return use(int16_t());
    case DType::kI32:
      return use(int32_t());
    case DType::kI64:
      return use(int64_t());
    case DType::kF16:
      return use(Half());
    case DType::kBF16:
      return use(BFloat16());
    case DType::kF32:
      return use(float());
    case DType::kF64:
      break;
  }
  return use(double());
}

template <typename T>
constexpr bool kIsFloat =
    std::is_floating_point_v<T> || std::is_same_v<T, Half> ||
    std::is_same_v<T, BFloat16>;

// What `value` is as a T; false when it is none.
template <typename T, typename Value>
bool Convert(Value value, T& out) {
  if constexpr (std::is_same_v<Value, bool>) {
    if constexpr (!std::is_same_v<T, bool>) return false;
    out = T(value);
    return true;
  } else if constexpr (kIsFloat<T>) {
    const auto real = static_cast<double>(value);
    if constexpr (std::is_same_v<T, double>) {
      out = real;
      return true;
    } else {
      // From here on it rounds to infinity; converting it is undefined.
      constexpr double kTooLarge = 3.4028235677973366e38;
      if (!(std::abs(real) < kTooLarge)) return false;
      out = T(static_cast<float>(real));
      return std::isfinite(static_cast<float>(out));
    }
  } else if constexpr (std::is_same_v<Value, double>) {
    // Whole numbers below 2^63 convert exactly.
    if (value != std::trunc(value) || std::abs(value) >= 0x1p63) return false;
    return Convert(static_cast<int64_t>(value), out);
  } else if constexpr (std::is_same_v<T, bool>) {
    out = value == Value{1};
    return value == Value{0} || value == Value{1};
  } else {
    out = static_cast<T>(value);
    return std::in_range<T>(value);
  }
}

std::string Limits(DType dtype) {
  if (dtype == DType::kBool) return "true, false, 0 or 1";
  return ForType(dtype, [](auto type) -> std::string {
    using T = decltype(type);
    if constexpr (std::integral<T>) {
      return "whole numbers from " +
             std::to_string(std::numeric_limits<T>::min()) + " to " +
             std::to_string(std::numeric_limits<T>::max());
    }
    return "numbers that do not become infinite in it";
  });
}

template <typename T>
bool AppendValue(T value, std::string& text) {
  if constexpr (std::is_same_v<T, bool>) {
    text += value ? "true" : "false";
    return true;
  } else if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>) {
    return AppendValue(static_cast<float>(value), text);
  } else {
    if constexpr (std::is_floating_point_v<T>) {
      if (!std::isfinite(value)) return false;
    }
    char digits[32];  // the shortest that reads back as the same
    const auto end =
        std::to_chars(std::begin(digits), std::end(digits), value).ptr;
    const std::string_view shown(digits, static_cast<size_t>(end - digits));
    text += shown;
    if constexpr (std::is_floating_point_v<T>) {
      if (shown.find_first_of(".e") == shown.npos) text += ".0";
    }
    return true;
  }
}

}  // namespace

TensorReader::TensorReader(TensorHead head)
    : head_(std::move(head)),
      num_elements_(head_.shape.num_elements()),
      tensor_(Tensor::Make(head_.dtype, head_.shape)) {}

Status TensorReader::CheckPlace() {
  if (value_depth_ == 0) {
    value_depth_ = depth_;
    if (depth_ != 1 && depth_ != head_.shape.rank()) {
      return BadInput(head_.name,
                      "has data nested " + std::to_string(depth_) +
                          " deep; send one flat list, or lists nested as the "
                          "shape " +
                          head_.shape.ToString() + " says");
    }
  }
  if (depth_ != value_depth_) {
    return BadInput(head_.name, "mixes numbers and lists at element " +
                                    std::to_string(next_) + " of its data");
  }
  if (next_ >= num_elements_) {
    return BadInput(head_.name, "has more data than its shape " +
                                    head_.shape.ToString() + " takes (" +
                                    std::to_string(num_elements_) + ")");
  }
  ++counts_[static_cast<size_t>(depth_)];
  return OkStatus();
}

template <typename Value>
Status TensorReader::Unfit(Value value) const {
  std::string shown;
  AppendValue(value, shown);
  return BadInput(head_.name, "is " + shown + " at element " +
                                  std::to_string(next_) + " but " +
                                  std::string(DTypeName(head_.dtype)) +
                                  " takes " + Limits(head_.dtype));
}

template <typename Value>
Status TensorReader::Put(Value value) {
  RETURN_IF_ERROR(CheckPlace());
  const bool fits = ForType(head_.dtype, [&](auto type) {
    using T = decltype(type);
    return Convert(value, tensor_.data<T>()[next_]);
  });
  if (!fits) return Unfit(value);
  ++next_;
  return OkStatus();
}

Status TensorReader::OnInteger(int64_t value) { return Put(value); }
Status TensorReader::OnUnsigned(uint64_t value) { return Put(value); }
Status TensorReader::OnReal(double value) { return Put(value); }
Status TensorReader::OnBool(bool value) { return Put(value); }

Status TensorReader::OnOther(std::string_view what) {
  return BadInput(head_.name, "holds " + std::string(what) + " at element " +
                                  std::to_string(next_) + " of its data but " +
                                  std::string(DTypeName(head_.dtype)) +
                                  " takes " + Limits(head_.dtype));
}

Status TensorReader::OnOpen() {
  begun_ = true;
  if (depth_ == value_depth_ && value_depth_ > 0) {
    return BadInput(head_.name, "mixes numbers and lists at element " +
                                    std::to_string(next_) + " of its data");
  }
  if (depth_ >= models::Shape::kMaxRank) {
    return BadInput(head_.name, "has data nested deeper than " +
                                    std::to_string(models::Shape::kMaxRank) +
                                    " lists");
  }
  ++counts_[static_cast<size_t>(depth_)];
  counts_[static_cast<size_t>(++depth_)] = 0;
  return OkStatus();
}

Status TensorReader::OnClose() {
  const int rank = head_.shape.rank();
  const int64_t count = counts_[static_cast<size_t>(depth_)];
  // Flat data are counted at the end only.
  if (rank > 1 && value_depth_ == rank && count != head_.shape[depth_ - 1]) {
    return BadInput(head_.name,
                    "has a list of " + std::to_string(count) + " within " +
                        std::to_string(depth_ - 1) +
                        " others, before element " + std::to_string(next_) +
                        ", but its shape is " + head_.shape.ToString());
  }
  --depth_;
  return OkStatus();
}

StatusOr<Tensor> TensorReader::Take() {
  if (next_ == num_elements_) return std::move(tensor_);
  return BadInput(head_.name, "has " + std::to_string(next_) +
                                  " values but its shape " +
                                  head_.shape.ToString() + " takes " +
                                  std::to_string(num_elements_));
}

namespace {

// Reads values [next, …) of `data`, which stands `depth` lists deep.
Status CollectStrings(const TensorHead& head,
                      const nlohmann::ordered_json& data, int depth,
                      std::vector<std::string_view>& texts) {
  const bool flat = depth == 0 && (data.empty() || data[0].is_string());
  const int rank = head.shape.rank();
  const bool last = flat || depth + 1 >= rank;
  if (!flat && static_cast<int64_t>(data.size()) != head.shape[depth]) {
    return BadInput(head.name, "has a list of " + std::to_string(data.size()) +
                                   " within " + std::to_string(depth) +
                                   " others, but its shape is " +
                                   head.shape.ToString());
  }
  for (const auto& each : data) {
    if (!last && each.is_array()) {
      RETURN_IF_ERROR(CollectStrings(head, each, depth + 1, texts));
    } else if (last && each.is_string()) {
      texts.push_back(each.get_ref<const std::string&>());
    } else {
      return BadInput(
          head.name, "holds " + std::string(each.type_name()) + " at element " +
                         std::to_string(texts.size()) +
                         " of its data but BYTES takes strings, "
                         "in one flat list or nested as the shape " +
                         head.shape.ToString() + " says");
    }
  }
  return OkStatus();
}

bool AppendString(std::string_view value, std::string& text) {
  if (!IsValidUtf8(value)) return false;
  text += DumpJson(std::string(value));
  return true;
}

Status NoUtf8(const std::string& name, int64_t at) {
  return FailedPrecondition(
             "output '" + name + "' is not UTF-8 at element " +
             std::to_string(at) +
             ", which JSON cannot say; ask for it with the parameter "
             "binary_data true, or over gRPC")
      .At(name);
}

}  // namespace

nlohmann::ordered_json TensorSpecsJson(
    const std::vector<models::TensorSpec>& specs) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const models::TensorSpec& spec : specs) {
    nlohmann::ordered_json shape = nlohmann::ordered_json::array();
    for (const int64_t size : spec.dims) shape.push_back(size);
    if (!spec.rank_known) shape.push_back(-1);
    list.push_back({{"name", spec.name},
                    {"datatype", std::string(models::DTypeName(spec.dtype))},
                    {"shape", std::move(shape)}});
  }
  return list;
}

StatusOr<Tensor> StringsFromJson(const TensorHead& head,
                                 const nlohmann::ordered_json& data) {
  std::vector<std::string_view> texts;
  if (!data.is_array()) {
    return BadInput(head.name, "has data that are no list of strings");
  }
  if (head.shape.rank() > 0 || !data.empty()) {
    RETURN_IF_ERROR(CollectStrings(head, data, 0, texts));
  }
  const int64_t wanted = head.shape.num_elements();
  if (static_cast<int64_t>(texts.size()) != wanted) {
    return BadInput(head.name, "has " + std::to_string(texts.size()) +
                                   " values but its shape " +
                                   head.shape.ToString() + " takes " +
                                   std::to_string(wanted));
  }
  return models::MakeStrings(head.shape, texts);
}

Status AppendData(const std::string& name, const Tensor& tensor,
                  std::string& text) {
  text += '[';
  if (tensor.dtype() == models::kString) {
    for (int64_t i = 0; i < tensor.num_elements(); ++i) {
      if (i > 0) text += ',';
      if (!AppendString(tensor.data<std::string_view>()[i], text)) {
        return NoUtf8(name, i);
      }
    }
    text += ']';
    return OkStatus();
  }
  const int64_t bad = ForType(tensor.dtype(), [&](auto type) {
    using T = decltype(type);
    const T* values = tensor.data<T>();
    for (int64_t i = 0; i < tensor.num_elements(); ++i) {
      if (i > 0) text += ',';
      if (!AppendValue(values[i], text)) return i;
    }
    return int64_t{-1};
  });
  if (bad >= 0) {
    return FailedPrecondition(
               "output '" + name + "' is not finite at element " +
               std::to_string(bad) +
               ", which JSON cannot say; ask for it with the parameter "
               "binary_data true, or over gRPC")
        .At(name);
  }
  text += ']';
  return OkStatus();
}

Status AppendNested(const std::string& name, const Tensor& tensor,
                    int first_axis, std::string& text) {
  const models::Shape& shape = tensor.shape();
  const bool strings = tensor.dtype() == models::kString;
  int64_t bad = -1;
  const auto append_all = [&](const auto* next, auto&& append_value) {
    const auto* const begin = next;
    const std::function<void(int)> append = [&](int axis) {
      if (axis == shape.rank()) {
        if (bad < 0 && !append_value(*next, text)) bad = next - begin;
        ++next;
        return;
      }
      text += '[';
      for (int64_t i = 0; i < shape[axis] && bad < 0; ++i) {
        if (i > 0) text += ',';
        append(axis + 1);
      }
      text += ']';
    };
    append(first_axis);
  };
  if (strings) {
    append_all(tensor.data<std::string_view>(), AppendString);
  } else {
    ForType(tensor.dtype(), [&](auto type) {
      using T = decltype(type);
      append_all(tensor.data<T>(), AppendValue<T>);
      return 0;
    });
  }
  if (bad < 0) return OkStatus();
  if (strings) return NoUtf8(name, bad);
  return FailedPrecondition("output '" + name + "' is not finite at element " +
                            std::to_string(bad) + ", which JSON cannot say")
      .At(name);
}

}  // namespace millrace::server
