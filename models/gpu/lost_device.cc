#include "models/gpu/lost_device.h"

#include <utility>

#include "config/base/mutex.h"

namespace millrace::models {
namespace {

struct Listener {
  Mutex mu;  // held while it is called
  std::function<void(const Status&)> act GUARDED_BY(mu);
};

Listener& TheListener() {
  static Listener listener;
  return listener;
}

}  // namespace

void OnDeviceLost(std::function<void(const Status&)> act) {
  Listener& listener = TheListener();
  MutexLock lock(listener.mu);
  listener.act = std::move(act);
}

void TellDeviceLost(const Status& status) {
  Listener& listener = TheListener();
  MutexLock lock(listener.mu);
  if (const auto act = std::exchange(listener.act, nullptr)) act(status);
}

}  // namespace millrace::models
