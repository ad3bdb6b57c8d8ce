#include "server/pull/cache_entry.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <system_error>
#include <thread>

#include "config/base/variable.h"

namespace millrace::server {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::milliseconds kLockStep{100};

Status Failed(const fs::path& path, const char* what, const std::string& why) {
  return FailedPrecondition("'" + path.string() + "' cannot be " + what + ": " +
                            why +
                            "; set MILLRACE_CACHE to a folder that may be "
                            "written");
}

}  // namespace

fs::path CacheFolder() {
  if (const char* own = Variable("MILLRACE_CACHE")) return own;
  if (const char* xdg = Variable("XDG_CACHE_HOME")) {
    return fs::path(xdg) / "millrace";
  }
  return fs::path(VariableOr("HOME", "/")) / ".cache" / "millrace";
}

CacheEntry::CacheEntry(const fs::path& cache, const std::string& key)
    : folder_(cache / "models" / "pulled" / key) {}

CacheEntry::~CacheEntry() {
  if (lock_ >= 0) ::close(lock_);
}

fs::path CacheEntry::Current() const {
  std::error_code error;
  const fs::path inner = fs::read_symlink(folder_ / "current", error);
  if (error || inner.empty() || inner.is_absolute()) return {};
  const fs::path path = folder_ / inner;
  return fs::exists(path, error) ? path : fs::path();
}

std::string CacheEntry::CurrentVersion() const {
  const fs::path path = Current();
  if (path.empty()) return "";
  return path.lexically_relative(folder_).begin()->string();
}

Status CacheEntry::Lock(const std::function<void()>& on_wait) {
  std::error_code error;
  fs::create_directories(folder_, error);
  if (error) return Failed(folder_, "made", error.message());
  const fs::path path = folder_ / "lock";
  lock_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (lock_ < 0) return Failed(path, "opened", std::strerror(errno));
  bool has_waited = false;
  while (::flock(lock_, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) {
      return Failed(path, "locked", std::strerror(errno));
    }
    if (!has_waited && on_wait) on_wait();
    has_waited = true;
    std::this_thread::sleep_for(kLockStep);
  }
  return OkStatus();
}

StatusOr<fs::path> CacheEntry::Partial(const std::string& version) {
  const fs::path partial = folder_ / "partial";
  std::error_code error;
  for (fs::directory_iterator it(partial, error), end; !error && it != end;
       it.increment(error)) {
    std::error_code ignored;
    if (it->path().filename() != version) {
      fs::remove_all(it->path(), ignored);
    }
  }
  fs::create_directories(partial / version, error);
  if (error) return Failed(partial / version, "made", error.message());
  return partial / version;
}

fs::path CacheEntry::Version(const std::string& version) const {
  return folder_ / version;
}

Status CacheEntry::Place(const fs::path& partial, const std::string& version,
                         const fs::path& inner, bool is_right) {
  std::error_code error;
  const fs::path target = Version(version);
  if (is_right && fs::exists(target / inner, error)) {
    fs::remove_all(partial, error);
  } else {
    // What is not right goes after what is right has come.
    const fs::path replaced = folder_ / "partial" / "replaced";
    fs::remove_all(replaced, error);
    fs::rename(target, replaced, error);
    fs::rename(partial, target, error);
    std::error_code ignored;
    if (error) {
      fs::rename(replaced, target, ignored);
      return Failed(target, "put in place", error.message());
    }
    fs::remove_all(replaced, ignored);
  }
  const fs::path next = folder_ / "current.next";
  fs::remove(next, error);
  fs::create_symlink(fs::path(version) / inner, next, error);
  if (!error) fs::rename(next, folder_ / "current", error);
  if (error)
    return Failed(folder_ / "current", "put in place", error.message());
  return OkStatus();
}

}  // namespace millrace::server
