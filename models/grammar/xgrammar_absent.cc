// Stands in for xgrammar.cc in a build without the library.
#include "models/grammar/xgrammar.h"

namespace millrace::models {

StatusOr<std::shared_ptr<const Xgrammar>> Xgrammar::Open() {
  return FailedPrecondition("this program was built without xgrammar");
}

}  // namespace millrace::models
