#include "handlers/external/process.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <utility>

extern char** environ;

namespace millrace::handlers {
namespace {

constexpr int kSocketFd = 3;
constexpr int kMemoryFd = 4;
constexpr int kFirstFree = 10;  // copies that the two numbers cannot meet

Status SystemError(const std::string& what) {
  return Unavailable(what + " failed: " + std::strerror(errno));
}

class Fd {
 public:
  explicit Fd(int fd = -1) : fd_(fd) {}
  ~Fd() {
    if (fd_ >= 0) ::close(fd_);
  }
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  int get() const { return fd_; }
  int Take() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

std::vector<std::string> Environment(
    const std::map<std::string, std::string>& more) {
  std::vector<std::string> all;
  for (char** each = environ; *each != nullptr; ++each) {
    const std::string entry = *each;
    if (more.count(entry.substr(0, entry.find('='))) == 0) all.push_back(entry);
  }
  for (const auto& [name, value] : more) all.push_back(name + "=" + value);
  return all;
}

std::vector<char*> Pointers(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (const std::string& text : texts) {
    pointers.push_back(const_cast<char*>(text.c_str()));
  }
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

StatusOr<HandlerProcess> HandlerProcess::Start(const ProcessOptions& options) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    return SystemError("socketpair");
  }
  Fd ours(ends[0]);
  const Fd given(ends[1]);
  int pipe[2];
  if (::pipe2(pipe, O_CLOEXEC) != 0) return SystemError("pipe2");
  Fd reader(pipe[0]);
  const Fd writer(pipe[1]);
  for (const int fd : {ours.get(), reader.get()}) {
    ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK);
  }
  const Fd theirs(::fcntl(given.get(), F_DUPFD_CLOEXEC, kFirstFree));
  const Fd memory(::fcntl(options.memory_fd, F_DUPFD_CLOEXEC, kFirstFree));
  if (theirs.get() < 0 || memory.get() < 0) return SystemError("dup");

  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&actions);
  posix_spawnattr_init(&attributes);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null",
                                   O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, writer.get(), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, writer.get(), STDERR_FILENO);
  posix_spawn_file_actions_adddup2(&actions, theirs.get(), kSocketFd);
  posix_spawn_file_actions_adddup2(&actions, memory.get(), kMemoryFd);
  posix_spawn_file_actions_addchdir_np(&actions, options.folder.c_str());
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&attributes, &none);
  // A group of its own: a Ctrl-C in a terminal is for the server.
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK);
  const std::vector<std::string> environment = Environment(options.environment);
  std::vector<char*> argv = Pointers(options.command);
  std::vector<char*> envp = Pointers(environment);
  pid_t pid = -1;
  const int failed = ::posix_spawnp(&pid, argv[0], &actions, &attributes,
                                    argv.data(), envp.data());
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  if (failed != 0) {
    errno = failed;
    return SystemError("starting '" + options.command[0] + "'");
  }
  HandlerProcess process;
  process.pid_ = pid;
  process.socket_ = ours.Take();
  process.output_ = reader.Take();
  return process;
}

HandlerProcess::HandlerProcess(HandlerProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      socket_(std::exchange(other.socket_, -1)),
      output_(std::exchange(other.output_, -1)),
      ended_(other.ended_),
      how_ended_(std::move(other.how_ended_)) {}

HandlerProcess::~HandlerProcess() {
  if (pid_ > 0) {
    Kill();
    while (!ended_ && ::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  if (socket_ >= 0) ::close(socket_);
  if (output_ >= 0) ::close(output_);
}

std::string HandlerProcess::HowEnded() {
  if (ended_) return how_ended_;
  siginfo_t info{};
  if (::waitid(P_PID, static_cast<id_t>(pid_), &info,
               WEXITED | WNOHANG | WNOWAIT) != 0 ||
      info.si_pid != pid_) {
    return {};
  }
  // What it started ends with it. Not waited for yet, so the pid is still ours.
  Kill();
  int status = 0;
  ::waitpid(pid_, &status, 0);
  ended_ = true;
  how_ended_ = WIFSIGNALED(status)
                   ? "was ended by signal " + std::to_string(WTERMSIG(status)) +
                         " (" + ::strsignal(WTERMSIG(status)) + ")"
                   : "exited with code " + std::to_string(WEXITSTATUS(status));
  return how_ended_;
}

int64_t HandlerProcess::ResidentBytes() const {
  int64_t pages = 0;
  std::ifstream("/proc/" + std::to_string(pid_) + "/statm") >> pages >> pages;
  return pages * ::sysconf(_SC_PAGESIZE);
}

void HandlerProcess::Kill() {
  // A pid that was waited for may be another process's by now.
  if (pid_ > 0 && !ended_) ::kill(-pid_, SIGKILL);
}

}  // namespace millrace::handlers
