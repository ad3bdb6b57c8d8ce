// Filters over lists. Sorting ignores case unless asked otherwise, is stable,
// and stops with an error when two items have no order.
#include <algorithm>

#include "models/text/jinja/builtins.h"
#include "models/text/jinja/interpreter.h"
#include "models/text/jinja/operators.h"
#include "models/text/jinja/print.h"
#include "models/text/jinja/text_ops.h"

namespace millrace::models::jinja {
namespace {

using Kind = Value::Kind;

Value IgnoreCase(const Value& value) {
  return value.IsString() ? Value::String(Lower(value.text())) : value;
}

// What a value is sorted or grouped by: its attribute, if one is named.
StatusOr<Value> KeyOf(Runtime& runtime, const Value& value,
                      const Value* attribute, const Value* otherwise,
                      bool case_sensitive) {
  Value key = value;
  if (attribute != nullptr && !attribute->IsNone()) {
    ASSIGN_OR_RETURN(key, GetPath(runtime, value, *attribute, otherwise));
  }
  return case_sensitive ? key : IgnoreCase(key);
}

struct Keyed {
  Value key;
  Value value;
};

// Stable; the first error of a comparison ends up in the result.
Status Sort(Runtime& runtime, std::vector<Keyed>& items, bool reverse) {
  Status status;
  std::vector<size_t> order(items.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  // Merge sort by hand: a comparison that fails must not confuse std::sort.
  std::vector<size_t> other(order.size());
  for (size_t width = 1; width < order.size(); width *= 2) {
    for (size_t low = 0; low < order.size(); low += 2 * width) {
      const size_t middle = std::min(low + width, order.size());
      const size_t high = std::min(low + 2 * width, order.size());
      size_t left = low, right = middle;
      for (size_t out = low; out < high; ++out) {
        bool take_right = left == middle;
        if (left < middle && right < high) {
          ASSIGN_OR_RETURN(const int sign,
                           Compare(runtime, items[order[right]].key,
                                   items[order[left]].key));
          take_right = reverse ? sign > 0 : sign < 0;
        }
        other[out] = order[take_right ? right++ : left++];
      }
    }
    order.swap(other);
  }
  std::vector<Keyed> sorted;
  sorted.reserve(items.size());
  for (const size_t i : order) sorted.push_back(std::move(items[i]));
  items = std::move(sorted);
  return status;
}

StatusOr<Value> Chunks(Runtime& runtime, std::vector<std::vector<Value>> rows) {
  std::vector<Value> out;
  for (std::vector<Value>& row : rows) {
    ASSIGN_OR_RETURN(Value list,
                     runtime.MakeItems(Kind::kList, std::move(row)));
    out.push_back(std::move(list));
  }
  return runtime.MakeItems(Kind::kGenerator, std::move(out));
}

StatusOr<Value> Batch(Runtime& runtime, const Value& self, const Args& args) {
  ASSIGN_OR_RETURN(const Params params,
                   Params::Bind(args, {"linecount", "fill_with"}, 1));
  ASSIGN_OR_RETURN(const int64_t size, params.Int(0, 1));
  if (size < 1) return InvalidArgument("linecount must be above zero");
  ASSIGN_OR_RETURN(std::vector<Value> items, Iterate(runtime, self));
  std::vector<std::vector<Value>> rows;
  for (Value& item : items) {
    if (rows.empty() || static_cast<int64_t>(rows.back().size()) == size) {
      rows.emplace_back();
    }
    rows.back().push_back(std::move(item));
  }
  if (params.Has(1) && !params[1].IsNone() && !rows.empty()) {
    RETURN_IF_ERROR(runtime.Make(size * static_cast<int64_t>(sizeof(Value))));
    rows.back().resize(static_cast<size_t>(size), params[1]);
  }
  return Chunks(runtime, std::move(rows));
}

StatusOr<Value> SliceFilter(Runtime& runtime, const Value& self,
                            const Args& args) {
  ASSIGN_OR_RETURN(const Params params,
                   Params::Bind(args, {"slices", "fill_with"}, 1));
  ASSIGN_OR_RETURN(const int64_t slices, params.Int(0, 1));
  if (slices < 1) return InvalidArgument("slices must be above zero");
  ASSIGN_OR_RETURN(const std::vector<Value> items, Iterate(runtime, self));
  RETURN_IF_ERROR(runtime.Make(slices * static_cast<int64_t>(sizeof(Value))));
  const size_t count = static_cast<size_t>(slices);
  const size_t each = items.size() / count, longer = items.size() % count;
  std::vector<std::vector<Value>> rows;
  size_t at = 0;
  for (size_t i = 0; i < count; ++i) {
    const size_t size = each + (i < longer ? 1 : 0);
    rows.emplace_back(items.begin() + static_cast<ptrdiff_t>(at),
                      items.begin() + static_cast<ptrdiff_t>(at + size));
    at += size;
    if (params.Has(1) && !params[1].IsNone() && i >= longer) {
      rows.back().push_back(params[1]);
    }
  }
  return Chunks(runtime, std::move(rows));
}

StatusOr<Value> DictSort(Runtime& runtime, const Value& self,
                         const Args& args) {
  ASSIGN_OR_RETURN(const Params params,
                   Params::Bind(args, {"case_sensitive", "by", "reverse"}));
  ASSIGN_OR_RETURN(const Text by, params.String(1, "key"));
  if (by.bytes() != "key" && by.bytes() != "value") {
    return InvalidArgument("you can only sort by either \"key\" or \"value\"");
  }
  if (!self.IsDict()) return InvalidArgument("needs a dict");
  std::vector<Keyed> items;
  for (const auto& [key, value] : self.dict().entries()) {
    const Value& sorted = by.bytes() == "key" ? key : value;
    ASSIGN_OR_RETURN(Value pair, runtime.MakeItems(Kind::kTuple, {key, value}));
    items.push_back(
        {params.Flag(0, false) ? sorted : IgnoreCase(sorted), std::move(pair)});
  }
  RETURN_IF_ERROR(Sort(runtime, items, params.Flag(2, false)));
  std::vector<Value> out;
  for (Keyed& item : items) out.push_back(std::move(item.value));
  return runtime.MakeItems(Kind::kList, std::move(out));
}

StatusOr<Value> SortFilter(Runtime& runtime, const Value& self,
                           const Args& args) {
  ASSIGN_OR_RETURN(
      const Params params,
      Params::Bind(args, {"reverse", "case_sensitive", "attribute"}));
  const bool case_sensitive = params.Flag(1, false);
  ASSIGN_OR_RETURN(std::vector<Value> values, Iterate(runtime, self));
  // "a,b" sorts by a, and by b where a is the same.
  std::vector<Value> paths;
  if (params.Has(2) && params[2].IsString()) {
    for (Text& path : Split(params[2].text(), ",", -1, false)) {
      paths.push_back(Value::String(std::move(path)));
    }
  }
  std::vector<Keyed> items;
  for (Value& value : values) {
    Value key;
    if (paths.size() > 1) {
      std::vector<Value> keys;
      for (const Value& path : paths) {
        ASSIGN_OR_RETURN(Value part,
                         KeyOf(runtime, value, &path, nullptr, case_sensitive));
        keys.push_back(std::move(part));
      }
      ASSIGN_OR_RETURN(key, runtime.MakeItems(Kind::kTuple, std::move(keys)));
    } else {
      ASSIGN_OR_RETURN(
          key, KeyOf(runtime, value, params.Has(2) ? &params[2] : nullptr,
                     nullptr, case_sensitive));
    }
    items.push_back({std::move(key), std::move(value)});
  }
  RETURN_IF_ERROR(Sort(runtime, items, params.Flag(0, false)));
  std::vector<Value> out;
  for (Keyed& item : items) out.push_back(std::move(item.value));
  return runtime.MakeItems(Kind::kList, std::move(out));
}

StatusOr<Value> GroupBy(Runtime& runtime, const Value& self, const Args& args) {
  ASSIGN_OR_RETURN(
      const Params params,
      Params::Bind(args, {"attribute", "default", "case_sensitive"}, 1));
  const bool case_sensitive = params.Flag(2, false);
  const Value* otherwise = params.Has(1) ? &params[1] : nullptr;
  ASSIGN_OR_RETURN(std::vector<Value> values, Iterate(runtime, self));
  std::vector<Keyed> items;
  for (Value& value : values) {
    ASSIGN_OR_RETURN(Value key, KeyOf(runtime, value, &params[0], otherwise,
                                      case_sensitive));
    items.push_back({std::move(key), std::move(value)});
  }
  RETURN_IF_ERROR(Sort(runtime, items, false));
  std::vector<Value> out;
  for (size_t begin = 0; begin < items.size();) {
    // The group shows the key of its first item as it is written there.
    ASSIGN_OR_RETURN(Value shown, KeyOf(runtime, items[begin].value, &params[0],
                                        otherwise, true));
    std::vector<Value> group;
    size_t end = begin;
    for (; end < items.size(); ++end) {
      ASSIGN_OR_RETURN(const bool same,
                       Equal(runtime, items[begin].key, items[end].key));
      if (!same) break;
      group.push_back(items[end].value);
    }
    ASSIGN_OR_RETURN(Value list,
                     runtime.MakeItems(Kind::kList, std::move(group)));
    ASSIGN_OR_RETURN(
        Value pair,
        runtime.MakeItems(Kind::kTuple, {std::move(shown), std::move(list)},
                          "group"));
    out.push_back(std::move(pair));
    begin = end;
  }
  return runtime.MakeItems(Kind::kList, std::move(out));
}

StatusOr<Value> First(Runtime& runtime, const Value& self, const Args& args) {
  RETURN_IF_ERROR(Params::Bind(args, {}).status());
  ASSIGN_OR_RETURN(const std::vector<Value> items, Iterate(runtime, self));
  if (!items.empty()) return items.front();
  return Value::Undefined("No first item, sequence was empty.");
}

StatusOr<Value> Last(Runtime& runtime, const Value& self, const Args& args) {
  RETURN_IF_ERROR(Params::Bind(args, {}).status());
  if (self.Is(Kind::kGenerator)) {
    return InvalidArgument("'generator' object is not reversible");
  }
  ASSIGN_OR_RETURN(const std::vector<Value> items, Iterate(runtime, self));
  if (!items.empty()) return items.back();
  return Value::Undefined("No last item, sequence was empty.");
}

StatusOr<Value> ItemsFilter(Runtime& runtime, const Value& self,
                            const Args& args) {
  RETURN_IF_ERROR(Params::Bind(args, {}).status());
  if (!self.IsDict() && !self.IsUndefined()) {
    return InvalidArgument("Can only get item pairs from a mapping.");
  }
  std::vector<Value> out;
  if (self.IsDict()) {
    for (const auto& [key, value] : self.dict().entries()) {
      ASSIGN_OR_RETURN(Value pair,
                       runtime.MakeItems(Kind::kTuple, {key, value}));
      out.push_back(std::move(pair));
    }
  }
  return runtime.MakeItems(Kind::kGenerator, std::move(out));
}

StatusOr<Value> Join(Runtime& runtime, const Value& self, const Args& args) {
  ASSIGN_OR_RETURN(const Params params, Params::Bind(args, {"d", "attribute"}));
  Text separator;
  if (params.Has(0)) {
    ASSIGN_OR_RETURN(separator, ToText(runtime, params[0]));
  }
  ASSIGN_OR_RETURN(const std::vector<Value> items, Iterate(runtime, self));
  Text out;
  bool first = true;
  for (const Value& item : items) {
    ASSIGN_OR_RETURN(const Value part,
                     KeyOf(runtime, item, params.Has(1) ? &params[1] : nullptr,
                           nullptr, true));
    ASSIGN_OR_RETURN(const Text text, ToText(runtime, part));
    RETURN_IF_ERROR(
        runtime.Make(static_cast<int64_t>(text.size() + separator.size())));
    if (!first) out.Append(separator);
    first = false;
    out.Append(text);
  }
  return runtime.MakeString(std::move(out));
}

StatusOr<Value> LengthFilter(Runtime&, const Value& self, const Args& args) {
  RETURN_IF_ERROR(Params::Bind(args, {}).status());
  ASSIGN_OR_RETURN(const int64_t length, Length(self));
  return Value::Int(length);
}

StatusOr<Value> ListFilter(Runtime& runtime, const Value& self,
                           const Args& args) {
  RETURN_IF_ERROR(Params::Bind(args, {}).status());
  ASSIGN_OR_RETURN(std::vector<Value> items, Iterate(runtime, self));
  return runtime.MakeItems(Kind::kList, std::move(items));
}

StatusOr<Value> Extreme(Runtime& runtime, const Value& self, const Args& args,
                        int sign) {
  ASSIGN_OR_RETURN(const Params params,
                   Params::Bind(args, {"case_sensitive", "attribute"}));
  ASSIGN_OR_RETURN(const std::vector<Value> items, Iterate(runtime, self));
  if (items.empty()) {
    return Value::Undefined("No aggregated item, sequence was empty.");
  }
  const Value* attribute = params.Has(1) ? &params[1] : nullptr;
  size_t best = 0;
  Value best_key;
  for (size_t i = 0; i < items.size(); ++i) {
    ASSIGN_OR_RETURN(Value key, KeyOf(runtime, items[i], attribute, nullptr,
                                      params.Flag(0, false)));
    if (i > 0) {
      ASSIGN_OR_RETURN(const int order, Compare(runtime, key, best_key));
      if (order * sign <= 0) continue;
    }
    best = i;
    best_key = std::move(key);
  }
  return items[best];
}

StatusOr<Value> Max(Runtime& runtime, const Value& self, const Args& args) {
  return Extreme(runtime, self, args, 1);
}

StatusOr<Value> Min(Runtime& runtime, const Value& self, const Args& args) {
  return Extreme(runtime, self, args, -1);
}

StatusOr<Value> Reverse(Runtime& runtime, const Value& self, const Args& args) {
  RETURN_IF_ERROR(Params::Bind(args, {}).status());
  if (self.IsString()) {
    return GetSlice(runtime, self, Value::None(), Value::None(),
                    Value::Int(-1));
  }
  ASSIGN_OR_RETURN(std::vector<Value> items, Iterate(runtime, self));
  std::reverse(items.begin(), items.end());
  return runtime.MakeItems(Kind::kGenerator, std::move(items));
}

StatusOr<Value> Sum(Runtime& runtime, const Value& self, const Args& args) {
  ASSIGN_OR_RETURN(const Params params,
                   Params::Bind(args, {"attribute", "start"}));
  ASSIGN_OR_RETURN(const std::vector<Value> items, Iterate(runtime, self));
  Value out = params.Has(1) ? params[1] : Value::Int(0);
  if (out.IsString()) return InvalidArgument("sum() can't sum strings");
  for (const Value& item : items) {
    ASSIGN_OR_RETURN(const Value part,
                     KeyOf(runtime, item, params.Has(0) ? &params[0] : nullptr,
                           nullptr, true));
    ASSIGN_OR_RETURN(out,
                     Arithmetic(runtime, Operator::kAdd, std::move(out), part));
  }
  return out;
}

StatusOr<Value> Unique(Runtime& runtime, const Value& self, const Args& args) {
  ASSIGN_OR_RETURN(const Params params,
                   Params::Bind(args, {"case_sensitive", "attribute"}));
  ASSIGN_OR_RETURN(const std::vector<Value> items, Iterate(runtime, self));
  Dict seen;
  std::vector<Value> out;
  for (const Value& item : items) {
    ASSIGN_OR_RETURN(Value key,
                     KeyOf(runtime, item, params.Has(1) ? &params[1] : nullptr,
                           nullptr, params.Flag(0, false)));
    if (!Dict::Hashable(key)) {
      return InvalidArgument("unhashable type: '" +
                             std::string(key.TypeName()) + "'");
    }
    // Keys that are no strings are looked for one by one.
    RETURN_IF_ERROR(runtime.Step(
        key.IsString() ? 1 : 1 + static_cast<int64_t>(seen.size() / 8)));
    if (seen.Find(key) != nullptr) continue;
    seen.Set(std::move(key), Value());
    out.push_back(item);
  }
  return runtime.MakeItems(Kind::kGenerator, std::move(out));
}

constexpr Builtin kFilters[] = {
    {"batch", Batch},
    {"count", LengthFilter},
    {"dictsort", DictSort},
    {"first", First},
    {"groupby", GroupBy},
    {"items", ItemsFilter},
    {"join", Join},
    {"last", Last},
    {"length", LengthFilter},
    {"list", ListFilter},
    {"max", Max},
    {"min", Min},
    {"reverse", Reverse},
    {"slice", SliceFilter},
    {"sort", SortFilter},
    {"sum", Sum},
    {"unique", Unique},
};

}  // namespace

std::span<const Builtin> ListFilters() { return kFilters; }

}  // namespace millrace::models::jinja
