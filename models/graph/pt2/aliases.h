// What names of the file hold, through changes in place.
//
// PyTorch's tensors are handles: several may look at one piece of memory
// (views), and a change through one is seen by all. Values of our graph never
// change. So every handle remembers its value as of some version of its memory;
// when the memory has moved on, a view is made anew from what it looks at, and
// a change through a view is carried up into what it looks at:
//
//   y = x[2:5];  y.fill_(0);  use(x)
//   →  y' = fill(y);  x' = SliceScatter(x, y');  use(x')
//
// One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

#include "models/graph/pt2/lowering.h"

namespace millrace::models::graph::pt2 {

class Aliases {
 public:
  // Lowers a view's node again and hands every output to Renew.
  using Remake = std::function<void(const NodeSpec&, const AtenOp&)>;
  // The whole with the view's part replaced.
  using WriteBack = std::function<ValueId(const NodeSpec&, const AtenOp&,
                                          ValueId part, size_t view)>;

  bool Has(const std::string& name) const { return ids_.contains(name); }
  // A tensor with memory of its own.
  void Define(const std::string& name, ValueId value);
  // The same handle under another name.
  void Rename(const std::string& name, const std::string& of);
  // A view of `of`, made by `node` as its result number `view`.
  void DefineView(const std::string& name, ValueId value, const std::string& of,
                  const NodeSpec& node, const AtenOp& op, size_t view);

  // The value now. kNoValue: there is no such name.
  ValueId Current(const std::string& name, const Remake& remake);
  // A value made anew by a Remake.
  void Renew(const std::string& name, ValueId value);
  // The handle's elements become `value`. UNIMPLEMENTED when it is a view
  // through which nothing can be written.
  Status Write(const std::string& name, ValueId value, const Remake& remake,
               const WriteBack& write_back);
  // The name of the tensor that owns the memory.
  const std::string& Owner(const std::string& name) const;

 private:
  struct Handle {
    std::string name;
    ValueId value = kNoValue;
    int32_t memory = 0;
    int64_t version = 0;  // of the memory, when `value` was made
    int32_t whole = -1;   // what a view looks at
    const NodeSpec* node = nullptr;
    const AtenOp* op = nullptr;
    size_t view = 0;
  };
  Handle& At(int32_t id) { return handles_[static_cast<size_t>(id)]; }
  int64_t& Version(const Handle& handle) {
    return versions_[static_cast<size_t>(handle.memory)];
  }
  ValueId CurrentOf(int32_t id, const Remake& remake);

  std::unordered_map<std::string, int32_t> ids_;
  std::vector<Handle> handles_;
  std::vector<int64_t> versions_;  // of each memory
};

}  // namespace millrace::models::graph::pt2
