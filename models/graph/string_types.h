// Which operators meet strings, and what makes new ones.
//
// Strings move through a graph as views; characters that an operator makes go
// to the store of the run. Only the interpreter has one: operators that make
// strings tell infer that they need the bytes of their operands, so graphs with
// such are interpreted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "config/base/status.h"
#include "models/graph/op.h"

namespace millrace::models::graph {

// What the operator infers; UNIMPLEMENTED where it would meet strings and is
// not made for them. All that infers types calls this.
StatusOr<std::vector<ValueType>> InferTypes(const Call& call);

// Characters that stay where they are until the store goes. One thread.
class StringStore {
 public:
  // What the strings of one node may take together.
  static constexpr int64_t kMaxBytes = int64_t{1} << 30;

  // Room for so many characters. RESOURCE_EXHAUSTED: beyond the limit.
  StatusOr<char*> Allocate(size_t size);
  // A copy of these.
  StatusOr<std::string_view> Keep(std::string_view text);

 private:
  std::vector<std::unique_ptr<char[]>> chunks_;
  size_t left_ = 0;  // of the last chunk
  char* next_ = nullptr;
  int64_t bytes_ = 0;
};

// The interpreter hands the store in behind the operands of a node.
Arg StoreArg(StringStore* store);
StringStore& StoreOf(const Call& call);

}  // namespace millrace::models::graph
