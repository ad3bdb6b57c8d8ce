// A rank that fails before the others agree says so in their agreement: all
// meetings have one form.
#include "models/llm/group_load.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "models/gpu/cuda_context.h"

namespace millrace::models {

StatusOr<std::string> DeviceOfRank(const std::string& names,
                                   const Group& group) {
  if (names == "cpu") return names;
  const int32_t local = group.local_rank();
  if (names == "cuda" || names == "cuda:all") {
    return "cuda:" + std::to_string(local);
  }
  std::vector<int32_t> gpus;
  for (size_t begin = 0; begin <= names.size();) {
    const size_t end = std::min(names.find(',', begin), names.size());
    const std::string name = names.substr(begin, end - begin);
    begin = end + 1;
    ASSIGN_OR_RETURN(const int32_t gpu, CudaOrdinal(name));
    if (std::ranges::find(gpus, gpu) != gpus.end()) {
      return InvalidArgument("device names cuda:" + std::to_string(gpu) +
                             " twice; name another GPU for each rank")
          .At("device");
    }
    gpus.push_back(gpu);
  }
  const auto count = static_cast<int32_t>(gpus.size());
  if (count < group.local_size()) {
    return InvalidArgument("device names " + std::to_string(count) +
                           (count == 1 ? " GPU" : " GPUs") + ", but " +
                           std::to_string(group.local_size()) +
                           " ranks run on this machine; name one for each, or "
                           "say cuda: each takes the GPU of its number")
        .At("device");
  }
  return "cuda:" + std::to_string(gpus[static_cast<size_t>(local)]);
}

struct GroupLoad::Words {
  int32_t code;  // of StatusCode; 0: no failure
  int32_t num_pages;
  int32_t max_context;
  GroupKey key;    // of rank 0
  char text[884];  // of the failure, or what must be the same

  std::string Text() const { return {text, strnlen(text, sizeof text)}; }
};

Status GroupLoad::Agree(const std::string& same, KvPlan* kv, GroupKey* key) {
  return Meet(OkStatus(), same, kv, key);
}

Status GroupLoad::End(const Status& own) {
  if (failed_ || own.code() == StatusCode::kUnavailable) return own;
  KvPlan unused{};
  GroupKey key{};
  return Meet(own, "", &unused, &key);
}

Status GroupLoad::Meet(const Status& own, const std::string& same, KvPlan* kv,
                       GroupKey* key) {
  Words words{};
  words.code = static_cast<int32_t>(own.code());
  words.num_pages = kv->num_pages;
  words.max_context = kv->max_context;
  words.key = *key;
  const std::string text = own.ok() ? same : std::string(own.message());
  std::copy_n(text.begin(), std::min(text.size(), sizeof words.text),
              words.text);
  std::vector<Words> all(static_cast<size_t>(group_.size()));
  failed_ = true;  // unless all goes well
  RETURN_IF_ERROR(group_.AllGather(std::as_bytes(std::span(&words, 1)),
                                   std::as_writable_bytes(std::span(all)),
                                   Patience::kIdle));
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].code == 0) continue;
    // Where all ranks find the same fault, one reports it as if it were alone.
    if (rank == 0) {
      return Status(static_cast<StatusCode>(all[rank].code), all[rank].Text());
    }
    return Status(static_cast<StatusCode>(all[rank].code),
                  "rank " + std::to_string(rank) + ": " + all[rank].Text());
  }
  for (size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank].Text() == all[0].Text()) continue;
    return FailedPrecondition(
        "rank " + std::to_string(rank) +
        " loads another model than rank 0 or "
        "in another way (" +
        all[rank].Text() + " instead of " + all[0].Text() +
        "); give all ranks one file and the same settings, --isa among them");
  }
  for (const Words& each : all) {
    kv->num_pages = std::min(kv->num_pages, each.num_pages);
    kv->max_context = std::min(kv->max_context, each.max_context);
  }
  *key = all.front().key;
  failed_ = false;
  return OkStatus();
}

}  // namespace millrace::models
