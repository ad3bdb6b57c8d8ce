// Load time: weights into huge pages, packed from rows of a file or copied from
// what was packed before. Plain threads do it and not the compute team, because
// worker 0 of the team is the first thread to call Run, always, which is not
// the thread that loads.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <system_error>
#include <thread>

#include "models/llm/cpu/cpu_backend.h"

namespace millrace::models {
namespace {

// Calls work(i) for each i below `count` on so many threads, each index once.
// `progress` hears 0…1 on the calling thread.
void ForEach(size_t count, size_t num_threads,
             const std::function<void(size_t)>& work,
             const std::function<void(double)>& progress) {
  std::atomic<size_t> next{0};
  const auto run = [&](bool reports) {
    for (;;) {
      // Relaxed: an index is claimed once; the joins publish what was written.
      const size_t i = next.fetch_add(1, std::memory_order_relaxed);
      if (i >= count) return;
      work(i);
      if (reports && progress) {
        progress(static_cast<double>(i + 1) / static_cast<double>(count));
      }
    }
  };
  std::vector<std::thread> helpers;
  try {
    for (size_t i = 1; i < num_threads; ++i) helpers.emplace_back(run, false);
  } catch (const std::system_error&) {
    // Fewer helpers: slower, nothing else.
  }
  run(true);
  for (std::thread& helper : helpers) helper.join();
  if (progress) progress(1.0);
}

// FNV-1a, 64 bits.
uint64_t HashOf(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  }
  return hash;
}

}  // namespace

Status CpuBackend::PlaceWeights() {
  int64_t bytes = 0;
  bool twice = false;
  int64_t prompt_scratch = 0;
  for (const auto& linear : linears_) {
    linear->ChoosePromptWay(wants_prompts_in_bf16_);
    if (linear->prompts_in_bf16()) {
      prompt_scratch =
          std::max(prompt_scratch, linear->prompt_scratch_bytes(kPromptTile));
    }
    bytes += linear->packed_bytes();
    twice = twice || linear->rounds_twice();
  }
  ASSIGN_OR_RETURN(weights_,
                   HugeBuffer::Allocate(bytes, huge_pages_, "weights"));
  std::byte* at = weights_.data();
  for (const auto& linear : linears_) {
    linear->Place(at);
    at += linear->packed_bytes();
  }
  for (Private& own : private_) {
    if (prompt_scratch > 0) {
      ASSIGN_OR_RETURN(own.prompt_scratch,
                       HugeBuffer::Allocate(prompt_scratch, huge_pages_,
                                            "products of prompts"));
    }
    own.terms.resize(twice ? static_cast<size_t>(2 * kRowTile * kTermColumns)
                           : 0);
  }
  return OkStatus();
}

Status CpuBackend::PackWeights(const std::function<void(double)>& progress) {
  RETURN_IF_ERROR(PlaceWeights());
  // Work is handed out in runs of groups, so that threads write apart.
  constexpr int64_t kRun = 16;
  struct Run {
    CpuLinear* linear;
    int64_t group;
  };
  std::vector<Run> runs;
  for (const auto& linear : linears_) {
    for (int64_t g = 0; g < linear->num_groups(); g += kRun) {
      runs.push_back({linear.get(), g});
    }
  }
  ForEach(
      runs.size(), private_.size(),
      [&](size_t i) {
        const Run& run = runs[i];
        const int64_t end =
            std::min(run.group + kRun, run.linear->num_groups());
        for (int64_t g = run.group; g < end; ++g) run.linear->PackGroup(g);
      },
      progress);
  return OkStatus();
}

std::string CpuBackend::PackedLayout() const {
  std::string lines;
  for (const auto& linear : linears_) lines += linear->Layout() + "\n";
  char hash[17];
  std::snprintf(hash, sizeof hash, "%016llx",
                static_cast<unsigned long long>(HashOf(lines)));
  return std::string(kernels_.packing) + (compute_f32_ ? "-f32/" : "/") + hash;
}

Status CpuBackend::TakePacked(std::span<const std::byte> bytes,
                              const std::function<void(double)>& progress) {
  RETURN_IF_ERROR(PlaceWeights());
  if (static_cast<int64_t>(bytes.size()) != weights_.size()) {
    return InvalidArgument("packed weights have " +
                           std::to_string(bytes.size()) + " bytes; expected " +
                           std::to_string(weights_.size()));
  }
  constexpr size_t kChunk = size_t{2} << 20;
  ForEach((bytes.size() + kChunk - 1) / kChunk, private_.size(),
          [&](size_t i) {
            const size_t at = i * kChunk;
            std::memcpy(weights_.data() + at, bytes.data() + at,
                        std::min(kChunk, bytes.size() - at));
          },
          progress);
  return OkStatus();
}

}  // namespace millrace::models
