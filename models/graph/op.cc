#include "models/graph/op.h"

#include <unordered_map>

#include "models/graph/ops/op_groups.h"
#include "models/graph/ops/tabular.h"

namespace millrace::models::graph {
namespace {

constexpr std::string_view kNeedsBytes = "needs_bytes";

}  // namespace

const Arg& Call::arg(size_t i) const {
  static const Arg kAbsent;
  return i < args.size() ? args[i] : kAbsent;
}

std::pair<int64_t, int64_t> Team::Share(int64_t n, int64_t unit) const {
  const int64_t units = (n + unit - 1) / unit;
  const int64_t begin = units * index / count * unit;
  const int64_t end = units * (index + 1) / count * unit;
  return {begin < n ? begin : n, end < n ? end : n};
}

const OpDef* FindOp(std::string_view name) {
  static const auto* const kByName = [] {
    auto* index = new std::unordered_map<std::string_view, const OpDef*>();
    for (const OpDef* op : AllOps()) {
      CHECK(index->emplace(op->name, op).second, "two operators of one name");
    }
    return index;
  }();
  const auto found = kByName->find(name);
  return found != kByName->end() ? found->second : nullptr;
}

std::vector<const OpDef*> AllOps() {
  std::vector<const OpDef*> all;
  for (const auto group : kOpGroups) {
    for (const OpDef& op : group()) all.push_back(&op);
  }
  for (const auto group : kTabularGroups) {
    for (const OpDef& op : group()) all.push_back(&op);
  }
  return all;
}

Status NeedsBytes(std::string_view what) {
  return FailedPrecondition("the value of " + std::string(what) +
                            " is not known before the graph runs")
      .Because(kNeedsBytes);
}

bool IsNeedsBytes(const Status& status) {
  return status.reason() == kNeedsBytes;
}

StatusOr<std::vector<int64_t>> IntsOf(const Arg& arg, std::string_view what) {
  if (!arg.given) {
    return InvalidArgument(std::string(what) + " is missing");
  }
  if (arg.shape.rank() > 1 ||
      (arg.dtype != DType::kI64 && arg.dtype != DType::kI32)) {
    return InvalidArgument(std::string(what) + " is " +
                           TypeText(arg.dtype, arg.shape) +
                           ", not a list of INT64 or INT32");
  }
  if (arg.bytes == nullptr) return NeedsBytes(what);
  const int64_t count = arg.num_elements();
  if (arg.dtype == DType::kI64) {
    return std::vector<int64_t>(arg.data<int64_t>(),
                                arg.data<int64_t>() + count);
  }
  return std::vector<int64_t>(arg.data<int32_t>(), arg.data<int32_t>() + count);
}

}  // namespace millrace::models::graph
