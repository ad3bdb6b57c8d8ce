// Arbitrary bytes as a GGUF file with an encoder of images: refused, or a
// configuration whose sizes divide each other and stay within the limits.
#include <cstddef>
#include <cstdint>
#include <span>

#include "config/base/status.h"
#include "models/files/gguf.h"
#include "models/vision/mmproj.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace::models;
  const auto file = GgufFile::Parse(std::as_bytes(std::span(data, size)));
  if (!file.ok()) return 0;
  const auto read = vision::ReadMmproj(*file);
  if (!read.ok()) {
    CHECK(!read.status().message().empty(), "a refusal says why");
    return 0;
  }
  CHECK(read->hidden % read->heads == 0, "heads divide the row");
  CHECK(read->patch <= read->tile && read->tile <= 2048, "a tile");
  CHECK(read->patches_per_side() % read->scale == 0, "patches become rows");
  CHECK(read->longest_edge <= 16 * read->tile, "tiles of a side");
  for (const double value : read->std) CHECK(value > 0, "a divisor");
  return 0;
}
