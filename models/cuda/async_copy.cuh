// Copies from the device's memory to shared memory that run while a thread goes
// on (cp.async, PTX ISA). The emulation copies when the thread waits, so a
// missing wait shows.
//
//   CopyAsync<16>(to, from, true);
//   CommitCopies();      // a group of all copies since the group before
//   WaitCopies<0>();     // all groups but the newest 0
//   __syncwarp();        // or __syncthreads: now other threads may read it
#pragma once

#include "models/cuda/device_code.cuh"

namespace millrace::cuda {

// kBytes (4 or 16) that are aligned so; `there` false: zeros, and nothing is
// read.
template <int kBytes>
__device__ __forceinline__ void CopyAsync(void* shared, const void* from,
                                          bool there) {
  static_assert(kBytes == 4 || kBytes == 16);
#if !defined(__CUDACC__)
  cuda_emulation::CopyAsync(shared, from, kBytes, there);
#elif defined(__CUDA_ARCH__)
  const auto to = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  const int bytes = there ? kBytes : 0;
  if constexpr (kBytes == 16) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;"
                 :
                 : "r"(to), "l"(from), "r"(bytes)
                 : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;"
                 :
                 : "r"(to), "l"(from), "r"(bytes)
                 : "memory");
  }
#endif
}

__device__ __forceinline__ void CommitCopies() {
#if !defined(__CUDACC__)
  cuda_emulation::CommitCopies();
#elif defined(__CUDA_ARCH__)
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

template <int kPending>
__device__ __forceinline__ void WaitCopies() {
#if !defined(__CUDACC__)
  cuda_emulation::WaitCopies(kPending);
#elif defined(__CUDA_ARCH__)
  asm volatile("cp.async.wait_group %0;" : : "n"(kPending) : "memory");
#endif
}

}  // namespace millrace::cuda
