#include "models/graph/string_types.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "models/tensor/strings.h"

namespace millrace::models::graph {
namespace {

constexpr size_t kChunkBytes = size_t{16} << 10;

}  // namespace

StatusOr<std::vector<ValueType>> InferTypes(const Call& call) {
  const OpDef& op = *call.node.op;
  const auto is_string = [](const auto& each) { return each.dtype == kString; };
  const bool takes = op.facts.strings != Strings::kNone;
  const bool meets = std::any_of(call.args.begin(), call.args.end(), is_string);
  if (meets && !takes) {
    return Unimplemented(std::string(op.name) + " does not take strings");
  }
  auto types = op.infer(call);
  if (types.ok() && std::any_of(types->begin(), types->end(), is_string) &&
      !takes) {
    return Unimplemented(std::string(op.name) + " does not make strings");
  }
  return types;
}

StatusOr<char*> StringStore::Allocate(size_t size) {
  if (size > left_) {
    const size_t chunk = std::max(size, kChunkBytes);
    if (static_cast<int64_t>(chunk) > kMaxBytes - bytes_) {
      return ResourceExhausted("the strings that a node makes take more than " +
                               std::to_string(kMaxBytes >> 20) +
                               " MiB; send fewer rows at a time");
    }
    chunks_.push_back(std::make_unique<char[]>(chunk));
    bytes_ += static_cast<int64_t>(chunk);
    next_ = chunks_.back().get();
    left_ = chunk;
  }
  char* const made = next_;
  next_ += size;
  left_ -= size;
  return made;
}

StatusOr<std::string_view> StringStore::Keep(std::string_view text) {
  if (text.empty()) return std::string_view();
  ASSIGN_OR_RETURN(char* const to, Allocate(text.size()));
  std::memcpy(to, text.data(), text.size());
  return std::string_view(to, text.size());
}

Arg StoreArg(StringStore* store) {
  return {false, kString, {}, reinterpret_cast<const std::byte*>(store)};
}

StringStore& StoreOf(const Call& call) {
  return *reinterpret_cast<StringStore*>(
      const_cast<std::byte*>(call.args.back().bytes));
}

}  // namespace millrace::models::graph
