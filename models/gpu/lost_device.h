// A GPU that this process has lost: after an illegal address, a launch that
// took too long or a fault of the hardware, each call of CUDA fails until the
// process is started again (CUDA Runtime API, cudaError_t). Models cannot mend
// that, so what owns the process is told.
//
//   OnDeviceLost([&](const Status& status) { app.Fail(status); });
//
// Thread-safe.
#pragma once

#include <functional>

#include "config/base/status.h"

namespace millrace::models {

// Called once, at the first loss, on the thread that met it; null: nothing is.
// Of the process, as CUDA's state is. A call that runs has ended when this
// returns.
void OnDeviceLost(std::function<void(const Status&)> act);

void TellDeviceLost(const Status& status);

}  // namespace millrace::models
