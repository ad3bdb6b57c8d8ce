// A file mapped read-only for as long as the object lives.
//
//   ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open("model.gguf"));
//   Parse(file.bytes());
//
// Immutable after Open; thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "config/base/status.h"
#include "models/tensor/tensor.h"

namespace millrace::models {

class MappedFile : public ByteSource {
 public:
  // NOT_FOUND, PERMISSION_DENIED or INVALID_ARGUMENT name the path. An empty
  // file gives an empty span.
  static StatusOr<MappedFile> Open(const std::string& path);

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile() override;

  std::span<const std::byte> bytes() const { return {data_, size_}; }

  // Gives the memory of these bytes (whole pages inside them) back to the
  // system; reading them again reads the file again.
  void DropPages(std::span<const std::byte> bytes) const override;
  // Says that all will be read soon, front to back.
  void WillRead() const;

 private:
  MappedFile() = default;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// Says that few of these bytes will be read, at places far from each other:
// the system then reads the pages that are asked for and none beside them,
// where it else reads 128 KiB at a time. Whole pages inside the bytes, of any
// mapping; advice only.
void WillReadAtRandom(std::span<const std::byte> bytes);

}  // namespace millrace::models
