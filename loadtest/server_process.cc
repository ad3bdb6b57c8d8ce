// The server writes its log to a file in memory rather than to a pipe: a full
// pipe blocks the writer, and it is not read during a measurement.
#include "loadtest/server_process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

namespace millrace::loadtest {
namespace {

using std::chrono::milliseconds;
using SteadyClock = std::chrono::steady_clock;

constexpr auto kPoll = milliseconds(10);
constexpr auto kStopTime = std::chrono::seconds(5);
constexpr auto kCommandTime = std::chrono::seconds(10);
constexpr int64_t kLogTail = 16 * 1024;

std::string ErrnoText() { return std::strerror(errno); }

// Only calls that are safe between fork and exec.
[[noreturn]] void Become(char* const* words, int out, int log, pid_t parent) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(127);  // the parent died before prctl
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  dup2(null, STDIN_FILENO);
  dup2(out >= 0 ? out : null, STDOUT_FILENO);
  dup2(log, STDERR_FILENO);
  execvp(words[0], words);
  const char* const why = ": cannot be started: ";
  const char* const error = strerrordesc_np(errno);
  for (const char* part : {static_cast<const char*>(words[0]), why, error}) {
    if (write(STDERR_FILENO, part, strlen(part)) < 0) break;
  }
  _exit(127);
}

StatusOr<pid_t> Spawn(const std::vector<std::string>& words, int out, int log) {
  if (words.empty()) return InvalidArgument("the server's command is empty");
  std::vector<char*> pointers;
  for (const std::string& word : words) {
    pointers.push_back(const_cast<char*>(word.c_str()));
  }
  pointers.push_back(nullptr);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) Become(pointers.data(), out, log, parent);
  if (pid > 0) return pid;
  return ResourceExhausted("the server's process cannot be made: " +
                           ErrnoText());
}

StatusOr<int> MemoryFile(const char* name) {
  const int file = memfd_create(name, MFD_CLOEXEC);
  if (file >= 0) {
    // The server and its children share it; each write goes to the end.
    fcntl(file, F_SETFL, O_APPEND);
    return file;
  }
  return ResourceExhausted("no file in memory for the server's log: " +
                           ErrnoText());
}

std::string ReadFrom(int file, int64_t offset) {
  std::string text;
  char buffer[4096];
  while (true) {
    const ssize_t got = pread(file, buffer, sizeof(buffer),
                              offset + static_cast<int64_t>(text.size()));
    if (got <= 0) return text;
    text.append(buffer, static_cast<size_t>(got));
  }
}

// The last line that is no JSON, where the server says in words why it ends;
// else the last line.
std::string LastLine(const std::string& text) {
  std::string last;
  std::string last_words;
  size_t begin = 0;
  while (begin < text.size()) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string line = text.substr(begin, end - begin);
    begin = end + 1;
    if (line.empty()) continue;
    last = line;
    if (line[0] != '{') last_words = line;
  }
  return last_words.empty() ? last : last_words;
}

std::string Ending(int wait_status) {
  if (WIFSIGNALED(wait_status)) {
    return "was ended by signal " + std::to_string(WTERMSIG(wait_status));
  }
  return "ended with status " + std::to_string(WEXITSTATUS(wait_status));
}

// Waits for the process until `end`; false when it still runs then. What a
// script has left in its process group is killed before the group's number is
// free for others.
bool WaitUntil(pid_t pid, SteadyClock::time_point end, int* wait_status) {
  while (true) {
    siginfo_t info = {};
    const int got = waitid(P_PID, static_cast<id_t>(pid), &info,
                           WEXITED | WNOHANG | WNOWAIT);
    if (got == 0 && info.si_pid == pid) {
      kill(-pid, SIGKILL);
      while (waitpid(pid, wait_status, 0) < 0 && errno == EINTR) {
      }
      return true;
    }
    if (SteadyClock::now() >= end) return false;
    std::this_thread::sleep_for(kPoll);
  }
}

// The whole group: the command may be a script around the server.
void KillAndReap(pid_t pid, int* wait_status) {
  kill(-pid, SIGKILL);
  kill(pid, SIGKILL);
  while (waitpid(pid, wait_status, 0) < 0 && errno == EINTR) {
  }
}

}  // namespace

StatusOr<std::vector<std::string>> SplitCommand(const std::string& text) {
  std::vector<std::string> words;
  std::string word;
  bool inside = false;
  char quote = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\\' && quote != '\'' && i + 1 < text.size()) {
      word += text[++i];
      inside = true;
    } else if (quote != 0) {
      if (c == quote) {
        quote = 0;
      } else {
        word += c;
      }
    } else if (c == '\'' || c == '"') {
      quote = c;
      inside = true;
    } else if (c == ' ' || c == '\t' || c == '\n') {
      if (inside) words.push_back(std::exchange(word, {}));
      inside = false;
    } else {
      word += c;
      inside = true;
    }
  }
  if (quote != 0) {
    return InvalidArgument("a " + std::string(1, quote) + " in '" + text +
                           "' has no second one");
  }
  if (inside) words.push_back(word);
  return words;
}

StopSignals::StopSignals() {
  sigemptyset(&set_);
  sigaddset(&set_, SIGINT);
  sigaddset(&set_, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &set_, &before_);
}

StopSignals::~StopSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

bool StopSignals::Wait(milliseconds limit) {
  const timespec wait = {limit.count() / 1000,
                         limit.count() % 1000 * 1'000'000};
  if (!stopped_) stopped_ = sigtimedwait(&set_, nullptr, &wait) > 0;
  return stopped_;
}

StatusOr<std::string> RunCommand(const std::vector<std::string>& words) {
  ASSIGN_OR_RETURN(const int out, MemoryFile("millrace-stdout"));
  const StatusOr<int> log = MemoryFile("millrace-stderr");
  if (!log.ok()) {
    close(out);
    return log.status();
  }
  int wait_status = 0;
  const StatusOr<pid_t> pid = Spawn(words, out, *log);
  bool ended = false;
  if (pid.ok()) {
    ended = WaitUntil(*pid, SteadyClock::now() + kCommandTime, &wait_status);
    if (!ended) KillAndReap(*pid, &wait_status);
  }
  const std::string text = ReadFrom(out, 0);
  const std::string error = LastLine(ReadFrom(*log, 0));
  close(out);
  close(*log);
  if (!pid.ok()) return pid.status();
  if (ended && wait_status == 0) return text;
  return FailedPrecondition(
      "'" + words[0] + "' " +
      (ended ? Ending(wait_status) : std::string("took more than 10 s")) +
      ": " + error);
}

StatusOr<std::unique_ptr<ServerProcess>> ServerProcess::Start(
    const std::vector<std::string>& words, std::chrono::nanoseconds limit,
    StopSignals& stop) {
  ASSIGN_OR_RETURN(const int log, MemoryFile("millrace-log"));
  const StatusOr<pid_t> pid = Spawn(words, -1, log);
  if (!pid.ok()) {
    close(log);
    return pid.status();
  }
  std::unique_ptr<ServerProcess> server(new ServerProcess(*pid, log));
  const auto end = SteadyClock::now() + limit;
  while (!server->SeesReady()) {
    RETURN_IF_ERROR(server->Running());
    if (SteadyClock::now() >= end) {
      return DeadlineExceeded(
          "the server was not ready after " +
          std::to_string(
              std::chrono::duration_cast<std::chrono::seconds>(limit).count()) +
          " s; raise --start-timeout");
    }
    if (stop.Wait(kPoll)) return Cancelled("interrupted");
  }
  return server;
}

ServerProcess::~ServerProcess() {
  if (!ended_) {
    kill(pid_, SIGTERM);
    if (!WaitUntil(pid_, SteadyClock::now() + kStopTime, &wait_status_)) {
      KillAndReap(pid_, &wait_status_);
    }
  }
  close(log_);
}

Status ServerProcess::Running() {
  if (!ended_) ended_ = WaitUntil(pid_, SteadyClock::now(), &wait_status_);
  if (!ended_) return OkStatus();
  return FailedPrecondition("the server " + Ending(wait_status_) + ": " +
                            LastWords());
}

bool ServerProcess::SeesReady() {
  const std::string more = ReadFrom(log_, log_read_);
  log_read_ += static_cast<int64_t>(more.size());
  log_rest_ += more;
  size_t end = 0;
  while ((end = log_rest_.find('\n')) != std::string::npos) {
    const auto line =
        nlohmann::json::parse(log_rest_.substr(0, end), nullptr, false);
    log_rest_.erase(0, end + 1);
    if (!line.is_object() || line.value("event", nlohmann::json()) != "ready") {
      continue;
    }
    const auto port = [&](const char* key) {
      const auto at = line.find(key);
      return at != line.end() && at->is_number_integer() ? at->get<int>() : 0;
    };
    http_port_ = port("http_port");
    grpc_port_ = port("grpc_port");
    return http_port_ > 0;
  }
  return false;
}

std::string ServerProcess::LastWords() const {
  const off_t size = lseek(log_, 0, SEEK_END);
  return LastLine(ReadFrom(log_, std::max<int64_t>(0, size - kLogTail)));
}

}  // namespace millrace::loadtest
