#include "server/lifecycle/member_order.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace millrace::server {

std::vector<std::string> MembersFirst(
    std::vector<std::string> names,
    const std::function<std::vector<std::string>(const std::string&)>&
        steps_of) {
  std::map<std::string, std::vector<std::string>> steps;
  for (const std::string& name : names) {
    std::vector<std::string> of_name = steps_of(name);
    if (!of_name.empty()) steps[name] = std::move(of_name);
  }
  if (steps.empty()) return names;
  std::vector<std::string> ordered;
  std::set<std::string> seen;
  const std::function<void(const std::string&)> add =
      [&](const std::string& name) {
        if (!seen.insert(name).second) return;
        if (const auto at = steps.find(name); at != steps.end()) {
          for (const std::string& member : at->second) {
            if (std::binary_search(names.begin(), names.end(), member)) {
              add(member);
            }
          }
        }
        ordered.push_back(name);
      };
  for (const std::string& name : names) add(name);
  return ordered;
}

}  // namespace millrace::server
