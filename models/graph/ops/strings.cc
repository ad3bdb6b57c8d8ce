// Operators on texts: StringNormalizer, StringConcat, StringSplit. Characters
// are those of UTF-8; upper and lower case change
// ASCII letters and the simple pairs of other alphabets that utf8proc knows.
#include <utf8proc.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "models/graph/ops/checks.h"
#include "models/graph/ops/elementwise.h"
#include "models/graph/ops/row_rules.h"
#include "models/graph/ops/tabular.h"
#include "models/graph/string_types.h"
#include "models/tensor/strings.h"

namespace millrace::models::graph {
namespace {

enum class Case : uint8_t { kKeep, kLower, kUpper };

std::string InCase(std::string_view text, Case to) {
  std::string made;
  const auto* next = reinterpret_cast<const utf8proc_uint8_t*>(text.data());
  auto left = static_cast<utf8proc_ssize_t>(text.size());
  while (left > 0) {
    utf8proc_int32_t code = 0;
    const utf8proc_ssize_t size = utf8proc_iterate(next, left, &code);
    if (size <= 0) {  // no UTF-8: as it is
      made += static_cast<char>(*next++);
      --left;
      continue;
    }
    code = to == Case::kLower ? utf8proc_tolower(code) : utf8proc_toupper(code);
    utf8proc_uint8_t bytes[4];
    const utf8proc_ssize_t written = utf8proc_encode_char(code, bytes);
    made.append(reinterpret_cast<const char*>(bytes),
                static_cast<size_t>(written));
    next += size;
    left -= size;
  }
  return made;
}

StatusOr<Case> CaseOf(std::string_view action) {
  if (action == "NONE") return Case::kKeep;
  if (action == "LOWER") return Case::kLower;
  if (action == "UPPER") return Case::kUpper;
  return InvalidArgument("there is no case_change_action '" +
                         std::string(action) + "'");
}

Status CheckStrings(const Arg& x) {
  return x.dtype == kString ? OkStatus() : WrongType(x);
}

// The words of [n] or [1, n] that stay, in their case.
StatusOr<std::vector<std::string>> Normalised(const Call& call) {
  ASSIGN_OR_RETURN(const Case to,
                   CaseOf(call.attrs().Text("case_change_action", "NONE")));
  const bool exact = call.attrs().Int("is_case_sensitive", 0) != 0;
  // Without case, both sides are compared in one case.
  const Case compared = to == Case::kUpper ? Case::kUpper : Case::kLower;
  std::unordered_set<std::string> stops;
  for (const std::string& word : call.attrs().Texts("stopwords")) {
    stops.insert(exact ? word : InCase(word, compared));
  }
  std::vector<std::string> words;
  const auto* texts = call.arg(0).data<std::string_view>();
  for (int64_t i = 0; i < call.arg(0).num_elements(); ++i) {
    if (!stops.empty() && stops.contains(exact ? std::string(texts[i])
                                               : InCase(texts[i], compared))) {
      continue;
    }
    words.push_back(to == Case::kKeep ? std::string(texts[i])
                                      : InCase(texts[i], to));
  }
  // Where nothing stays, one empty text does.
  if (words.empty()) words.emplace_back();
  return words;
}

StatusOr<OutTypes> InferNormalizer(const Call& call) {
  RETURN_IF_ERROR(CheckOperands(call, 1, 1));
  const Arg& x = call.arg(0);
  RETURN_IF_ERROR(CheckStrings(x));
  RETURN_IF_ERROR(
      CaseOf(call.attrs().Text("case_change_action", "NONE")).status());
  const int rank = x.shape.rank();
  if (rank < 1 || rank > 2) return WrongType(x);
  if (call.attrs().Texts("stopwords").empty())
    return OutTypes{{x.dtype, x.shape}};
  if (rank == 2 && x.shape[0] != 1) {
    return InvalidArgument(
        "stop words are taken from [n] or [1, n], not from " +
        x.shape.ToString());
  }
  // How many stay depends on what they are.
  ASSIGN_OR_RETURN(const auto words, Normalised(call));
  Shape shape = x.shape;
  shape[rank - 1] = static_cast<int64_t>(words.size());
  return OutTypes{{x.dtype, shape}};
}

Status RunNormalizer(const Call& call, std::span<const Result> results,
                     const Team&) {
  auto* y = results[0].data<std::string_view>();
  ASSIGN_OR_RETURN(const auto words, Normalised(call));
  // Without stop words an empty table stays empty.
  const int64_t count = results[0].num_elements();
  for (int64_t i = 0; i < count; ++i) {
    ASSIGN_OR_RETURN(y[i], StoreOf(call).Keep(words[static_cast<size_t>(i)]));
  }
  return OkStatus();
}

StatusOr<OutTypes> InferConcat(const Call& call) {
  RETURN_IF_ERROR(CheckOperands(call, 2, 2));
  RETURN_IF_ERROR(CheckStrings(call.arg(0)));
  RETURN_IF_ERROR(CheckStrings(call.arg(1)));
  if (call.arg(0).bytes == nullptr || call.arg(1).bytes == nullptr) {
    return NeedsBytes("the texts");
  }
  ASSIGN_OR_RETURN(const Shape shape,
                   Broadcast(call.arg(0).shape, call.arg(1).shape));
  return OutTypes{{kString, shape}};
}

Status RunConcat(const Call& call, std::span<const Result> results,
                 const Team&) {
  const auto* a = call.arg(0).data<std::string_view>();
  const auto* b = call.arg(1).data<std::string_view>();
  auto* y = results[0].data<std::string_view>();
  const BroadcastWalk walk(results[0].shape,
                           {call.arg(0).shape, call.arg(1).shape});
  Status status;
  walk.ForRows(0, walk.num_rows(), [&](const BroadcastRow& row) {
    for (int64_t i = 0; i < row.length && status.ok(); ++i) {
      const std::string_view first = a[row.at[0] + i * row.step[0]];
      const std::string_view second = b[row.at[1] + i * row.step[1]];
      const size_t size = first.size() + second.size();
      StatusOr<char*> to = StoreOf(call).Allocate(size);
      if (!to.ok()) {
        status = to.status();
        return;
      }
      std::copy(first.begin(), first.end(), *to);
      std::copy(second.begin(), second.end(), *to + first.size());
      y[row.out + i] = {*to, size};
    }
  });
  return status;
}

// Without a delimiter, runs of blanks part words.
std::vector<std::string_view> Parts(std::string_view text,
                                    std::string_view delimiter,
                                    int64_t max_split) {
  std::vector<std::string_view> parts;
  if (delimiter.empty()) {
    constexpr std::string_view kBlanks = " \t\n\r\v\f";
    const auto trim = [&] {
      const size_t first = text.find_first_not_of(kBlanks);
      text.remove_prefix(std::min(first, text.size()));
    };
    trim();
    while (!text.empty()) {
      if (static_cast<int64_t>(parts.size()) == max_split) {
        parts.push_back(text.substr(0, text.find_last_not_of(kBlanks) + 1));
        return parts;
      }
      const size_t end = std::min(text.find_first_of(kBlanks), text.size());
      parts.push_back(text.substr(0, end));
      text.remove_prefix(end);
      trim();
    }
    return parts;
  }
  if (text.empty()) return parts;
  while (static_cast<int64_t>(parts.size()) != max_split) {
    const size_t end = text.find(delimiter);
    if (end == text.npos) break;
    parts.push_back(text.substr(0, end));
    text.remove_prefix(end + delimiter.size());
  }
  parts.push_back(text);
  return parts;
}

StatusOr<OutTypes> InferSplit(const Call& call) {
  RETURN_IF_ERROR(CheckOperands(call, 1, 1));
  const Arg& x = call.arg(0);
  RETURN_IF_ERROR(CheckStrings(x));
  if (x.shape.rank() == Shape::kMaxRank) {
    return InvalidArgument("a tensor has 8 dimensions at most");
  }
  if (x.bytes == nullptr) return NeedsBytes("the texts");
  size_t most = 0;
  for (int64_t i = 0; i < x.num_elements(); ++i) {
    most = std::max(most, Parts(x.data<std::string_view>()[i],
                                call.attrs().Text("delimiter", ""),
                                call.attrs().Int("maxsplit", -1))
                              .size());
  }
  Shape shape = x.shape;
  shape.Append(static_cast<int64_t>(most));
  RETURN_IF_ERROR(Shape::Checked(shape.dims()).status());
  return OutTypes{{kString, shape}, {DType::kI64, x.shape}};
}

// What was split is still there: parts are views of it.
Status RunSplit(const Call& call, std::span<const Result> results,
                const Team&) {
  const int64_t most = results[0].shape.back();
  for (int64_t i = 0; i < call.arg(0).num_elements(); ++i) {
    const auto parts = Parts(call.arg(0).data<std::string_view>()[i],
                             call.attrs().Text("delimiter", ""),
                             call.attrs().Int("maxsplit", -1));
    auto* y = results[0].data<std::string_view>() + i * most;
    std::fill_n(y, most, std::string_view());
    std::copy(parts.begin(), parts.end(), y);
    if (results.size() > 1) {
      results[1].data<int64_t>()[i] = static_cast<int64_t>(parts.size());
    }
  }
  return OkStatus();
}

constexpr OpDef kOps[] = {
    {"StringConcat",
     InferConcat,
     RunConcat,
     Work::kWhole,
     {.strings = Strings::kMakes}},
    {"StringNormalizer",
     InferNormalizer,
     RunNormalizer,
     Work::kWhole,
     {.strings = Strings::kMakes}},
    {"StringSplit",
     InferSplit,
     RunSplit,
     Work::kWhole,
     {.strings = Strings::kTakes}},
};

}  // namespace

std::span<const OpDef> StringOps() { return kOps; }

}  // namespace millrace::models::graph
