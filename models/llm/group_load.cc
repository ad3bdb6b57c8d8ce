// A rank that fails before the others agree says so in their agreement: all
// meetings have one form.
#include "models/llm/group_load.h"

#include <algorithm>
#include <cstring>
#include <vector>

namespace millrace::models {

struct GroupLoad::Words {
  int32_t code;  // of StatusCode; 0: no failure
  int32_t num_pages;
  int32_t max_context;
  char text[1012];  // of the failure, or what must be the same

  std::string Text() const { return {text, strnlen(text, sizeof text)}; }
};

Status GroupLoad::Agree(const std::string& same, KvPlan* kv) {
  return Meet(OkStatus(), same, kv);
}

Status GroupLoad::End(const Status& own) {
  if (failed_) return own;
  KvPlan unused{};
  return Meet(own, "", &unused);
}

Status GroupLoad::Meet(const Status& own, const std::string& same, KvPlan* kv) {
  Words words{};
  words.code = static_cast<int32_t>(own.code());
  words.num_pages = kv->num_pages;
  words.max_context = kv->max_context;
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
  failed_ = false;
  return OkStatus();
}

}  // namespace millrace::models
