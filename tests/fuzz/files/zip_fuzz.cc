// Arbitrary bytes as a ZIP archive; every entry is found, unpacked, summed.
#include <cstddef>
#include <cstdint>
#include <span>

#include "models/files/zip.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace::models;
  const auto zip = ZipFile::Parse(std::as_bytes(std::span(data, size)));
  if (!zip.ok()) return 0;
  size_t touched = 0;
  for (const ZipEntry& entry : zip->entries()) {
    if (zip->Find(entry.name) != &entry) __builtin_trap();
    touched += entry.bytes.size();
    const auto text = ReadEntry(entry, 1 << 20);
    if (text.ok() && static_cast<int64_t>(text->size()) != entry.size) {
      __builtin_trap();
    }
  }
  if (touched > size) __builtin_trap();  // entries overlap
  return 0;
}
