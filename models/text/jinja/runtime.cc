// The budget. Memory is counted as it is made and never credited back: that
// bounds what lives at once and the time spent copying with one number.
#include "models/text/jinja/runtime.h"

#include <algorithm>

namespace millrace::models::jinja {
namespace {

constexpr int64_t kMadePerOutputByte = 8;
constexpr int kMaxValueDepth = 200;

}  // namespace

Runtime::Runtime(const ChatTemplate::Limits& limits, std::time_t now)
    : limits_(limits), now_(now) {}
Runtime::~Runtime() = default;

Status Runtime::Step(int64_t steps) {
  steps_ += steps;
  if (steps_ <= limits_.max_steps) return OkStatus();
  return InvalidArgument("the chat template takes more than " +
                         std::to_string(limits_.max_steps) + " steps");
}

Status Runtime::Make(int64_t bytes) {
  bytes_ += std::max<int64_t>(bytes, 0);
  const int64_t limit = limits_.max_output_bytes * kMadePerOutputByte;
  if (bytes_ <= limit) return OkStatus();
  return InvalidArgument("the chat template makes more than " +
                         std::to_string(limit) + " bytes of values");
}

StatusOr<Value> Runtime::MakeString(Text text) {
  RETURN_IF_ERROR(Make(static_cast<int64_t>(text.size())));
  return Value::String(std::move(text));
}

StatusOr<Value> Runtime::MakeItems(Value::Kind kind, std::vector<Value> items,
                                   std::string_view name) {
  RETURN_IF_ERROR(Make(static_cast<int64_t>(items.size() * sizeof(Value))));
  Value out = Value::Items(kind, std::move(items), name);
  if (out.depth() > kMaxValueDepth) {
    return InvalidArgument("lists and dicts are nested more than " +
                           std::to_string(kMaxValueDepth) + " deep");
  }
  return out;
}

StatusOr<Value> Runtime::MakeDict(Dict dict) {
  RETURN_IF_ERROR(
      Make(static_cast<int64_t>(dict.size() * sizeof(Dict::Entry))));
  if (dict.depth() > kMaxValueDepth) {
    return InvalidArgument("lists and dicts are nested more than " +
                           std::to_string(kMaxValueDepth) + " deep");
  }
  return Value::FromDict(std::move(dict));
}

Namespace* Runtime::NewNamespace() {
  return namespaces_.emplace_back(std::make_unique<Namespace>()).get();
}

StatusOr<Params> Params::Bind(const Args& args,
                              std::initializer_list<std::string_view> names,
                              size_t num_required) {
  Params out;
  out.names_ = names;
  out.values_.resize(names.size());
  if (args.positional.size() > names.size()) {
    return InvalidArgument("takes at most " + std::to_string(names.size()) +
                           " arguments, not " +
                           std::to_string(args.positional.size()));
  }
  for (size_t i = 0; i < args.positional.size(); ++i) {
    out.values_[i] = &args.positional[i];
  }
  for (const auto& [name, value] : args.named) {
    size_t i = 0;
    while (i < out.names_.size() && out.names_[i] != name) ++i;
    if (i == out.names_.size()) {
      return InvalidArgument("has no parameter '" + name + "'");
    }
    if (out.values_[i] != nullptr) {
      return InvalidArgument("got two values for '" + name + "'");
    }
    out.values_[i] = &value;
  }
  for (size_t i = 0; i < num_required; ++i) {
    if (out.values_[i] == nullptr) {
      return InvalidArgument("needs the argument '" +
                             std::string(out.names_[i]) + "'");
    }
  }
  return out;
}

StatusOr<int64_t> Params::Int(size_t i, int64_t otherwise) const {
  if (!Has(i)) return otherwise;
  const Value& value = *values_[i];
  if (!value.IsInteger() || value.integer() > INT32_MAX ||
      value.integer() < INT32_MIN) {
    return InvalidArgument("'" + std::string(names_[i]) +
                           "' must be a small integer, not " +
                           std::string(value.TypeName()));
  }
  return static_cast<int64_t>(value.integer());
}

StatusOr<Text> Params::String(size_t i, std::string_view otherwise) const {
  if (!Has(i)) return Text(std::string(otherwise), false);
  if (!values_[i]->IsString()) {
    return InvalidArgument("'" + std::string(names_[i]) +
                           "' must be a string, not " +
                           std::string(values_[i]->TypeName()));
  }
  return values_[i]->text();
}

}  // namespace millrace::models::jinja
