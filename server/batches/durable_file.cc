#include "server/batches/durable_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace millrace::server {
namespace {

constexpr mode_t kOwnerOnly = 0600;  // they hold prompts

Status Failed(const char* what, const std::string& path) {
  const int error = errno;
  const std::string sentence = std::string("cannot ") + what + " '" + path +
                               "' (" + std::strerror(error) + ")";
  if (error == ENOSPC || error == EDQUOT || error == EFBIG) {
    return Internal(sentence + "; make room on the disk of batch_dir")
        .Because("disk_full");
  }
  return Internal(sentence + "; check the folder batch_dir");
}

// The number of bytes that were written; fewer than wanted: errno says why.
size_t WriteAll(int fd, std::string_view bytes) {
  size_t written = 0;
  while (written < bytes.size()) {
    const ssize_t n = write(fd, bytes.data() + written, bytes.size() - written);
    if (n > 0) {
      written += static_cast<size_t>(n);
    } else if (n == 0 || errno != EINTR) {
      if (n == 0) errno = ENOSPC;
      break;
    }
  }
  return written;
}

Status SyncFolderOf(const std::string& path) {
  const std::string folder = path.substr(0, path.rfind('/'));
  const int fd = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return Failed("open", folder);
  const bool synced = fsync(fd) == 0;
  const Status status = synced ? OkStatus() : Failed("sync", folder);
  close(fd);
  return status;
}

}  // namespace

Status WriteDurably(const std::string& path, std::string_view bytes) {
  const std::string beside = path + ".tmp";
  const int fd = open(beside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC,
                      kOwnerOnly);
  if (fd < 0) return Failed("make", beside);
  Status status;
  if (WriteAll(fd, bytes) < bytes.size() || fsync(fd) != 0) {
    status = Failed("write", beside);
  }
  close(fd);
  if (status.ok()) status = RenameDurably(beside, path);
  if (!status.ok()) unlink(beside.c_str());
  return status;
}

StatusOr<std::string> ReadBytes(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return Failed("open", path);
  struct stat about {};
  std::string bytes;
  if (fstat(fd, &about) == 0) bytes.resize(static_cast<size_t>(about.st_size));
  size_t got = 0;
  Status status;
  while (got < bytes.size()) {
    const ssize_t n = read(fd, bytes.data() + got, bytes.size() - got);
    if (n > 0) {
      got += static_cast<size_t>(n);
    } else if (n == 0) {
      break;
    } else if (errno != EINTR) {
      status = Failed("read", path);
      break;
    }
  }
  close(fd);
  RETURN_IF_ERROR(status);
  bytes.resize(got);
  return bytes;
}

bool FileExists(const std::string& path) {
  return access(path.c_str(), F_OK) == 0;
}

Status RenameDurably(const std::string& from, const std::string& to) {
  if (std::rename(from.c_str(), to.c_str()) != 0) return Failed("rename", from);
  return SyncFolderOf(to);
}

StatusOr<AppendFile> AppendFile::Open(const std::string& path, int64_t keep) {
  const int fd =
      open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, kOwnerOnly);
  if (fd < 0) return Failed("open", path);
  if (ftruncate(fd, keep) != 0) {
    const Status status = Failed("shorten", path);
    close(fd);
    return status;
  }
  return AppendFile(fd, keep);
}

AppendFile::~AppendFile() {
  if (fd_ >= 0) close(fd_);
}

Status AppendFile::Append(std::string_view line) {
  if (WriteAll(fd_, line) < line.size()) {
    const Status status = Failed("append to", "the results of a batch");
    // A part of a line would be cut off at the next start anyway.
    if (ftruncate(fd_, bytes_) != 0) return status;
    return status;
  }
  bytes_ += static_cast<int64_t>(line.size());
  return OkStatus();
}

Status AppendFile::Sync() {
  return fdatasync(fd_) == 0 ? OkStatus() : Failed("sync", "results");
}

}  // namespace millrace::server
