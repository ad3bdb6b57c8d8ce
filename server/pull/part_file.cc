#include "server/pull/part_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <system_error>
#include <utility>
#include <vector>

#include "config/base/size_text.h"

namespace millrace::server {
namespace {

std::filesystem::path With(const std::filesystem::path& path,
                           const char* ending) {
  std::filesystem::path out = path;
  out += ending;
  return out;
}

}  // namespace

PartFile::PartFile(const std::filesystem::path& path)
    : path_(With(path, ".part")), version_path_(With(path, ".part.version")) {}

PartFile::~PartFile() {
  if (file_ >= 0) ::close(file_);
}

Status PartFile::Failed(std::string_view what, int error) const {
  const std::string said = "'" + path_.string() + "' cannot be " +
                           std::string(what) + ": " + std::strerror(error);
  if (error == ENOSPC || error == EDQUOT || error == EFBIG) {
    return ResourceExhausted(said + " (it has " + SizeText(size_) +
                             "); make room or set MILLRACE_CACHE to a larger "
                             "disk, and pull again: what came is kept");
  }
  return FailedPrecondition(said);
}

Status PartFile::Open() {
  file_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (file_ < 0) return Failed("opened", errno);
  std::ifstream version(version_path_, std::ios::binary);
  version_.assign(std::istreambuf_iterator<char>(version), {});
  std::vector<char> block(size_t{1} << 20);
  while (true) {
    const ssize_t got = ::read(file_, block.data(), block.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Failed("read", errno);
    if (got == 0) return OkStatus();
    digester_.Add({block.data(), static_cast<size_t>(got)});
    size_ += got;
  }
}

Status PartFile::Restart(const std::string& version) {
  if (::ftruncate(file_, 0) != 0 || ::lseek(file_, 0, SEEK_SET) != 0) {
    return Failed("emptied", errno);
  }
  size_ = 0;
  digester_ = Digester();
  version_ = version;
  std::ofstream out(version_path_, std::ios::binary | std::ios::trunc);
  out << version;
  // Without it the bytes are of no known version, and are fetched again.
  if (!out.flush()) {
    std::error_code ignored;
    std::filesystem::remove(version_path_, ignored);
  }
  return OkStatus();
}

Status PartFile::Append(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t put = ::write(file_, bytes.data(), bytes.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return Failed("written", errno);
    const auto written = static_cast<size_t>(put);
    digester_.Add(bytes.substr(0, written));
    size_ += put;
    bytes.remove_prefix(written);
  }
  return OkStatus();
}

StatusOr<std::string> PartFile::Finish() {
  if (::fsync(file_) != 0) return Failed("written", errno);
  std::error_code ignored;
  std::filesystem::remove(version_path_, ignored);
  return digester_.Hex();
}

void PartFile::Remove() {
  std::error_code ignored;
  std::filesystem::remove(path_, ignored);
  std::filesystem::remove(version_path_, ignored);
}

}  // namespace millrace::server
