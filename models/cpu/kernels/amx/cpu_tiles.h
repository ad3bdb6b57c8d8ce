// The tile instructions of AMX as functions (Intel SDM volume 2, chapter on
// AMX). Kernels are written over a type `Tiles` with these members, so that
// tests can run them over an emulation on a CPU without AMX.
//
// Tiles are registers of a thread: configured by each call that uses them and
// released at its end, so that a thread switch does not save them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "models/cpu/kernels/amx/tile_config.h"

namespace millrace::models {
namespace {

// Assembly because the compiler's own functions take tile numbers as text and
// do not say that a load reads memory.
struct CpuTiles {
  void Configure(const TileConfig& config) {
    asm volatile("ldtilecfg %[config]" : : [config] "m"(config));
  }
  void Release() { asm volatile("tilerelease"); }

  template <int kTile>
  void Zero() {
    asm volatile("tilezero %%tmm%c[tile]" : : [tile] "i"(kTile));
  }
  template <int kTile>
  void Load(const void* from, int64_t stride) {
    asm volatile("tileloadd (%[from],%[stride],1), %%tmm%c[tile]"
                 :
                 : [tile] "i"(kTile), [from] "r"(from), [stride] "r"(stride)
                 : "memory");
  }
  // As Load, of what is read once: it takes no room in L1 from what is read
  // again. 1.25 to 1.3 times the speed where the other operand stays there.
  template <int kTile>
  void LoadStreamed(const void* from, int64_t stride) {
    asm volatile("tileloaddt1 (%[from],%[stride],1), %%tmm%c[tile]"
                 :
                 : [tile] "i"(kTile), [from] "r"(from), [stride] "r"(stride)
                 : "memory");
  }
  template <int kTile>
  void Store(void* to, int64_t stride) {
    asm volatile("tilestored %%tmm%c[tile], (%[to],%[stride],1)"
                 :
                 : [tile] "i"(kTile), [to] "r"(to), [stride] "r"(stride)
                 : "memory");
  }
  template <int kC, int kA, int kB>
  void DotSignedSigned() {
    asm volatile("tdpbssd %%tmm%c[b], %%tmm%c[a], %%tmm%c[c]"
                 :
                 : [a] "i"(kA), [b] "i"(kB), [c] "i"(kC));
  }
  template <int kC, int kA, int kB>
  void DotSignedUnsigned() {
    asm volatile("tdpbsud %%tmm%c[b], %%tmm%c[a], %%tmm%c[c]"
                 :
                 : [a] "i"(kA), [b] "i"(kB), [c] "i"(kC));
  }
  template <int kC, int kA, int kB>
  void DotUnsignedSigned() {
    asm volatile("tdpbusd %%tmm%c[b], %%tmm%c[a], %%tmm%c[c]"
                 :
                 : [a] "i"(kA), [b] "i"(kB), [c] "i"(kC));
  }
  template <int kC, int kA, int kB>
  void DotBf16() {
    asm volatile("tdpbf16ps %%tmm%c[b], %%tmm%c[a], %%tmm%c[c]"
                 :
                 : [a] "i"(kA), [b] "i"(kB), [c] "i"(kC));
  }
};

}  // namespace
}  // namespace millrace::models
