// The table of kernels with vectors that tests take as given on a machine of
// this architecture; the same name for language models and for graphs.
#pragma once

namespace millrace {

#if defined(__aarch64__)
inline constexpr const char* kVectorIsa = "neon";
#else
inline constexpr const char* kVectorIsa = "avx2";
#endif

}  // namespace millrace
