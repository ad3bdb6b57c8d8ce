// What the ranks of a group tell each other while they load a model: a rank
// that fails is heard by all, who then fail with its words, and sizes that
// hosts choose by their memory become the least of all.
//
//   GroupLoad ranks(group);
//   ... RETURN_IF_ERROR(ranks.Agree(same, &kv));   // within the load, once
//   RETURN_IF_ERROR(ranks.End(status));            // once, whatever happened
//
// Loading thread only.
#pragma once

#include <string>

#include "config/base/status.h"
#include "models/group/group.h"
#include "models/llm/kv_plan.h"

namespace millrace::models {

class GroupLoad {
 public:
  explicit GroupLoad(Group& group) : group_(group) {}

  // FAILED_PRECONDITION at every rank where `same` is not the same at all.
  Status Agree(const std::string& same, KvPlan* kv);
  // `own`: how the load ended here. The first failure of all ranks.
  Status End(const Status& own);

 private:
  struct Words;
  Status Meet(const Status& own, const std::string& same, KvPlan* kv);

  Group& group_;
  bool failed_ = false;  // and all ranks know it
};

}  // namespace millrace::models
