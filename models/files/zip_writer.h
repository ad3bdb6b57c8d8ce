// Writes a ZIP archive of stored entries, ZIP64 where an offset or a size needs
// it. Data begin at multiples of 64 bytes, so that arrays can be used where
// they lie.
//
//   ZipWriter zip(out);
//   zip.Add("x.npy", bytes);
//   RETURN_IF_ERROR(zip.Finish());
//
// One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <ostream>
#include <span>
#include <string>
#include <vector>

#include "config/base/status.h"

namespace millrace::models {

class ZipWriter {
 public:
  explicit ZipWriter(std::ostream& out) : out_(out) {}

  // An entry of these parts, one behind the other.
  void Add(const std::string& name,
           std::vector<std::span<const std::byte>> parts);
  // Writes the directory. DATA_LOSS when the stream failed somewhere.
  Status Finish();

 private:
  struct Written {
    std::string name;
    uint32_t crc32;
    uint64_t size;
    uint64_t offset;
  };
  void Write(const std::string& bytes);

  std::ostream& out_;
  uint64_t at_ = 0;
  std::vector<Written> written_;
};

}  // namespace millrace::models
