// Elements in another type. Floats go to integers towards zero; what does not
// fit becomes the nearest that does, and NaN becomes 0 (C++ leaves both open).
// Numbers are written as ONNX Runtime writes them: 8 digits of FP32, 17 of
// FP64.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>

#include "config/base/utf8.h"
#include "models/graph/onnx_dtype.h"
#include "models/graph/ops/checks.h"
#include "models/graph/ops/dispatch.h"
#include "models/graph/ops/elementwise.h"
#include "models/graph/ops/facts.h"
#include "models/graph/ops/op_groups.h"
#include "models/graph/string_types.h"
#include "models/tensor/strings.h"

namespace millrace::models::graph {
namespace {

StatusOr<DType> TargetOf(const Call& call) {
  const int64_t to = call.attrs().Int("to", 0);
  const std::optional<DType> dtype = DTypeFromOnnx(to);
  if (!dtype.has_value()) {
    return Unimplemented("the type " + OnnxTypeName(to) + " is not supported");
  }
  return *dtype;
}

// New strings are the interpreter's work.
Status CheckWritten(const Arg& x, DType to) {
  const bool writes = to == kString && x.dtype != kString;
  return writes && x.bytes == nullptr ? NeedsBytes("the numbers") : OkStatus();
}

StatusOr<OutTypes> InferCast(const Call& call) {
  RETURN_IF_ERROR(CheckOperands(call, 1, 1));
  ASSIGN_OR_RETURN(const DType to, TargetOf(call));
  RETURN_IF_ERROR(CheckWritten(call.arg(0), to));
  return OutTypes{{to, call.arg(0).shape}};
}

StatusOr<OutTypes> InferCastLike(const Call& call) {
  RETURN_IF_ERROR(CheckOperands(call, 2, 2));
  RETURN_IF_ERROR(CheckWritten(call.arg(0), call.arg(1).dtype));
  return OutTypes{{call.arg(1).dtype, call.arg(0).shape}};
}

// Only types of one size: the shape stays.
StatusOr<OutTypes> InferBitCast(const Call& call) {
  RETURN_IF_ERROR(CheckOperands(call, 1, 1));
  ASSIGN_OR_RETURN(const DType to, TargetOf(call));
  if (DTypeBytes(to) != DTypeBytes(call.arg(0).dtype)) {
    return InvalidArgument(
        "the elements of " + TypeText(call.arg(0).dtype, call.arg(0).shape) +
        " have another size than " + std::string(DTypeName(to)));
  }
  return OutTypes{{to, call.arg(0).shape}};
}

template <typename To, typename From>
To Convert(From x) {
  if constexpr (std::is_same_v<To, bool>) {
    return x != From{0};
  } else if constexpr (std::is_integral_v<To> &&
                       std::is_floating_point_v<From>) {
    using Limits = std::numeric_limits<To>;
    if (std::isnan(x)) return 0;
    // The bounds as floats may lie one above what fits.
    if (x >= static_cast<From>(Limits::max())) return Limits::max();
    if (x <= static_cast<From>(Limits::lowest())) return Limits::lowest();
    return static_cast<To>(x);
  } else {
    return static_cast<To>(x);
  }
}

template <typename T>
std::string_view Written(T x, std::span<char> room) {
  int size = 0;
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(x)) return "NaN";
    if (std::isinf(x)) return x < 0 ? "-INF" : "INF";
    size = std::snprintf(room.data(), room.size(),
                         std::is_same_v<T, double> ? "%.17g" : "%.8g",
                         static_cast<double>(x));
  } else {
    const auto value =
        static_cast<std::conditional_t<std::is_same_v<T, bool>, int, T>>(x);
    size = static_cast<int>(
        std::to_chars(room.data(), room.data() + room.size(), value).ptr -
        room.data());
  }
  return {room.data(), static_cast<size_t>(size)};
}

Status WriteNumbers(const Call& call, const Result& result, const Team& team) {
  const auto [begin, end] = team.Share(result.num_elements());
  return Dispatch(
      call.arg(0).dtype, [&, b = begin, e = end]<typename From>() -> Status {
        char room[64];
        for (int64_t i = b; i < e; ++i) {
          const auto x =
              static_cast<MathType<From>>(call.arg(0).data<From>()[i]);
          ASSIGN_OR_RETURN(result.data<std::string_view>()[i],
                           StoreOf(call).Keep(Written(x, room)));
        }
        return OkStatus();
      });
}

bool EqualsIgnoringCase(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](char x, char y) { return (x | 0x20) == (y | 0x20); });
}

// Of blanks around a number nothing is left; false: there is no number.
template <typename T>
bool Read(std::string_view text, T& x) {
  constexpr std::string_view kBlanks = " \t\n\r";
  const size_t first = text.find_first_not_of(kBlanks);
  if (first == text.npos) return false;
  text = text.substr(first, text.find_last_not_of(kBlanks) + 1 - first);
  if (text.size() > 1 && text[0] == '+') text.remove_prefix(1);
  if constexpr (std::is_same_v<T, bool>) {
    x = EqualsIgnoringCase(text, "true") || text == "1";
    return x || EqualsIgnoringCase(text, "false") || text == "0";
  } else {
    const auto [end, error] =
        std::from_chars(text.data(), text.data() + text.size(), x);
    return error == std::errc() && end == text.data() + text.size();
  }
}

Status ReadNumbers(const Call& call, const Result& result, const Team& team) {
  const auto* texts = call.arg(0).data<std::string_view>();
  const auto [begin, end] = team.Share(result.num_elements(), 64);
  return Dispatch(
      result.dtype, [&, b = begin, e = end]<typename To>() -> Status {
        for (int64_t i = b; i < e; ++i) {
          MathType<To> x{};
          if (!Read(texts[i], x)) {
            return InvalidArgument("'" + Shortened(texts[i], 100) +
                                   "' at element " + std::to_string(i) +
                                   " is no number of " +
                                   std::string(DTypeName(result.dtype)));
          }
          result.data<To>()[i] = To(x);
        }
        return OkStatus();
      });
}

Status RunCast(const Call& call, std::span<const Result> results,
               const Team& team) {
  const bool reads = call.arg(0).dtype == kString;
  if (reads && results[0].dtype != kString) {
    return ReadNumbers(call, results[0], team);
  }
  if (reads) {
    const auto [begin, end] = team.Share(results[0].num_elements(), 64);
    std::copy(call.arg(0).data<std::string_view>() + begin,
              call.arg(0).data<std::string_view>() + end,
              results[0].data<std::string_view>() + begin);
    return OkStatus();
  }
  if (results[0].dtype == kString) {
    return WriteNumbers(call, results[0], team);
  }
  Dispatch(call.arg(0).dtype, [&]<typename From>() {
    Dispatch(results[0].dtype, [&]<typename To>() {
      Map<From, To>(call, results[0], team, [](From x) {
        return To(Convert<MathType<To>>(static_cast<MathType<From>>(x)));
      });
    });
  });
  return OkStatus();
}

Status RunBitCast(const Call& call, std::span<const Result> results,
                  const Team& team) {
  const int64_t size = DTypeBytes(results[0].dtype);
  const auto [begin, end] = team.Share(results[0].num_elements(), 64);
  std::copy(call.arg(0).bytes + begin * size, call.arg(0).bytes + end * size,
            results[0].bytes + begin * size);
  return OkStatus();
}

constexpr OpFacts kCastFacts = {.elementwise = Elementwise::kUnary,
                                .is_needless = AlwaysNeedless,
                                .strings = Strings::kMakes};

constexpr OpDef kOps[] = {
    {"BitCast", InferBitCast, RunBitCast, Work::kSplits},
    {"Cast", InferCast, RunCast, Work::kSplits, kCastFacts},
    {"CastLike",
     InferCastLike,
     RunCast,
     Work::kSplits,
     {.strings = Strings::kMakes}},
};

}  // namespace

std::span<const OpDef> CastOps() { return kOps; }

}  // namespace millrace::models::graph
