// The process of an external handler: started in a group of its own with the
// socket as file descriptor 3 and the shared memory as 4, ended with the
// object.
//
// One thread at a time.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "config/base/status.h"

namespace millrace::handlers {

struct ProcessOptions {
  std::vector<std::string> command;
  std::map<std::string, std::string> environment;  // beside the server's own
  std::string folder;                              // it runs in
  int memory_fd = -1;                              // lent
};

class HandlerProcess {
 public:
  static StatusOr<HandlerProcess> Start(const ProcessOptions& options);
  ~HandlerProcess();
  HandlerProcess(HandlerProcess&& other) noexcept;
  HandlerProcess& operator=(HandlerProcess&&) = delete;

  int socket() const { return socket_; }  // not blocking
  int output() const { return output_; }  // its stdout and stderr; the same
  pid_t pid() const { return pid_; }
  // Empty while it runs, else how it ended: "exited with code 1".
  std::string HowEnded();
  // In memory now; 0 when that is not known.
  int64_t ResidentBytes() const;
  // With everything in its group.
  void Kill();

 private:
  HandlerProcess() = default;

  pid_t pid_ = -1;
  int socket_ = -1;
  int output_ = -1;
  bool ended_ = false;
  std::string how_ended_;
};

}  // namespace millrace::handlers
