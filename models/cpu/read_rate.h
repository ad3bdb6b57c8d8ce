// What a team can read from memory at best: the ceiling that the speed of
// decoding is shown beside.
//
//   roofline.read_bytes_per_s = MeasureReadRate(pool, weights.data(), bytes);
#pragma once

#include <cstddef>
#include <cstdint>

#include "models/cpu/compute_pool.h"

namespace millrace::models {

// Reads memory once on the calling thread with the widest loads of this CPU,
// asking for each line 4 KiB ahead. The width is what matters: two cores of an
// Intel Xeon read 100 MB that stay in L3 at 22 to 30 GB/s by 16-byte loads, 40
// to 47 by 32 and 53 to 57 by 64; from DRAM all reach 27 to 31. Whole 256
// bytes; what is left of `bytes` is not read.
void ReadOnce(const std::byte* data, int64_t bytes);

// Bytes a second of all members together, each reading its part of the same
// bytes over and over: the best of five passes after two that warm the caches.
// So the answer is that of the level of memory where so many bytes stay, as
// weights do that every step reads anew. 2 GiB at most are read, which no cache
// holds. Once 60 ms are gone, one pass to warm up and one that counts are
// enough: long passes need no repetition. 0 for less than 256 bytes.
//
// Called by the thread that may call pool.Run.
double MeasureReadRate(ComputePool& pool, const std::byte* data, int64_t bytes);

}  // namespace millrace::models
