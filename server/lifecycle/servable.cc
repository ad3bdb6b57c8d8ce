#include "server/lifecycle/servable.h"

#include <algorithm>

namespace millrace::server {

bool Servable::IsNamed(std::string_view name) const {
  return facts_.id == name ||
         std::find(facts_.aliases.begin(), facts_.aliases.end(), name) !=
             facts_.aliases.end();
}

}  // namespace millrace::server
