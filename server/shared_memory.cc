#include "server/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <limits>

namespace millrace::server {
namespace {

Status BadRegion(const std::string& name, const std::string& what) {
  return InvalidArgument("shared memory region '" + name + "' " + what)
      .At("shared_memory_region");
}

// pread or pwrite of all bytes.
template <typename Call>
bool All(uint64_t count, uint64_t offset, Call call) {
  uint64_t done = 0;
  while (done < count) {
    const ssize_t n = call(done, count - done, offset + done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    done += static_cast<uint64_t>(n);
  }
  return true;
}

}  // namespace

class SharedRegions::Object {
 public:
  explicit Object(int fd) : fd_(fd) {}
  ~Object() { close(fd_); }
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  int fd() const { return fd_; }
  uint64_t Size() const {
    struct stat stat = {};
    return fstat(fd_, &stat) == 0 ? static_cast<uint64_t>(stat.st_size) : 0;
  }

 private:
  const int fd_;
};

Status SharedRegions::Register(const SharedRegion& region) {
  if (!enabled_) {
    return BadRegion(region.name,
                     "cannot be registered: the server runs with "
                     "--no-shared-memory");
  }
  // One slash in front: names of objects, not paths to other files.
  const std::string key =
      region.key.starts_with('/') ? region.key : "/" + region.key;
  if (key.size() < 2 || key.size() > 255 ||
      key.find('/', 1) != std::string::npos ||
      key.find('\0') != std::string::npos) {
    return BadRegion(region.name, "has the key '" + region.key +
                                      "', which is no name of a shared memory "
                                      "object, such as \"/data\"");
  }
  const int fd = shm_open(key.c_str(), O_RDWR | O_CLOEXEC, 0);
  if (fd < 0) {
    return BadRegion(region.name,
                     "has the key '" + region.key +
                         "', which cannot be opened: " + std::strerror(errno));
  }
  auto object = std::make_shared<const Object>(fd);
  const uint64_t size = object->Size();
  if (region.offset > size || region.byte_size > size - region.offset) {
    return BadRegion(region.name,
                     "ends at byte " + std::to_string(region.offset) + " + " +
                         std::to_string(region.byte_size) + " of '" +
                         region.key + "', which has " + std::to_string(size));
  }
  MutexLock lock(mu_);
  if (kept_.count(region.name) != 0) {
    return BadRegion(region.name, "is registered already; unregister it first");
  }
  if (kept_.size() >= kMaxRegions) {
    return ResourceExhausted(std::to_string(kMaxRegions) +
                             " shared memory regions are registered, which is "
                             "the limit; unregister some");
  }
  kept_.emplace(region.name, Kept{region, std::move(object)});
  return OkStatus();
}

void SharedRegions::Unregister(const std::string& name) {
  MutexLock lock(mu_);
  if (name.empty()) {
    kept_.clear();
  } else {
    kept_.erase(name);
  }
}

StatusOr<std::vector<SharedRegion>> SharedRegions::List(
    const std::string& name) const {
  MutexLock lock(mu_);
  std::vector<SharedRegion> list;
  for (const auto& [key, kept] : kept_) {
    if (name.empty() || key == name) list.push_back(kept.region);
  }
  if (!name.empty() && list.empty()) {
    return NotFound("no shared memory region '" + name + "' is registered")
        .At("shared_memory_region");
  }
  return list;
}

StatusOr<SharedRegions::Kept> SharedRegions::Find(const SharedSpan& span,
                                                  uint64_t byte_size) const {
  MutexLock lock(mu_);
  const auto found = kept_.find(span.region);
  if (found == kept_.end()) {
    return NotFound("no shared memory region '" + span.region +
                    "' is registered")
        .At("shared_memory_region");
  }
  const uint64_t size = found->second.region.byte_size;
  if (span.offset > size || byte_size > size - span.offset) {
    return BadRegion(span.region,
                     "has " + std::to_string(size) + " bytes; " +
                         std::to_string(byte_size) + " from offset " +
                         std::to_string(span.offset) + " do not lie within");
  }
  return found->second;
}

StatusOr<std::string> SharedRegions::Read(const SharedSpan& span,
                                          uint64_t& request_bytes) const {
  if (request_bytes > max_request_bytes_ ||
      span.byte_size > max_request_bytes_ - request_bytes) {
    return InvalidArgument(
               "shared_memory_byte_size is " + std::to_string(span.byte_size) +
               " behind " + std::to_string(request_bytes) +
               " bytes of the same request, which may have " +
               std::to_string(max_request_bytes_) +
               " with all that it reads of shared memory; send fewer tensors "
               "in a request or raise http_max_input_size")
        .At("shared_memory_byte_size");
  }
  ASSIGN_OR_RETURN(const Kept kept, Find(span, span.byte_size));
  std::string bytes(span.byte_size, '\0');
  const bool read = All(span.byte_size, kept.region.offset + span.offset,
                        [&](uint64_t at, uint64_t count, uint64_t offset) {
                          return pread(kept.object->fd(), bytes.data() + at,
                                       count, static_cast<off_t>(offset));
                        });
  if (!read) return BadRegion(span.region, "became shorter");
  request_bytes += span.byte_size;
  return bytes;
}

Status SharedRegions::Write(const SharedSpan& span,
                            std::string_view bytes) const {
  if (bytes.size() > span.byte_size) {
    return InvalidArgument("a result of " + std::to_string(bytes.size()) +
                           " bytes does not fit the " +
                           std::to_string(span.byte_size) +
                           " bytes of shared_memory_byte_size")
        .At("shared_memory_byte_size");
  }
  ASSIGN_OR_RETURN(const Kept kept, Find(span, bytes.size()));
  const uint64_t end = kept.region.offset + span.offset + bytes.size();
  // Writing must not make the client's object longer.
  if (kept.object->Size() < end ||
      !All(bytes.size(), kept.region.offset + span.offset,
           [&](uint64_t at, uint64_t count, uint64_t offset) {
             return pwrite(kept.object->fd(), bytes.data() + at, count,
                           static_cast<off_t>(offset));
           })) {
    return BadRegion(span.region, "became shorter");
  }
  return OkStatus();
}

}  // namespace millrace::server
