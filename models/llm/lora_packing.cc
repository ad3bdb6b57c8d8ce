// Memory is laid out in a first pass and filled in a second one.
#include "models/llm/lora_packing.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include "models/cpu/can_pack.h"
#include "models/llm/lora_store.h"
#include "models/tensor/float16.h"

namespace millrace::models {
namespace {

constexpr int64_t kLine = 64;

// In the order of a layer: a step reads all A of such targets, then all B.
constexpr std::span<const LoraTarget> kOrder[] = {kQkvTargets, kOutputTargets,
                                                  kGateUpTargets, kDownTargets};

class Packer {
 public:
  explicit Packer(const LoraPacking& packing) : packing_(packing) {}

  // First pass: how a matrix [rows][columns] is packed; its place follows.
  LoraMatrix Place(int64_t rows, int64_t columns) {
    LoraMatrix placed;
    placed.kernels = CanPack(*packing_.kernels, Format(), columns)
                         ? packing_.kernels
                         : ScalarKernels();
    const int64_t groups =
        (rows + placed.kernels->row_group - 1) / placed.kernels->row_group;
    const int64_t bytes = placed.kernels->group_bytes(Format(), columns);
    placed.matrix = {.data = nullptr,
                     .format = Format(),
                     .n = rows,
                     .k = columns,
                     .group_bytes = bytes};
    bytes_ += (groups * bytes + kLine - 1) / kLine * kLine;
    return placed;
  }

  Status Allocate() {
    ASSIGN_OR_RETURN(memory_, HugeBuffer::Allocate(bytes_, packing_.huge_pages,
                                                   "a LoRA adapter"));
    next_ = memory_.data();
    return OkStatus();
  }

  // Second pass, in the order of the first: values times 2^exponent.
  void Fill(std::span<const float> values, int exponent, LoraMatrix& placed) {
    PackedMatrix& matrix = placed.matrix;
    const int32_t group = placed.kernels->row_group;
    std::byte* const begin = next_;
    for (int64_t row = 0; row < matrix.n; row += group) {
      const auto num_rows =
          static_cast<int32_t>(std::min<int64_t>(group, matrix.n - row));
      PackGroup(values.subspan(static_cast<size_t>(row * matrix.k)), num_rows,
                matrix.k, exponent, *placed.kernels, next_);
      next_ += matrix.group_bytes;
    }
    matrix.data = begin;
    next_ = begin + (next_ - begin + kLine - 1) / kLine * kLine;
  }

  HugeBuffer TakeMemory() { return std::move(memory_); }

 private:
  WeightFormat Format() const {
    return packing_.f32 ? WeightFormat::kF32 : WeightFormat::kF16;
  }

  void PackGroup(std::span<const float> values, int32_t num_rows,
                 int64_t columns, int exponent, const KernelTable& kernels,
                 std::byte* to) {
    std::vector<const void*> rows(static_cast<size_t>(num_rows));
    halves_.resize(static_cast<size_t>(num_rows * columns));
    for (int32_t i = 0; i < num_rows; ++i) {
      const float* from = values.data() + i * columns;
      if (packing_.f32) {
        rows[static_cast<size_t>(i)] = from;
        continue;
      }
      uint16_t* half = halves_.data() + i * columns;
      for (int64_t k = 0; k < columns; ++k) {
        half[k] = FloatToHalf(std::ldexp(from[k], exponent));
      }
      rows[static_cast<size_t>(i)] = half;
    }
    kernels.pack_group(Format(), rows.data(), num_rows, columns, to);
  }

  const LoraPacking& packing_;
  int64_t bytes_ = 0;
  HugeBuffer memory_;
  std::byte* next_ = nullptr;
  std::vector<uint16_t> halves_;
};

StatusOr<std::shared_ptr<const LoraAdapter>> PutInStore(
    const LoraFloatLayers& layers, LoraStore& store, std::string name) {
  std::vector<LoraAdapter::Layer> ranks(layers.size());
  for (size_t layer = 0; layer < layers.size(); ++layer) {
    for (size_t t = 0; t < kNumLoraTargets; ++t) {
      ranks[layer][t].rank = layers[layer][t].rank;
    }
  }
  ASSIGN_OR_RETURN(auto on_device, store.Put(layers, name));
  return std::make_shared<const LoraAdapter>(
      std::move(ranks), std::move(on_device), std::move(name));
}

}  // namespace

StatusOr<std::shared_ptr<const LoraAdapter>> PackLora(
    const LoraFloatLayers& layers, const LoraPacking& packing,
    std::string name) {
  if (packing.store != nullptr) {
    return PutInStore(layers, *packing.store, std::move(name));
  }
  std::vector<LoraAdapter::Layer> packed(layers.size());
  struct Job {
    const std::vector<float>& values;
    int64_t rows;
    int64_t columns;
    LoraMatrix& to;
    float& scale;
  };
  std::vector<Job> jobs;
  for (size_t layer = 0; layer < layers.size(); ++layer) {
    for (const std::span<const LoraTarget> targets : kOrder) {
      for (const bool is_a : {true, false}) {
        for (const LoraTarget target : targets) {
          const auto t = static_cast<size_t>(target);
          const LoraFloats& floats = layers[layer][t];
          if (floats.rank == 0) continue;
          LoraDelta& delta = packed[layer][t];
          delta.rank = floats.rank;
          const std::vector<float>& values = is_a ? floats.a : floats.b;
          const int64_t rank = floats.rank;
          const int64_t others = static_cast<int64_t>(values.size()) / rank;
          jobs.push_back({values, is_a ? rank : others, is_a ? others : rank,
                          is_a ? delta.a : delta.b, delta.scale});
        }
      }
    }
  }
  Packer packer(packing);
  for (const Job& job : jobs) job.to = packer.Place(job.rows, job.columns);
  RETURN_IF_ERROR(packer.Allocate());
  for (const Job& job : jobs) {
    const int exponent = packing.f32 ? 0 : LoraExponent(job.values);
    packer.Fill(job.values, exponent, job.to);
    job.scale = std::ldexp(job.scale, -exponent);
  }
  return std::make_shared<const LoraAdapter>(
      std::move(packed), packer.TakeMemory(), std::move(name));
}

}  // namespace millrace::models
