#include "models/graph/pt2/aliases.h"

#include <utility>

namespace millrace::models::graph::pt2 {

void Aliases::Define(const std::string& name, ValueId value) {
  ids_[name] = static_cast<int32_t>(handles_.size());
  Handle handle;
  handle.name = name;
  handle.value = value;
  handle.memory = static_cast<int32_t>(versions_.size());
  handles_.push_back(std::move(handle));
  versions_.push_back(0);
}

void Aliases::Rename(const std::string& name, const std::string& of) {
  const int32_t id = ids_.at(of);
  ids_[name] = id;
}

void Aliases::DefineView(const std::string& name, ValueId value,
                         const std::string& of, const NodeSpec& node,
                         const AtenOp& op, size_t view) {
  Handle handle;
  handle.name = name;
  handle.value = value;
  handle.whole = ids_.at(of);
  handle.memory = At(handle.whole).memory;
  handle.version = Version(handle);
  handle.node = &node;
  handle.op = &op;
  handle.view = view;
  ids_[name] = static_cast<int32_t>(handles_.size());
  handles_.push_back(std::move(handle));
}

ValueId Aliases::Current(const std::string& name, const Remake& remake) {
  const auto found = ids_.find(name);
  return found == ids_.end() ? kNoValue : CurrentOf(found->second, remake);
}

// Wholes are older than their views: the recursion ends, and is as deep as
// views of views are nested; it is unrolled so that no file decides how deep.
ValueId Aliases::CurrentOf(int32_t id, const Remake& remake) {
  std::vector<int32_t> stale;
  for (int32_t at = id; At(at).version != Version(At(at));) {
    stale.push_back(at);
    at = At(at).whole;
    CHECK(at >= 0, "memory's owner is never stale");
  }
  for (; !stale.empty(); stale.pop_back()) {
    Handle& view = At(stale.back());
    if (view.version != Version(view)) remake(*view.node, *view.op);
  }
  return At(id).value;
}

void Aliases::Renew(const std::string& name, ValueId value) {
  const auto found = ids_.find(name);
  if (found == ids_.end()) return;
  Handle& handle = At(found->second);
  handle.value = value;
  handle.version = Version(handle);
}

Status Aliases::Write(const std::string& name, ValueId value,
                      const Remake& remake, const WriteBack& write_back) {
  // What is written to, from the handle up to the owner, as it is before.
  std::vector<int32_t> chain = {ids_.at(name)};
  while (At(chain.back()).whole >= 0) chain.push_back(At(chain.back()).whole);
  (void)CurrentOf(chain.front(), remake);
  for (const int32_t id : chain) (void)CurrentOf(id, remake);
  std::vector<ValueId> values = {value};
  for (size_t i = 0; i + 1 < chain.size(); ++i) {
    const Handle view = At(chain[i]);
    const ValueId whole =
        write_back(*view.node, *view.op, values.back(), view.view);
    if (whole == kNoValue) {
      return Unimplemented("it writes through '" + view.name +
                           "', a view made by " + view.node->target);
    }
    values.push_back(whole);
  }
  const int64_t version = ++Version(At(chain.front()));
  for (size_t i = 0; i < chain.size(); ++i) {
    At(chain[i]).value = values[i];
    At(chain[i]).version = version;
  }
  return OkStatus();
}

const std::string& Aliases::Owner(const std::string& name) const {
  int32_t id = ids_.at(name);
  while (handles_[static_cast<size_t>(id)].whole >= 0) {
    id = handles_[static_cast<size_t>(id)].whole;
  }
  return handles_[static_cast<size_t>(id)].name;
}

}  // namespace millrace::models::graph::pt2
