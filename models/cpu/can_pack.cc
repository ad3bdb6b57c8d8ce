#include "models/cpu/can_pack.h"

#include <cstddef>
#include <vector>

namespace millrace::models {

// Asked with no rows.
bool CanPack(const KernelTable& kernels, WeightFormat format, int64_t k) {
  std::vector<std::byte> group(
      static_cast<size_t>(kernels.group_bytes(format, k)) + 64);
  const auto address = reinterpret_cast<uintptr_t>(group.data());
  std::byte* aligned = group.data() + (64 - address % 64) % 64;
  return kernels.pack_group(format, nullptr, 0, k, aligned);
}

}  // namespace millrace::models
