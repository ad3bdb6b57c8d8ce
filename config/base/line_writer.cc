// A pipe that poll calls writable takes a piece of PIPE_BUF bytes at once
// (pipe(7)), a socket or a terminal likewise. So the descriptor, which other
// processes may share, need not be made non-blocking.
#include "config/base/line_writer.h"

#include <limits.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace millrace {

bool LineWriter::IsReady(std::chrono::milliseconds timeout) const {
  pollfd wanted = {fd_, POLLOUT, 0};
  const int ready = ::poll(&wanted, 1, static_cast<int>(timeout.count()));
  // Errors, too: the write returns them.
  return ready > 0 || (ready < 0 && errno != EINTR);
}

bool LineWriter::WriteAll(std::string_view text) {
  while (!text.empty()) {
    const auto now = std::chrono::steady_clock::now();
    if (!IsReady(now < patient_from_ ? std::chrono::milliseconds(0)
                                     : patience_)) {
      patient_from_ = now + pause_;
      return false;
    }
    const ssize_t written =
        ::write(fd_, text.data(), std::min<size_t>(text.size(), PIPE_BUF));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;  // nobody reads any more, or a full disk
    in_line_ = true;
    text.remove_prefix(static_cast<size_t>(written));
  }
  in_line_ = false;
  return true;
}

bool LineWriter::Write(std::string_view line) {
  MutexLock lock(mu_);
  if ((!in_line_ || WriteAll("\n")) && WriteAll(line)) return true;
  ++num_lost_;
  return false;
}

int64_t LineWriter::TakeLost() {
  MutexLock lock(mu_);
  if (num_lost_ == 0 || !IsReady(std::chrono::milliseconds(0))) return 0;
  return std::exchange(num_lost_, 0);
}

}  // namespace millrace
