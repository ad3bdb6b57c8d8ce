#include "models/graph/pt2/aten.h"

#include <unordered_map>

namespace millrace::models::graph::pt2 {
namespace {

constexpr std::span<const AtenOp> (*kFamilies[])() = {
    BinaryRows, CompareRows, UnaryRows,   ViewRows,      PartRows,
    CreateRows, ReduceRows,  MatMulRows,  ConvRows,      ImageRows,
    NormRows,   IndexRows,   ArrangeRows, RecurrentRows, SymbolRows,
};

}  // namespace

const AtenOp* FindAten(std::string_view target) {
  static const auto* const kByName = [] {
    auto* index = new std::unordered_map<std::string_view, const AtenOp*>();
    for (const auto family : kFamilies) {
      for (const AtenOp& op : family()) {
        CHECK(index->emplace(op.name, &op).second, "two rows of one name");
      }
    }
    return index;
  }();
  const auto found = kByName->find(target);
  return found != kByName->end() ? found->second : nullptr;
}

}  // namespace millrace::models::graph::pt2
