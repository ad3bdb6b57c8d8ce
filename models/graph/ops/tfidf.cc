// TfIdfVectorizer: counts n-grams of a pool, also with gaps between their
// members, in [n] or in each row of [n, length].
#include <algorithm>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "models/graph/ops/checks.h"
#include "models/graph/ops/dispatch.h"
#include "models/graph/ops/row_rules.h"
#include "models/graph/ops/tabular.h"
#include "models/tensor/strings.h"

namespace millrace::models::graph {
namespace {

// A trie: how an n-gram goes on, and where it counts when it ends there.
struct TrieNode {
  std::unordered_map<std::string, size_t> next_text;
  std::unordered_map<int64_t, size_t> next_number;
  int64_t place = -1;  // among the n-grams
};

struct Grams {
  std::vector<TrieNode> nodes{1};
  int64_t min_length = 1;
  int64_t max_length = 1;
  int64_t max_skip = 0;
  int64_t num_columns = 0;
  const std::vector<int64_t>* columns = nullptr;  // of each n-gram
  const std::vector<double>* weights = nullptr;   // likewise, or empty
  enum class Mode : uint8_t { kTf, kIdf, kTfIdf } mode = Mode::kTf;
};

auto& NextOf(TrieNode& node, const std::string&) { return node.next_text; }
auto& NextOf(TrieNode& node, int64_t) { return node.next_number; }

template <typename T>
void AddGram(const T* items, int64_t length, int64_t place, Grams& grams) {
  size_t at = 0;
  for (int64_t i = 0; i < length; ++i) {
    auto& next = NextOf(grams.nodes[at], items[i]);
    const auto found = next.find(items[i]);
    if (found != next.end()) {
      at = found->second;
      continue;
    }
    next.emplace(items[i], grams.nodes.size());
    at = grams.nodes.size();
    grams.nodes.emplace_back();
  }
  grams.nodes[at].place = place;
}

// Counts are the beginnings in the pool of n-grams of 1, 2, … members.
template <typename T>
Status AddPool(const std::vector<T>& pool, const std::vector<int64_t>& begins,
               Grams& grams) {
  const auto size = static_cast<int64_t>(pool.size());
  int64_t place = 0;
  for (size_t i = 0; i < begins.size(); ++i) {
    const int64_t length = static_cast<int64_t>(i) + 1;
    const int64_t begin = begins[i];
    const int64_t end = i + 1 < begins.size() ? begins[i + 1] : size;
    if (begin < 0 || begin > end || end > size || (end - begin) % length != 0) {
      return InvalidArgument("ngram_counts do not fit the pool of " +
                             std::to_string(size));
    }
    for (int64_t at = begin; at < end; at += length, ++place) {
      const bool counts =
          length >= grams.min_length && length <= grams.max_length;
      if (counts) AddGram(pool.data() + at, length, place, grams);
    }
  }
  if (place != static_cast<int64_t>(grams.columns->size())) {
    return InvalidArgument(
        "there are " + std::to_string(place) + " n-grams and " +
        std::to_string(grams.columns->size()) + " ngram_indexes");
  }
  return OkStatus();
}

StatusOr<Grams> ReadOptions(const Attrs& attrs) {
  Grams grams;
  grams.min_length = attrs.Int("min_gram_length", 1);
  grams.max_length = attrs.Int("max_gram_length", 1);
  grams.max_skip = attrs.Int("max_skip_count", 0);
  grams.columns = &attrs.Ints("ngram_indexes");
  grams.weights = &attrs.Floats("weights");
  const std::string_view mode = attrs.Text("mode", "");
  grams.mode = mode == "IDF"     ? Grams::Mode::kIdf
               : mode == "TFIDF" ? Grams::Mode::kTfIdf
                                 : Grams::Mode::kTf;
  constexpr int64_t kMost = 1 << 24;
  if (grams.min_length < 1 || grams.max_length < grams.min_length ||
      grams.max_length > 64 || grams.max_skip < 0 || grams.max_skip > 64) {
    return InvalidArgument("lengths of n-grams are 1 to 64, gaps 0 to 64");
  }
  for (const int64_t column : *grams.columns) {
    if (column < 0 || column >= kMost) {
      return InvalidArgument("an n-gram counts in column " +
                             std::to_string(column));
    }
    grams.num_columns = std::max(grams.num_columns, column + 1);
  }
  if (!grams.weights->empty() &&
      grams.weights->size() != grams.columns->size()) {
    return InvalidArgument("there are not as many weights as n-grams");
  }
  if (grams.mode != Grams::Mode::kTf && grams.weights->empty()) {
    return InvalidArgument("mode '" + std::string(mode) + "' needs weights");
  }
  return grams;
}

bool IsTable(const Shape& shape) {
  return shape.rank() == 1 || shape.rank() == 2;
}

StatusOr<OutTypes> Infer(const Call& call) {
  RETURN_IF_ERROR(CheckOperands(call, 1, 1));
  const Arg& x = call.arg(0);
  const bool texts = !call.attrs().Texts("pool_strings").empty();
  if (!IsTable(x.shape) || texts != (x.dtype == kString) ||
      (!texts && x.dtype != DType::kI64 && x.dtype != DType::kI32)) {
    return WrongType(x);
  }
  ASSIGN_OR_RETURN(const Grams grams, ReadOptions(call.attrs()));
  Shape shape = x.shape;
  shape[shape.rank() - 1] = grams.num_columns;
  RETURN_IF_ERROR(Shape::Checked(shape.dims()).status());
  return OutTypes{{DType::kF32, shape}};
}

// `skip`: between neighbours of an n-gram. At a gap of more than 0, n-grams of
// one member were counted already.
template <typename T>
void Count(const Grams& grams, const std::vector<T>& items, int64_t skip,
           float* y) {
  const auto size = static_cast<int64_t>(items.size());
  for (int64_t begin = 0; begin < size; ++begin) {
    size_t at = 0;
    int64_t i = begin;
    for (int64_t length = 1; length <= grams.max_length && i < size;
         ++length, i += skip + 1) {
      auto& next = NextOf(const_cast<TrieNode&>(grams.nodes[at]),
                          items[static_cast<size_t>(i)]);
      const auto found = next.find(items[static_cast<size_t>(i)]);
      if (found == next.end()) break;
      at = found->second;
      const int64_t place = grams.nodes[at].place;
      if (place < 0 || (length == 1 && skip > 0)) continue;
      y[(*grams.columns)[static_cast<size_t>(place)]] += 1;
    }
  }
}

template <typename T>
void CountRow(const Grams& grams, const std::vector<T>& items, float* y) {
  for (int64_t skip = 0; skip <= grams.max_skip; ++skip) {
    if (skip > 0 && grams.max_length == 1) break;
    Count(grams, items, skip, y);
  }
  if (grams.mode == Grams::Mode::kTf) return;
  for (size_t i = 0; i < grams.columns->size(); ++i) {
    float& value = y[(*grams.columns)[i]];
    const auto weight = static_cast<float>((*grams.weights)[i]);
    if (value == 0) continue;
    value = grams.mode == Grams::Mode::kIdf ? weight : value * weight;
  }
}

Status Run(const Call& call, std::span<const Result> results, const Team&) {
  ASSIGN_OR_RETURN(Grams grams, ReadOptions(call.attrs()));
  const auto& begins = call.attrs().Ints("ngram_counts");
  const auto& texts = call.attrs().Texts("pool_strings");
  RETURN_IF_ERROR(texts.empty()
                      ? AddPool(call.attrs().Ints("pool_int64s"), begins, grams)
                      : AddPool(texts, begins, grams));
  const Arg& x = call.arg(0);
  float* y = results[0].data<float>();
  std::fill_n(y, results[0].num_elements(), 0.0f);
  const int64_t length = x.shape.back();
  const int64_t rows = x.shape.rank() == 2 ? x.shape[0] : 1;
  for (int64_t row = 0; row < rows; ++row) {
    float* to = y + row * grams.num_columns;
    const int64_t first = row * length;
    if (x.dtype == kString) {
      const auto* items = x.data<std::string_view>() + first;
      CountRow(grams, std::vector<std::string>(items, items + length), to);
    } else if (x.dtype == DType::kI64) {
      const auto* items = x.data<int64_t>() + first;
      CountRow(grams, std::vector<int64_t>(items, items + length), to);
    } else {
      const auto* items = x.data<int32_t>() + first;
      CountRow(grams, std::vector<int64_t>(items, items + length), to);
    }
  }
  return OkStatus();
}

bool HasTable(const RowView& node) {
  return node.has_rows(0) && node.shape(0).rank() == 2;
}

constexpr OpDef kOps[] = {
    {"TfIdfVectorizer",
     Infer,
     Run,
     Work::kWhole,
     {.strings = Strings::kTakes, .keeps_rows = HasTable}}};

}  // namespace

std::span<const OpDef> TextOps() { return kOps; }

}  // namespace millrace::models::graph
