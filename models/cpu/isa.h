// Which kernel tables this machine may run: the CPU must have the instructions
// and the operating system must save their registers.
//
//   ASSIGN_OR_RETURN(const KernelTable* kernels, ChooseKernels("auto"));
//
// Thread-safe: asks the CPU anew at every call and keeps nothing. On a CPU with
// AMX every call also asks the operating system, for the whole process, to save
// its tiles (arch_prctl); it may refuse.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "config/base/status.h"
#include "models/cpu/graph_int8_kernels.h"
#include "models/cpu/graph_kernels.h"
#include "models/cpu/llm_kernels.h"

namespace millrace::models {

struct IsaChoice {
  const char* name;            // as --isa takes it: "scalar", "avx2", …
  const KernelTable* kernels;  // null: not compiled in
  std::string missing;         // what is missing here; empty: usable
  bool automatic = true;       // "auto" may choose it
  std::string left_out;        // why not, where it could run; else empty
  // Where its results are not the bits that the other tables all give; empty:
  // nowhere. Why: models/README.md.
  std::vector<std::string> other_bits = {};
};

// Every table the product knows, slowest first.
std::vector<IsaChoice> ListKernels();

// "auto" is the last usable table of the list that it may choose. Tables of
// bf16 pairs are chosen where they are faster than f32 (bf16_rate.h). A name
// forces that table, and one that cannot run here is an error that names what
// is missing.
StatusOr<const KernelTable*> ChooseKernels(std::string_view wanted);

// The same for the f32 kernels of graphs, which know four kinds: "scalar",
// "avx2", "avx512", "neon", or "auto". A name of a table above stands for the
// widest that its instructions include; whether that table itself could run
// does not matter.
StatusOr<const DenseTable*> ChooseDense(std::string_view wanted);
// The same for the int8 kernels of graphs: "scalar", "avx2", "avxvnni",
// "avx512vnni", "avx512vbmi", "amx", "neon", "neondot", "neoni8mm", or "auto";
// "avx512" and "avx512bf16" stand for what of AVX-512 this machine has.
StatusOr<const Int8Table*> ChooseInt8(std::string_view wanted);

// Why "auto" takes the table that it takes, for a log: what keeps each faster
// one from being chosen, or that nothing faster is known. `choices` is a list
// as of ListKernels.
std::string WhyAuto(const std::vector<IsaChoice>& choices);

// The products of bf16 that go with `wanted`, a name that ChooseDense takes:
// those in tiles for "auto" and "amx" where this machine has AMX, else those of
// AVX-512 BF16; null where this machine, or what the name stands for, has none
// that are faster than those of f32. "avx512bf16" forces them.
const DenseProducts* FindBf16Products(std::string_view wanted);

// Whether memory that is read once should be asked for in all caches
// (prefetcht0) rather than the nearest alone (prefetchnta): true on Intel.
// Measured: attention of single rows that asks 8 KiB ahead decodes 1.8 times as
// fast with prefetcht0 on an Intel Xeon with AMX; on AMD (family 26)
// prefetchnta is faster.
bool AsksAllCaches();

}  // namespace millrace::models
