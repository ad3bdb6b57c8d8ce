// Memory is laid out in a first pass and filled in a second one.
#include "models/llm/lora_packing.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <span>
#include <utility>

#include "models/cpu/can_pack.h"
#include "models/llm/lora_store.h"
#include "models/tensor/float16.h"
#include "models/tensor/quant.h"

namespace millrace::models {
namespace {

constexpr int64_t kLine = 64;

// In the order of a layer: a step reads all A of such targets, then all B.
constexpr std::span<const LoraTarget> kOrder[] = {kQkvTargets, kOutputTargets,
                                                  kGateUpTargets, kDownTargets};

// What the kernels see of a matrix in int8: rows of whole blocks.
struct Blocks {
  int64_t rows = 0;
  int64_t columns = 0;
  std::vector<float> values;
};

Blocks BlocksOfA(std::span<const float> a, int64_t rank, int64_t inputs) {
  Blocks blocks = {.rows = rank, .columns = LoraBlocks(inputs), .values = {}};
  blocks.values.resize(static_cast<size_t>(rank * blocks.columns));
  for (int64_t row = 0; row < rank; ++row) {
    std::copy_n(a.data() + row * inputs, inputs,
                blocks.values.data() + row * blocks.columns);
  }
  return blocks;
}

Blocks BlocksOfB(std::span<const float> b, int64_t outputs, int64_t rank) {
  const int64_t a_row = OutputsARow(static_cast<int32_t>(rank));
  const int64_t tile = kLoraTile * a_row;
  Blocks blocks = {.rows = (outputs + tile - 1) / tile * kLoraTile,
                   .columns = LoraBlocks(rank),
                   .values = {}};
  blocks.values.resize(static_cast<size_t>(blocks.rows * blocks.columns));
  const int64_t part = blocks.columns / a_row;
  for (int64_t output = 0; output < outputs; ++output) {
    const int64_t in_tile = output % tile;
    const int64_t row = output / tile * kLoraTile + in_tile % kLoraTile;
    std::copy_n(b.data() + output * rank, rank,
                blocks.values.data() + row * blocks.columns +
                    in_tile / kLoraTile * part);
  }
  return blocks;
}

class Packer {
 public:
  explicit Packer(const LoraPacking& packing) : packing_(packing) {}

  // First pass: how a matrix [rows][columns] is packed; its place follows.
  LoraMatrix Place(int64_t rows, int64_t columns) {
    LoraMatrix placed;
    // Float rows are f32, which a table with rounded rows does not take beside
    // BF16.
    const KernelTable* kernels = packing_.kernels;
    if (Format() == WeightFormat::kBF16 && kernels->round_row != nullptr) {
      kernels = Avx512VnniKernels();
    }
    placed.kernels = kernels != nullptr && CanPack(*kernels, Format(), columns)
                         ? kernels
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
    switch (packing_.dtype) {
      case LoraDtype::kF16:
        return WeightFormat::kF16;
      case LoraDtype::kBF16:
        return WeightFormat::kBF16;
      case LoraDtype::kF32:
        return WeightFormat::kF32;
      case LoraDtype::kInt8:
        return WeightFormat::kQ8_0;
    }
    return WeightFormat::kF16;
  }

  void PackGroup(std::span<const float> values, int32_t num_rows,
                 int64_t columns, int exponent, const KernelTable& kernels,
                 std::byte* to) {
    std::vector<const void*> rows(static_cast<size_t>(num_rows));
    row_bytes_.resize(static_cast<size_t>(num_rows));
    scaled_.resize(static_cast<size_t>(columns));
    for (int32_t i = 0; i < num_rows; ++i) {
      const float* from = values.data() + i * columns;
      for (int64_t k = 0; k < columns; ++k) {
        scaled_[static_cast<size_t>(k)] = std::ldexp(from[k], exponent);
      }
      std::vector<std::byte>& row = row_bytes_[static_cast<size_t>(i)];
      row.resize(static_cast<size_t>(columns) * sizeof(float));
      Round(row.data());
      rows[static_cast<size_t>(i)] = row.data();
    }
    kernels.pack_group(Format(), rows.data(), num_rows, columns, to);
  }

  // scaled_ in the format's own bytes, as a file has them.
  void Round(std::byte* to) const {
    const auto columns = static_cast<int64_t>(scaled_.size());
    if (packing_.dtype == LoraDtype::kF32) {
      std::copy_n(scaled_.data(), columns, reinterpret_cast<float*>(to));
      return;
    }
    if (packing_.dtype == LoraDtype::kInt8) {
      CHECK(QuantizeRow(GgmlType::kQ8_0, scaled_.data(), columns, to),
            "rows in int8 are whole blocks");
      return;
    }
    auto* halves = reinterpret_cast<uint16_t*>(to);
    const auto round =
        packing_.dtype == LoraDtype::kF16 ? FloatToHalf : FloatToBFloat16;
    std::transform(scaled_.begin(), scaled_.end(), halves, round);
  }

  const LoraPacking& packing_;
  int64_t bytes_ = 0;
  HugeBuffer memory_;
  std::byte* next_ = nullptr;
  std::vector<std::vector<std::byte>> row_bytes_;  // of a group
  std::vector<float> scaled_;                      // one row
};

StatusOr<std::shared_ptr<const LoraAdapter>> PutInStore(
    const LoraFloatLayers& layers, LoraStore& store, LoraDtype dtype,
    std::string name) {
  std::vector<LoraAdapter::Layer> ranks(layers.size());
  for (size_t layer = 0; layer < layers.size(); ++layer) {
    for (size_t t = 0; t < kNumLoraTargets; ++t) {
      ranks[layer][t].rank = layers[layer][t].rank;
    }
  }
  ASSIGN_OR_RETURN(auto on_device, store.Put(layers, name));
  return std::make_shared<const LoraAdapter>(
      std::move(ranks), dtype, std::move(on_device), std::move(name));
}

}  // namespace

StatusOr<std::shared_ptr<const LoraAdapter>> PackLora(
    const LoraFloatLayers& layers, const LoraPacking& packing,
    std::string name) {
  if (packing.store != nullptr) {
    return PutInStore(layers, *packing.store, packing.dtype, std::move(name));
  }
  std::vector<LoraAdapter::Layer> packed(layers.size());
  const bool int8 = packing.dtype == LoraDtype::kInt8;
  std::deque<Blocks> blocks;  // of int8, while they are packed
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
          LoraMatrix& to = is_a ? delta.a : delta.b;
          if (!int8) {
            jobs.push_back({values, is_a ? rank : others, is_a ? others : rank,
                            to, delta.scale});
            continue;
          }
          delta.outputs_a_row = OutputsARow(floats.rank);
          const Blocks& rows =
              blocks.emplace_back(is_a ? BlocksOfA(values, rank, others)
                                       : BlocksOfB(values, others, rank));
          jobs.push_back(
              {rows.values, rows.rows, rows.columns, to, delta.scale});
        }
      }
    }
  }
  Packer packer(packing);
  for (const Job& job : jobs) job.to = packer.Place(job.rows, job.columns);
  RETURN_IF_ERROR(packer.Allocate());
  for (const Job& job : jobs) {
    const bool scales = int8 || packing.dtype == LoraDtype::kF16;
    const int exponent = scales ? LoraExponent(job.values) : 0;
    packer.Fill(job.values, exponent, job.to);
    job.scale = std::ldexp(job.scale, -exponent);
  }
  return std::make_shared<const LoraAdapter>(
      std::move(packed), packing.dtype, packer.TakeMemory(), std::move(name));
}

}  // namespace millrace::models
