// Asks for a line of memory that will be written.
#pragma once

namespace millrace::models {
namespace {

// The compiler's own function would ask for reading.
inline void AskToWrite(const void* p) {
  asm volatile("prefetchw %[line]"
               :
               : [line] "m"(*static_cast<const char*>(p)));
}

}  // namespace
}  // namespace millrace::models
