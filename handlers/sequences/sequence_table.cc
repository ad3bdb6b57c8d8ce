#include "handlers/sequences/sequence_table.h"

#include <utility>

namespace millrace::handlers {

Sequence* SequenceTable::Find(const SequenceId& id) {
  const auto at = sequences_.find(id);
  return at == sequences_.end() ? nullptr : &at->second;
}

Sequence& SequenceTable::Add(const SequenceId& id, Clock::Time now) {
  Sequence& sequence = sequences_[id];
  sequence.last_use = now;
  sequence.place = by_use_.insert(by_use_.end(), id);
  return sequence;
}

void SequenceTable::Erase(const SequenceId& id) {
  const auto at = sequences_.find(id);
  if (at == sequences_.end()) return;
  state_bytes_ -= at->second.state_bytes;
  by_use_.erase(at->second.place);
  sequences_.erase(at);
}

void SequenceTable::Touch(Sequence& sequence, Clock::Time now) {
  sequence.last_use = now;
  by_use_.splice(by_use_.end(), by_use_, sequence.place);
}

void SequenceTable::SetStates(Sequence& sequence,
                              std::vector<models::Tensor> states) {
  state_bytes_ -= sequence.state_bytes;
  sequence.state_bytes = 0;
  for (const models::Tensor& state : states) {
    sequence.state_bytes += state.num_bytes();
  }
  state_bytes_ += sequence.state_bytes;
  sequence.states = std::move(states);
}

int64_t SequenceTable::EraseUnusedSince(Clock::Time time) {
  int64_t erased = 0;
  auto at = by_use_.begin();
  while (at != by_use_.end()) {
    const auto found = sequences_.find(*at);
    ++at;  // before the entry goes
    if (found->second.last_use > time) break;
    if (found->second.running || !found->second.waiting.empty()) continue;
    state_bytes_ -= found->second.state_bytes;
    by_use_.erase(found->second.place);
    sequences_.erase(found);
    ++erased;
  }
  return erased;
}

}  // namespace millrace::handlers
