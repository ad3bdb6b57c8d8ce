// The input is a file in memory, so that the child can never wait for us: only
// its output has to be read.
#include "models/grammar/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <thread>
#include <utility>

extern char** environ;

namespace millrace::models {
namespace {

using SteadyClock = std::chrono::steady_clock;

// Between two looks at a child that has closed its output, which is nearly
// always its last act.
constexpr std::chrono::milliseconds kLookEvery{1};

Status SystemError(const char* what) {
  return Internal(std::string(what) + " failed: " + std::strerror(errno));
}

class Fd {
 public:
  explicit Fd(int fd = -1) : fd_(fd) {}
  ~Fd() { Close(); }
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    Close();
    fd_ = std::exchange(other.fd_, -1);
    return *this;
  }

  int get() const { return fd_; }
  void Close() {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }

 private:
  int fd_;
};

StatusOr<Fd> FileInMemory(std::string_view bytes) {
  Fd file(::memfd_create("millrace-child-input", MFD_CLOEXEC));
  if (file.get() < 0) return SystemError("memfd_create");
  while (!bytes.empty()) {
    const ssize_t written = ::write(file.get(), bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return SystemError("writing the input of a child");
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  if (::lseek(file.get(), 0, SEEK_SET) != 0) return SystemError("lseek");
  return file;
}

// Ends and is waited for with this object.
class Child {
 public:
  explicit Child(pid_t pid) : pid_(pid) {}
  ~Child() {
    if (pid_ < 0) return;
    ::kill(pid_, SIGKILL);
    while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  // Its status, or nothing while it still runs at the deadline. A program may
  // close its output and go on.
  std::optional<int> WaitUntil(SteadyClock::time_point deadline) {
    int status = 0;
    while (true) {
      const pid_t ended = ::waitpid(pid_, &status, WNOHANG);
      if (ended == pid_) {
        pid_ = -1;
        return status;
      }
      if (ended < 0 && errno != EINTR) return std::nullopt;
      if (SteadyClock::now() >= deadline) return std::nullopt;
      std::this_thread::sleep_for(kLookEvery);
    }
  }

 private:
  pid_t pid_;
};

StatusOr<pid_t> Spawn(const std::vector<std::string>& arguments, int input,
                      int output) {
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&actions);
  posix_spawnattr_init(&attributes);
  posix_spawn_file_actions_adddup2(&actions, input, STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null",
                                   O_WRONLY, 0);
  // A group of its own: a Ctrl-C in a terminal is for the server.
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK);
  std::vector<char*> argv;
  for (const std::string& argument : arguments) {
    argv.push_back(const_cast<char*>(argument.c_str()));
  }
  argv.push_back(nullptr);
  pid_t pid = -1;
  const int failed =
      ::posix_spawn(&pid, argv[0], &actions, &attributes, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  if (failed == 0) return pid;
  errno = failed;
  return SystemError(("starting " + arguments[0]).c_str());
}

Status TooLong(const ChildLimits& limits) {
  return DeadlineExceeded("it took longer than " +
                          std::to_string(limits.time.count()) + " ms");
}

StatusOr<std::string> ReadAll(int fd, const ChildLimits& limits,
                              SteadyClock::time_point deadline) {
  std::string output;
  std::vector<char> buffer(size_t{64} << 10);
  while (true) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        deadline - SteadyClock::now());
    pollfd waits = {.fd = fd, .events = POLLIN, .revents = 0};
    const int ready =
        ::poll(&waits, 1, static_cast<int>(std::max<int64_t>(left.count(), 0)));
    if (ready < 0 && errno == EINTR) continue;
    if (ready < 0) return SystemError("poll");
    if (ready == 0) return TooLong(limits);
    const ssize_t size = ::read(fd, buffer.data(), buffer.size());
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) return SystemError("reading the output of a child");
    if (size == 0) return output;
    output.append(buffer.data(), static_cast<size_t>(size));
    if (output.size() > limits.output_bytes) {
      return ResourceExhausted("the result has more than " +
                               std::to_string(limits.output_bytes >> 20) +
                               " MiB");
    }
  }
}

}  // namespace

StatusOr<std::string> RunChild(const std::vector<std::string>& arguments,
                               std::string_view input,
                               const ChildLimits& limits) {
  ASSIGN_OR_RETURN(Fd file, FileInMemory(input));
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return SystemError("pipe2");
  const Fd reader(ends[0]);
  Fd writer(ends[1]);
  ASSIGN_OR_RETURN(const pid_t pid, Spawn(arguments, file.get(), writer.get()));
  Child child(pid);
  writer.Close();
  const auto deadline = SteadyClock::now() + limits.time;
  ASSIGN_OR_RETURN(std::string output, ReadAll(reader.get(), limits, deadline));
  const std::optional<int> ended = child.WaitUntil(deadline);
  if (!ended) return TooLong(limits);
  const int status = *ended;
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return output;
  if (WIFSIGNALED(status)) {
    if (WTERMSIG(status) == SIGXCPU) {
      return ResourceExhausted("it used up its processor time");
    }
    return Unavailable("it was ended by signal " +
                       std::to_string(WTERMSIG(status)));
  }
  if (WEXITSTATUS(status) == kOutOfMemoryExit) {
    return ResourceExhausted("it used up its memory");
  }
  return Unavailable("it ended with code " +
                     std::to_string(WEXITSTATUS(status)));
}

}  // namespace millrace::models
