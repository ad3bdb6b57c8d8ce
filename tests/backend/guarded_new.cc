// operator new of the kernels' suites: each block ends where an
// inaccessible page begins, so a kernel that reads or writes beyond its
// operands faults, in every table and whatever the instruction (a sanitizer
// sees no tile or gather). Blocks of an alignment that was asked for end at the
// page but for what that alignment leaves; others, such as vectors, up to 15
// bytes before it, and those below kLeast have no page. Not linked into the
// builds of sanitizers, which have an operator new of their own.

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>

namespace {

// Stands right before a block.
struct Header {
  void* mapping;  // null: the block is malloc's
  size_t bytes;
};
constexpr size_t kLeast = 16;  // bytes; shorter blocks are malloc's

size_t PageBytes() {
  static const auto bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

void* Guarded(size_t bytes, size_t alignment) {
  const size_t page = PageBytes();
  const size_t inside =
      (sizeof(Header) + alignment + bytes + page - 1) / page * page;
  void* mapping = mmap(nullptr, inside + page, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping == MAP_FAILED) throw std::bad_alloc();
  const auto end = reinterpret_cast<uintptr_t>(mapping) + inside;
  if (mprotect(reinterpret_cast<void*>(end), page, PROT_NONE) != 0) {
    munmap(mapping, inside + page);
    throw std::bad_alloc();
  }
  auto* block =
      reinterpret_cast<std::byte*>((end - bytes) / alignment * alignment);
  const Header header = {mapping, inside + page};
  std::memcpy(block - sizeof header, &header, sizeof header);
  return block;
}

void* Short(size_t bytes) {
  auto* header = static_cast<Header*>(std::malloc(sizeof(Header) + bytes));
  if (header == nullptr) throw std::bad_alloc();
  *header = {nullptr, bytes};
  return header + 1;
}

void Free(void* block) {
  if (block == nullptr) return;
  Header header;
  std::byte* const at = static_cast<std::byte*>(block) - sizeof header;
  std::memcpy(&header, at, sizeof header);
  if (header.mapping == nullptr) {
    std::free(at);
  } else {
    munmap(header.mapping, header.bytes);
  }
}

}  // namespace

void* operator new(size_t bytes) {
  return bytes < kLeast ? Short(bytes)
                        : Guarded(bytes, alignof(std::max_align_t));
}
void* operator new(size_t bytes, std::align_val_t alignment) {
  return Guarded(bytes, static_cast<size_t>(alignment));
}
void operator delete(void* block) noexcept { Free(block); }
void operator delete(void* block, size_t) noexcept { Free(block); }
void operator delete(void* block, std::align_val_t) noexcept { Free(block); }
void operator delete(void* block, size_t, std::align_val_t) noexcept {
  Free(block);
}
