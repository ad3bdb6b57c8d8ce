// An allocation that fails becomes an error of the request that needed it. For
// work whose size a client chooses, on threads where nothing else would catch
// what the standard library throws.
//
//   Status status = CatchOutOfMemory([&] { return step.Run(slots, team); });
#pragma once

#include <new>
#include <stdexcept>

#include "config/base/status.h"

namespace millrace {

// UNAVAILABLE: other requests may end and give memory back.
inline Status OutOfMemory() {
  return Unavailable(
      "the server has no memory for this request; send fewer rows or smaller "
      "inputs, or try again later");
}

// What `work` returns, a Status or a StatusOr.
template <typename Work>
auto CatchOutOfMemory(const Work& work) -> decltype(work()) {
  try {
    return work();
  } catch (const std::bad_alloc&) {
    return OutOfMemory();
  } catch (const std::length_error&) {  // more than a vector can ever hold
    return OutOfMemory();
  }
}

}  // namespace millrace
