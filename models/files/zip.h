// ZIP archives as model formats use them: a directory of entries at the end of
// the file, ZIP64 where 32 bits are too few. Nothing in it is trusted: every
// offset and size is checked, entries may not overlap, names may neither repeat
// nor lead out of a folder.
//
//   ASSIGN_OR_RETURN(const ZipFile zip, ZipFile::Parse(mapped.bytes()));
//   const ZipEntry* entry = zip.Find("model/byteorder");
//   ASSIGN_OR_RETURN(const std::string text, ReadEntry(*entry, 16));
//
// Data are views of the bytes given to Parse, which must outlive the object.
// Immutable; thread-safe.
// Source: PKWARE APPNOTE.TXT 6.3.10, sections 4.3 and 4.5.3.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "config/base/status.h"

namespace millrace::models {

struct ZipEntry {
  std::string name;  // "folder/file"; a folder's own entry ends in '/'
  bool deflated = false;
  uint32_t crc32 = 0;                // of the bytes when unpacked
  int64_t size = 0;                  // when unpacked
  std::span<const std::byte> bytes;  // as they lie in the file
};

class ZipFile {
 public:
  struct Limits {
    int64_t max_entries = 1 << 20;
    int64_t max_name_bytes = 1024;
  };

  // Whether the bytes begin as an archive with entries does.
  static bool LooksLikeZip(std::span<const std::byte> bytes);

  static StatusOr<ZipFile> Parse(std::span<const std::byte> bytes) {
    return Parse(bytes, Limits{});
  }
  static StatusOr<ZipFile> Parse(std::span<const std::byte> bytes,
                                 const Limits& limits);

  // In the order of the directory.
  const std::vector<ZipEntry>& entries() const { return entries_; }
  const ZipEntry* Find(std::string_view name) const;

 private:
  ZipFile() = default;

  std::vector<ZipEntry> entries_;
  std::unordered_map<std::string_view, size_t> index_;  // views of names
};

// The entry unpacked, its checksum compared. RESOURCE_EXHAUSTED when it is
// larger than `max_bytes`.
StatusOr<std::string> ReadEntry(const ZipEntry& entry, int64_t max_bytes);

// The same in pieces of 1 MiB at most, in order, for entries too large to hold.
// A failing `take` ends it. The checksum is compared behind the last piece: an
// error means that what was taken must not be used.
using TakePiece = std::function<Status(std::span<const std::byte>)>;
Status UnpackEntry(const ZipEntry& entry, int64_t max_bytes,
                   const TakePiece& take);

// DATA_LOSS when the bytes of a stored entry have another checksum.
Status CheckEntry(const ZipEntry& entry);

}  // namespace millrace::models
