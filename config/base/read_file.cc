#include "config/base/read_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace millrace {
namespace {

Status Bad(const char* setting, const std::string& path,
           const std::string& why) {
  return FailedPrecondition(std::string(setting) + " is '" + path + "', " + why)
      .At(setting);
}

}  // namespace

StatusOr<std::string> ReadFileOf(const char* setting, const std::string& path,
                                 size_t max_bytes) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  int error = fd < 0 ? errno : 0;
  std::string text;
  char part[16384];
  while (error == 0 && text.size() <= max_bytes) {
    const ssize_t n = read(fd, part, sizeof part);
    if (n == 0) break;
    if (n > 0) {
      text.append(part, static_cast<size_t>(n));
    } else if (errno != EINTR) {
      error = errno;  // of a folder: EISDIR
    }
  }
  if (fd >= 0) close(fd);
  if (error != 0) {
    return Bad(setting, path,
               std::string("which cannot be read (") + std::strerror(error) +
                   "); check its path and permissions");
  }
  if (text.size() > max_bytes) {
    return Bad(setting, path,
               "which has more than " + std::to_string(max_bytes) +
                   " bytes; check that it is the right file");
  }
  return text;
}

}  // namespace millrace
