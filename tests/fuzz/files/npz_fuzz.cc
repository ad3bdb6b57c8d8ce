// Arbitrary bytes as one array and as an archive of arrays.
#include <cstddef>
#include <cstdint>
#include <span>

#include "models/files/npz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace::models;
  const auto bytes = std::as_bytes(std::span(data, size));
  const NpzLimits limits{.max_bytes = 1 << 20, .max_arrays = 64};
  (void)ParseNpy(bytes, limits);
  const auto arrays = ParseNpz(bytes, limits);
  if (!arrays.ok()) return 0;
  int64_t sum = 0;
  for (const NamedTensor& array : *arrays) sum += array.tensor.num_bytes();
  if (sum > limits.max_bytes) __builtin_trap();
  return 0;
}
