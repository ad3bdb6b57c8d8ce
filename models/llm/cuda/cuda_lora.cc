#include "models/llm/cuda/cuda_lora.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <utility>
#include <vector>

#include "config/base/size_text.h"
#include "models/tensor/float16.h"

namespace millrace::models {
namespace {

constexpr int64_t kLine = 128;  // matrices begin at lines of the cache
// Of all memory 1/200 is not given to adapters. Keys and values leave at least
// 1/50 of what is free at the start, so those that are named then have room.
constexpr int64_t kKeptPart = 200;

int64_t RoundUp(int64_t n, int64_t unit) {
  return (n + unit - 1) / unit * unit;
}

// A factor as the kernels read it: rows of `pitch` values, zeros behind them.
struct Factor {
  int64_t rows = 0;
  int64_t pitch = 0;
  int64_t at = 0;  // in the adapter's memory
};

class Layout {
 public:
  Layout(const LoraFloatLayers& layers, bool f32)
      : layers_(layers), value_bytes_(f32 ? 4 : 2) {
    const auto matrices = static_cast<int64_t>(layers.size() * kNumLoraTargets);
    bytes_ = RoundUp(matrices * static_cast<int64_t>(sizeof(cuda::LoraFactors)),
                     kLine);
    for (const auto& layer : layers) {
      for (const LoraFloats& floats : layer) {
        const int64_t rank = floats.rank;
        const auto a = static_cast<int64_t>(floats.a.size());
        const auto b = static_cast<int64_t>(floats.b.size());
        factors_.push_back(rank == 0 ? Factor{}
                                     : Place(RoundUp(rank, 4), a / rank));
        factors_.push_back(rank == 0 ? Factor{} : Place(rank, b / rank));
      }
    }
  }
  int64_t bytes() const { return bytes_; }

  // All of the adapter, whose memory will begin at `base` on the device.
  std::vector<std::byte> Fill(const std::byte* base) const {
    std::vector<std::byte> bytes(static_cast<size_t>(bytes_));
    std::vector<cuda::LoraFactors> table;
    const Factor* next = factors_.data();
    for (const auto& layer : layers_) {
      for (const LoraFloats& floats : layer) {
        const Factor& a = *next++;
        const Factor& b = *next++;
        cuda::LoraFactors& factors = table.emplace_back();
        if (floats.rank == 0) continue;
        const int64_t rank = floats.rank;
        const int64_t inputs = static_cast<int64_t>(floats.a.size()) / rank;
        const int64_t outputs = static_cast<int64_t>(floats.b.size()) / rank;
        const int of_a = Exponent(floats.a);
        const int of_b = Exponent(floats.b);
        for (int64_t row = 0; row < rank; ++row) {
          for (int64_t i = 0; i < inputs; ++i) {
            Store(floats.a[static_cast<size_t>(row * inputs + i)], of_a,
                  a.at + (row * a.pitch + i) * value_bytes_, bytes);
          }
          for (int64_t i = 0; i < outputs; ++i) {
            Store(floats.b[static_cast<size_t>(i * rank + row)], of_b,
                  b.at + (row * b.pitch + i) * value_bytes_, bytes);
          }
        }
        factors = {.a = base + a.at,
                   .b = base + b.at,
                   .rank = floats.rank,
                   .scale = std::ldexp(std::ldexp(1.0f, -of_a), -of_b)};
      }
    }
    std::memcpy(bytes.data(), table.data(),
                table.size() * sizeof(cuda::LoraFactors));
    return bytes;
  }

 private:
  Factor Place(int64_t rows, int64_t values) {
    const Factor placed = {rows, RoundUp(values, 8), bytes_};
    bytes_ += RoundUp(rows * placed.pitch * value_bytes_, kLine);
    return placed;
  }
  int Exponent(const std::vector<float>& values) const {
    return value_bytes_ == 4 ? 0 : LoraExponent(values);
  }
  void Store(float value, int exponent, int64_t at,
             std::vector<std::byte>& bytes) const {
    std::byte* to = bytes.data() + at;
    if (value_bytes_ == 4) {
      std::memcpy(to, &value, sizeof value);
      return;
    }
    const uint16_t half = FloatToHalf(std::ldexp(value, exponent));
    std::memcpy(to, &half, sizeof half);
  }

  const LoraFloatLayers& layers_;
  const int64_t value_bytes_;
  std::vector<Factor> factors_;  // A and B of each matrix of each layer
  int64_t bytes_ = 0;
};

}  // namespace

StatusOr<std::shared_ptr<const LoraOnDevice>> CudaLoraStore::Put(
    const LoraFloatLayers& layers, const std::string& name) {
  const Layout layout(layers, f32_);
  int32_t rank = 0;
  for (const auto& layer : layers) {
    for (const LoraFloats& floats : layer) rank = std::max(rank, floats.rank);
  }
  MutexLock lock(mu_);
  if (context_ == nullptr) {
    ASSIGN_OR_RETURN(
        context_,
        CudaContext::Open(
            module_, ordinal_,
            {.setting = "",
             .remedy = "unload another adapter, or lower "
                       "gpu_memory_utilization or kv_cache_memory_bytes"}));
  }
  RETURN_IF_ERROR(CheckFits(layout.bytes(), name));
  ASSIGN_OR_RETURN(
      CudaBuffer memory,
      context_->Allocate(layout.bytes(), "the LoRA adapter '" + name + "'"));
  const std::vector<std::byte> bytes = layout.Fill(memory.data());
  RETURN_IF_ERROR(
      context_->Upload(memory.data(), bytes.data(), layout.bytes()));
  RETURN_IF_ERROR(context_->Wait());
  held_bytes_ += layout.bytes();
  return std::make_shared<const CudaLora>(shared_from_this(), std::move(memory),
                                          layout.bytes(), rank);
}

Status CudaLoraStore::CheckFits(int64_t num_bytes,
                                const std::string& name) const {
  // What is free now, which a device tells when it is opened.
  ASSIGN_OR_RETURN(const std::shared_ptr<CudaContext> now,
                   CudaContext::Open(module_, ordinal_, {}));
  const cuda::Device& device = now->device();
  const int64_t kept = device.total_bytes / kKeptPart;
  const int64_t room = std::max<int64_t>(device.free_bytes - kept, 0);
  if (num_bytes <= room) return OkStatus();
  return ResourceExhausted(
      "the LoRA adapter '" + name + "' takes " + SizeText(num_bytes) +
      " of cuda:" + std::to_string(ordinal_) + ", which has " + SizeText(room) +
      " left for adapters: " + SizeText(device.free_bytes) + " are free, " +
      SizeText(kept) + " of them stay so, and adapters hold " +
      SizeText(held_bytes_) +
      "; unload another adapter, or lower gpu_memory_utilization or "
      "kv_cache_memory_bytes");
}

void CudaLoraStore::Release(CudaBuffer memory, int64_t num_bytes) {
  // The context is used by one thread at a time.
  MutexLock lock(mu_);
  held_bytes_ -= num_bytes;
  const CudaBuffer released = std::move(memory);
}

}  // namespace millrace::models
