// Runs kernels on the CPU: included before a kernel's own source (-include), it
// gives what nvcc would have given. A block's threads are fibers on one thread
// of the host and meet at barriers and in warps; blocks run one after the
// other. Both orders are random, from a seed, so that a kernel that relies on
// one gives another result with another seed.
//
//   cuda_emulation::SetSeed(7);
//   cuda_emulation::RunGrid({blocks, 1, 1}, {128, 1, 1}, shared_bytes,
//                       [&] { Kernel(args); });
//
// What is wrong stops the process and says where: a barrier that not all
// threads reach, a shuffle that lanes of a warp have left, two lanes in
// different shuffles. Shared memory holds NaN at the start of each block.
// Memory of AllocateDevice ends at a page that cannot be touched.
//
// Thread-safe: grids of several threads run one after the other.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <vector>

#define MILLRACE_CUDA_EMULATION 1
#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1)
      : x(x_), y(y_), z(z_) {}
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(16) int4 {
  int x, y, z, w;
};
struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};

namespace cuda_emulation {

struct Place {
  dim3 thread, block, block_dim, grid_dim;
};
// Of the thread that runs.
extern const Place* here;
inline const Place& Here() { return *here; }
std::byte* SharedMemory();

void SetSeed(uint64_t seed);
void RunGrid(dim3 grid, dim3 block, size_t shared_bytes,
             const std::function<void()>& body);

// What a stream does: work runs at once, or while this thread records (null:
// no longer) it is kept there, as a stream's work is while a graph is captured.
using Recording = std::vector<std::function<void()>>;
void Record(Recording* recording);
void Do(std::function<void()> work);

// Zeroed; free with FreeDevice. Null when the size is absurd.
void* AllocateDevice(int64_t bytes, int device = 0);
void FreeDevice(void* memory);
// Bytes that are allocated now on the device.
int64_t AllocatedBytes(int device = 0);

void Barrier();
// Each lane of the warp gives `in`, then reads what all gave: 32 places of
// `size` bytes. `what` names the operation: the same in all lanes.
const void* Exchange(const char* what, const void* in, size_t size);

template <typename T>
T Shuffle(const char* what, T value, int from) {
  const auto* all =
      static_cast<const std::byte*>(Exchange(what, &value, sizeof value));
  std::memcpy(&value, all + (from & 31) * sizeof value, sizeof value);
  return value;
}
inline int Lane() { return static_cast<int>(Here().thread.x % 32); }

// mma.m16n8k16 by loops, in the order of the inputs; what each lane holds:
// models/cuda/tensor_core.cuh. `value` gives what 16 bits are worth.
void MultiplyFragment(const uint32_t x[4], const uint32_t w[2], float sums[4],
                      float (*value)(uint16_t));
// ldmatrix.x4, likewise.
void LoadFragments(const void* row, uint32_t out[4], bool transposed);

// cp.async: models/cuda/async_copy.cuh. A thread's copies are made when it
// waits for them, no earlier; those that no thread waits for never.
void CopyAsync(void* to, const void* from, int bytes, bool there);
void CommitCopies();
void WaitCopies(int pending);
// mma.m16n8k8 of tf32 likewise: models/cuda/graph_fragments.cuh.
void MultiplyTf32(const uint32_t x[4], const uint32_t w[2], float sums[4]);
// mma.m16n8k32 of bytes without sign by bytes with one, and dp4a of the same:
// models/cuda/byte_products.cuh. Sums wrap around.
void MultiplyBytes(const uint32_t x[4], const uint32_t w[2], int32_t sums[4]);
inline int32_t DotBytes(uint32_t x, uint32_t w, int32_t sum) {
  auto total = static_cast<uint32_t>(sum);
  for (int i = 0; i < 32; i += 8) {
    const int32_t product =
        static_cast<int32_t>(x >> i & 255) * static_cast<int8_t>(w >> i & 255);
    total += static_cast<uint32_t>(product);
  }
  return static_cast<int32_t>(total);
}

}  // namespace cuda_emulation

#define threadIdx (cuda_emulation::Here().thread)
#define blockIdx (cuda_emulation::Here().block)
#define blockDim (cuda_emulation::Here().block_dim)
#define gridDim (cuda_emulation::Here().grid_dim)

inline void __syncthreads() { cuda_emulation::Barrier(); }
inline void __syncwarp() {
  const char nothing = 0;
  cuda_emulation::Exchange("syncwarp", &nothing, 1);
}
template <typename T>
T __shfl_xor_sync(unsigned, T value, int mask) {
  return cuda_emulation::Shuffle("shfl_xor", value,
                                 cuda_emulation::Lane() ^ mask);
}
template <typename T>
T __shfl_sync(unsigned, T value, int from) {
  return cuda_emulation::Shuffle("shfl", value, from);
}
inline unsigned __ballot_sync(unsigned, int predicate) {
  int all[32];
  std::memcpy(all, cuda_emulation::Exchange("ballot", &predicate, sizeof(int)),
              sizeof all);
  unsigned bits = 0;
  for (int i = 0; i < 32; ++i) bits |= (all[i] != 0 ? 1u : 0u) << i;
  return bits;
}
inline int __dp4a(int a, int b, int c) {
  for (int i = 0; i < 4; ++i) {
    c += static_cast<int>(static_cast<int8_t>(a >> 8 * i)) *
         static_cast<int>(static_cast<int8_t>(b >> 8 * i));
  }
  return c;
}
// Byte i of the result is the byte of b:a that nibble i of the selector names.
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selector) {
  const uint64_t both = uint64_t{b} << 32 | a;
  unsigned bytes = 0;
  for (unsigned i = 0; i < 4; ++i) {
    const unsigned from = selector >> 4 * i & 7;
    bytes |= static_cast<unsigned>(both >> 8 * from & 255) << 8 * i;
  }
  return bytes;
}
inline float __fmul_rn(float a, float b) { return a * b; }
inline unsigned long long __umul64hi(unsigned long long a,
                                     unsigned long long b) {
  return static_cast<unsigned long long>(
      static_cast<unsigned __int128>(a) * b >> 64);
}
inline int __popc(unsigned bits) { return __builtin_popcount(bits); }
// The place of the lowest bit, from 1.
inline int __ffs(int bits) { return __builtin_ffs(bits); }
using std::isinf;
using std::isnan;
using std::max;
using std::min;
