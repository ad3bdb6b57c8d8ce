#include "server/lifecycle/composite.h"

#include <algorithm>

namespace millrace::server {

Status ReadyOf(const Servable& servable) {
  const auto* composite = dynamic_cast<const Composite*>(&servable);
  return composite == nullptr ? OkStatus() : composite->Ready();
}

Status TakesOf(const Servable& servable) {
  const auto* composite = dynamic_cast<const Composite*>(&servable);
  return composite == nullptr ? OkStatus() : composite->Takes();
}

int DepthOf(const Servable& servable) {
  const auto* composite = dynamic_cast<const Composite*>(&servable);
  return composite == nullptr ? 0 : composite->depth();
}

std::vector<std::string> MembersOf(const Servable& servable) {
  const auto* composite = dynamic_cast<const Composite*>(&servable);
  return composite == nullptr ? std::vector<std::string>()
                              : composite->members();
}

bool DrainInOrder(std::vector<std::shared_ptr<Servable>> all,
                  std::chrono::steady_clock::time_point deadline) {
  std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) {
    return DepthOf(*a) > DepthOf(*b);
  });
  bool ended_by_themselves = true;
  for (auto begin = all.begin(); begin != all.end();) {
    const auto end = std::find_if(begin, all.end(), [&](const auto& each) {
      return DepthOf(*each) != DepthOf(**begin);
    });
    std::for_each(begin, end, [](const auto& each) { each->gate().Close(); });
    for (; begin != end; ++begin) {
      // A request between its handle and its place in the queue is refused
      // there; the rest runs on until the deadline.
      ended_by_themselves &= (*begin)->Drain(deadline);
      ended_by_themselves &= (*begin)->gate().WaitEmpty(deadline);
    }
  }
  return ended_by_themselves;
}

void TellReadiness(const std::vector<std::shared_ptr<Servable>>& serving,
                   std::vector<VersionStatus>* index) {
  for (size_t i = 0; i < serving.size(); ++i) {
    if (serving[i] == nullptr) continue;
    const Status ready = ReadyOf(*serving[i]);
    if (ready.ok()) continue;
    (*index)[i].state = VersionState::kUnavailable;
    (*index)[i].reason = std::string(ready.message());
  }
}

}  // namespace millrace::server
