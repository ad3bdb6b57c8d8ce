// What the ranks of a group tell each other while they load a model: a rank
// that fails is heard by all, who then fail with its words, and sizes that
// hosts choose by their memory become the least of all.
//
//   ASSIGN_OR_RETURN(const std::string device, DeviceOfRank(names, group));
//   GroupLoad ranks(group);
//   ... RETURN_IF_ERROR(ranks.Agree(same, &kv, &key));   // in the load, once
//   RETURN_IF_ERROR(ranks.End(status));                  // whatever happened
//
// Loading thread only.
#pragma once

#include <string>

#include "config/base/status.h"
#include "models/group/group.h"
#include "models/llm/device.h"
#include "models/llm/kv_plan.h"

namespace millrace::models {

// The one of a rank, as OpenDevice takes it: "cpu", or of several GPUs
// ("cuda:2,cuda:3") as many as the machine has ranks at least, the one with the
// rank's number on its machine; of "cuda" and "cuda:all" the GPU of that
// number. INVALID_ARGUMENT for other names.
StatusOr<std::string> DeviceOfRank(const std::string& names,
                                   const Group& group);

class GroupLoad {
 public:
  explicit GroupLoad(Group& group) : group_(group) {}

  // FAILED_PRECONDITION at every rank where `same` is not the same at all.
  // `key` becomes that of rank 0.
  Status Agree(const std::string& same, KvPlan* kv, GroupKey* key);
  // `own`: how the load ended here. The first failure of all ranks. UNAVAILABLE
  // comes back at once: the group is broken.
  Status End(const Status& own);

 private:
  struct Words;
  Status Meet(const Status& own, const std::string& same, KvPlan* kv,
              GroupKey* key);

  Group& group_;
  bool failed_ = false;  // and all ranks know it
};

}  // namespace millrace::models
