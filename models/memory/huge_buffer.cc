// Huge pages that an administrator has set aside come first: they are there or
// the mapping fails at once. Else the kernel is asked to make them of ordinary
// memory. An ordinary mapping has 4 KiB alignment only, so it is made one huge
// page larger than needed and used from its first 2 MiB boundary on; the slack
// is never touched and costs address space alone.
#include "models/memory/huge_buffer.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>
#include <utility>

#include "config/base/log.h"

namespace millrace::models {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;
constexpr int kHugePageLog2 = 21 << MAP_HUGE_SHIFT;

// "[always]", "[madvise]" or "[never]" is the marked word of this file.
bool HugePagesAreOff() {
  std::ifstream file("/sys/kernel/mm/transparent_hugepage/enabled");
  std::string line;
  return !std::getline(file, line) || line.find("[never]") != std::string::npos;
}

}  // namespace

StatusOr<HugeBuffer> HugeBuffer::Allocate(int64_t bytes, bool huge_pages,
                                          std::string_view purpose) {
  HugeBuffer out;
  if (bytes <= 0) return out;
  const auto failed = [&](const char* why) {
    return ResourceExhausted("no memory for " + std::string(purpose) + " (" +
                             std::to_string(bytes) + " bytes): " + why);
  };
  if (bytes > int64_t{1} << 46) return failed("more than 64 TiB");
  const size_t whole =
      (static_cast<size_t>(bytes) + kHugePage - 1) / kHugePage * kHugePage;
  if (huge_pages) {
    // Without MAP_NORESERVE pages are promised now, not when touched.
    void* set_aside = ::mmap(
        nullptr, whole, PROT_READ | PROT_WRITE,
        MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | kHugePageLog2, -1, 0);
    if (set_aside != MAP_FAILED) {
      LogInfo("huge pages set aside by the system are used",
              {{"for", purpose}, {"pages", whole / kHugePage}});
      out.mapping_ = set_aside;
      out.mapping_bytes_ = whole;
      out.data_ = static_cast<std::byte*>(set_aside);
      out.size_ = bytes;
      return out;
    }
  }
  out.mapping_bytes_ = whole + kHugePage;
  void* mapping = ::mmap(nullptr, out.mapping_bytes_, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED) {
    out.mapping_bytes_ = 0;
    return failed(std::strerror(errno));
  }
  out.mapping_ = mapping;
  const auto address = reinterpret_cast<uintptr_t>(mapping);
  out.data_ = reinterpret_cast<std::byte*>((address + kHugePage - 1) /
                                           kHugePage * kHugePage);
  out.size_ = bytes;
  if (huge_pages) {
    if (::madvise(out.data_, whole, MADV_HUGEPAGE) != 0 || HugePagesAreOff()) {
      LogWarning("no huge pages, weights will be read more slowly",
                 {{"for", purpose},
                  {"remedy",
                   "echo madvise > "
                   "/sys/kernel/mm/transparent_hugepage/enabled"}});
    }
  }
  return out;
}

HugeBuffer::HugeBuffer(HugeBuffer&& other) noexcept {
  *this = std::move(other);
}

HugeBuffer& HugeBuffer::operator=(HugeBuffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(mapping_, other.mapping_);
  std::swap(mapping_bytes_, other.mapping_bytes_);
  return *this;
}

HugeBuffer::~HugeBuffer() {
  if (mapping_ != nullptr) ::munmap(mapping_, mapping_bytes_);
}

}  // namespace millrace::models
