#include "tests/cuda_emulation/fake_cudnn_handles.h"

#include <chrono>
#include <map>
#include <mutex>
#include <thread>

namespace fake_cudnn {
namespace {

// Of a handle: whose call uses it now, and who set its stream last.
struct Users {
  std::thread::id now = {};
  std::thread::id of_stream = {};
};
std::mutex guard;
std::map<void*, Users> handles;

}  // namespace

void* NewHandle() {
  void* const handle = new int(0);
  const std::lock_guard lock(guard);
  handles.emplace(handle, Users());
  return handle;
}

bool DeleteHandle(void* handle) {
  const std::lock_guard lock(guard);
  if (handles.erase(handle) == 0) return false;
  delete static_cast<int*>(handle);
  return true;
}

bool IsHandle(void* handle) {
  const std::lock_guard lock(guard);
  return handles.contains(handle);
}

int NumHandles() {
  const std::lock_guard lock(guard);
  return static_cast<int>(handles.size());
}

Use::Use(void* handle, For what) : handle_(handle) {
  const std::lock_guard lock(guard);
  const auto found = handles.find(handle);
  if (found == handles.end()) return;
  Users& users = found->second;
  const std::thread::id self = std::this_thread::get_id();
  if (users.now != std::thread::id() ||
      (what == For::kExecution && users.of_stream != self)) {
    return;
  }
  users.now = self;
  if (what == For::kStream) users.of_stream = self;
  is_alone_ = true;
}

Use::~Use() {
  if (!is_alone_) return;
  // Time for another thread to come.
  std::this_thread::sleep_for(std::chrono::microseconds(20));
  const std::lock_guard lock(guard);
  const auto found = handles.find(handle_);
  if (found != handles.end()) found->second.now = {};
}

}  // namespace fake_cudnn
