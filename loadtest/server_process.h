// A model server as a child process: started, waited for, and always ended.
//
//   ASSIGN_OR_RETURN(auto server, ServerProcess::Start(words, limit, stop));
//   ... server->http_port() ...
//
// The command must print the JSON log of `millrace serve --log-format json` on
// its standard error output. The child has a process group of its own, so that
// a Ctrl-C on the terminal reaches this program alone; it is killed when this
// program dies. Called by the main thread.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "config/base/status.h"

namespace millrace::loadtest {

// Words of a command line as a shell cuts them: blanks between words, '...'
// and "..." around blanks, \ before a character. Nothing is expanded.
StatusOr<std::vector<std::string>> SplitCommand(const std::string& text);

// Blocks SIGINT and SIGTERM in the calling thread while it lives, so that they
// are waited for instead.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  // Waits for at most `limit`; true from the first signal on.
  bool Wait(std::chrono::milliseconds limit);
  bool stopped() const { return stopped_; }
  void Stop() { stopped_ = true; }  // a signal came to another waiter

 private:
  sigset_t set_;
  sigset_t before_;
  bool stopped_ = false;
};

// What a command that ends by itself wrote to its standard output.
// FAILED_PRECONDITION, with its last line on standard error, when it fails or
// runs for more than ten seconds.
StatusOr<std::string> RunCommand(const std::vector<std::string>& words);

class ServerProcess {
 public:
  // Waits until the server says that it is ready. FAILED_PRECONDITION with the
  // server's own words when it ends before, DEADLINE_EXCEEDED after `limit`,
  // CANCELLED when a signal comes. No process is left in any of these cases.
  static StatusOr<std::unique_ptr<ServerProcess>> Start(
      const std::vector<std::string>& words, std::chrono::nanoseconds limit,
      StopSignals& stop);
  ~ServerProcess();  // SIGTERM, and SIGKILL after five seconds
  ServerProcess(const ServerProcess&) = delete;
  ServerProcess& operator=(const ServerProcess&) = delete;

  int http_port() const { return http_port_; }
  int grpc_port() const { return grpc_port_; }
  // OK while it runs; else a sentence that says how it ended.
  Status Running();

 private:
  ServerProcess(pid_t pid, int log) : pid_(pid), log_(log) {}

  bool SeesReady();
  std::string LastWords() const;

  const pid_t pid_;
  const int log_;  // a file in memory with what the server printed
  int64_t log_read_ = 0;
  std::string log_rest_;
  int http_port_ = 0;
  int grpc_port_ = 0;
  bool ended_ = false;
  int wait_status_ = 0;
};

}  // namespace millrace::loadtest
