#include "models/graph/attrs.h"

#include <algorithm>

#include "models/graph/fused_params.h"

namespace millrace::models::graph {
namespace {

template <typename T>
const T& ListOr(const AttrValue* value) {
  static const T kEmpty;
  const T* list = value != nullptr ? std::get_if<T>(value) : nullptr;
  return list != nullptr ? *list : kEmpty;
}

}  // namespace

Attrs::Attrs(
    std::initializer_list<std::pair<std::string_view, AttrValue>> rows) {
  for (const auto& [name, value] : rows) Set(name, value);
}

bool Attrs::operator==(const Attrs& other) const {
  const bool same =
      fused_ == other.fused_ || (fused_ != nullptr && other.fused_ != nullptr &&
                                 *fused_ == *other.fused_);
  return same && rows_ == other.rows_;
}

void Attrs::Set(std::string_view name, AttrValue value) {
  Erase(name);
  rows_.emplace_back(name, std::move(value));
}

void Attrs::Erase(std::string_view name) {
  std::erase_if(rows_, [&](const auto& row) { return row.first == name; });
}

const AttrValue* Attrs::Find(std::string_view name) const {
  const auto row = std::find_if(rows_.begin(), rows_.end(),
                                [&](const auto& r) { return r.first == name; });
  return row != rows_.end() ? &row->second : nullptr;
}

int64_t Attrs::Int(std::string_view name, int64_t otherwise) const {
  const AttrValue* value = Find(name);
  const auto* number = value ? std::get_if<int64_t>(value) : nullptr;
  return number != nullptr ? *number : otherwise;
}

double Attrs::Float(std::string_view name, double otherwise) const {
  const AttrValue* value = Find(name);
  const auto* number = value ? std::get_if<double>(value) : nullptr;
  return number != nullptr ? *number : otherwise;
}

std::string_view Attrs::Text(std::string_view name,
                             std::string_view otherwise) const {
  const AttrValue* value = Find(name);
  const auto* text = value ? std::get_if<std::string>(value) : nullptr;
  return text != nullptr ? std::string_view(*text) : otherwise;
}

const std::vector<int64_t>& Attrs::Ints(std::string_view name) const {
  return ListOr<std::vector<int64_t>>(Find(name));
}
const std::vector<double>& Attrs::Floats(std::string_view name) const {
  return ListOr<std::vector<double>>(Find(name));
}
const std::vector<std::string>& Attrs::Texts(std::string_view name) const {
  return ListOr<std::vector<std::string>>(Find(name));
}

}  // namespace millrace::models::graph
