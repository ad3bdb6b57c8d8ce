// sigwait instead of a handler: nothing here runs in signal context, so the
// second signal's thread may call what it likes.
#include "server/shutdown.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <thread>

namespace millrace::server {
namespace {

sigset_t StopSignals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  // A terminal that closes; who started this with nohup does not want to know.
  struct sigaction hangup {};
  sigaction(SIGHUP, nullptr, &hangup);
  if (hangup.sa_handler != SIG_IGN) sigaddset(&set, SIGHUP);
  return set;
}

}  // namespace

void BlockStopSignals() {
  const sigset_t set = StopSignals();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  signal(SIGPIPE, SIG_IGN);  // a vanished client is an error of its write
  signal(SIGXFSZ, SIG_IGN);  // so is a file that may not grow (ulimit -f)
}

int WaitForStopSignal() {
  const sigset_t set = StopSignals();
  int signal = 0;
  while (sigwait(&set, &signal) != 0) {
  }
  return signal;
}

void SendStopSignal() { kill(getpid(), SIGTERM); }

void ExitOnNextStopSignal() {
  // Lives until the process ends, on purpose: it is what may end it.
  std::thread([] { _exit(128 + WaitForStopSignal()); }).detach();
}

}  // namespace millrace::server
