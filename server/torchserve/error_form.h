// A status in TorchServe's words: the number of an HTTP answer and the name of
// an exception. REST writes both, gRPC the name. Pure functions.
#pragma once

#include <string_view>

#include "config/base/status.h"

namespace millrace::server::torchserve {

struct ErrorForm {
  int code = 500;
  std::string_view type;  // "ModelNotFoundException"
};

ErrorForm ErrorFormOf(const Status& status);

}  // namespace millrace::server::torchserve
