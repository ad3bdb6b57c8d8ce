// What this machine can do at best, measured in registers or in one pass over
// memory: the yardsticks a kernel's speed is printed beside. One thread.
#pragma once

#include <cstdint>

namespace millrace::bench {

struct Roofline {
  double integer_gmacs = 0;  // u8 x s8 into 32 bits, the table's own way
  double float_gmacs = 0;    // f32 fma
  double bf16_gmacs = 0;     // pairs of bf16; 0 if the table has none
};

// For a table of that name, which the machine must be able to run.
Roofline MeasureRoofline(const char* isa);

// Reads a buffer once, as fast as one thread can.
void ReadOnce(const void* data, int64_t bytes);
// Bytes a second of one thread reading a buffer once, in GB/s.
double MeasureReadGbs(const void* data, int64_t bytes);

// Seconds on a monotonic clock.
double Now();

}  // namespace millrace::bench
