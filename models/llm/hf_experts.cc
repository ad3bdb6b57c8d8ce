#include "models/llm/hf_experts.h"

#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <utility>

#include "models/tensor/quant.h"

namespace millrace::models {
namespace {

constexpr std::string_view kLayers = "model.layers.";
constexpr int64_t kBlockValues = 32;
constexpr int64_t kBlockBytes = 17;  // of MXFP4: a scale, 16 bytes of codes

// Which outputs of one of the folder's matrices a matrix of ours has: the first
// or the second of each two, or of its halves, or all.
struct Outputs {
  std::string_view ours;
  int64_t part;
  int64_t parts;
  bool alternate = true;

  int64_t step() const { return alternate ? parts : 1; }
  int64_t First(int64_t all) const {
    return alternate ? part : part * (all / parts);
  }
};
constexpr Outputs kGateUp[] = {{"ffn_gate_exps", 0, 2}, {"ffn_up_exps", 1, 2}};
constexpr Outputs kHalves[] = {{"ffn_gate_exps", 0, 2, false},
                               {"ffn_up_exps", 1, 2, false}};
constexpr Outputs kDown[] = {{"ffn_down_exps", 0, 1}};

std::optional<GgmlType> FloatTypeOf(std::string_view dtype) {
  if (dtype == "F32") return GgmlType::kF32;
  if (dtype == "F16") return GgmlType::kF16;
  if (dtype == "BF16") return GgmlType::kBF16;
  return {};
}

Status Misshapen(const SafetensorsTensor& tensor, std::string_view wanted) {
  std::string shape;
  for (const int64_t n : tensor.shape) {
    shape += (shape.empty() ? "" : " x ") + std::to_string(n);
  }
  return InvalidArgument("tensor '" + tensor.name + "' is " + shape + " of " +
                         std::string(tensor.dtype) + "; expected " +
                         std::string(wanted));
}

FileTensor TensorOf(const SafetensorsTensor& from, GgmlType type, int64_t k,
                    int64_t rows, int64_t experts,
                    const std::vector<std::byte>& data) {
  const GgmlTypeInfo& info = InfoOf(type);
  FileTensor out{};
  out.name = from.name;
  out.type = type;
  out.num_dims = experts > 0 ? 3 : 2;
  out.dims = {k, rows, experts > 0 ? experts : 1, 1};
  out.num_elements = k * rows * (experts > 0 ? experts : 1);
  out.row_bytes = k / info.block_values * info.block_bytes;
  out.data = data;
  return out;
}

// [experts][inputs][outputs] of floats to [experts][some outputs][inputs].
StatusOr<FileTensor> TurnFloats(const SafetensorsTensor& from,
                                const Outputs& wanted,
                                HfExperts::Memory& memory) {
  const auto type = FloatTypeOf(from.dtype);
  if (!type || from.shape.size() != 3 || from.num_elements == 0 ||
      from.shape[2] % wanted.parts != 0) {
    return Misshapen(from, "[experts][inputs][outputs] of F32, F16 or BF16");
  }
  const int64_t experts = from.shape[0];
  const int64_t inputs = from.shape[1];
  const int64_t all = from.shape[2];
  const int64_t outputs = all / wanted.parts;
  const auto size = static_cast<size_t>(InfoOf(*type).block_bytes);
  std::vector<std::byte>& data = memory.emplace_back(
      static_cast<size_t>(experts * inputs * outputs) * size);
  std::byte* to = data.data();
  for (int64_t e = 0; e < experts; ++e) {
    for (int64_t o = 0; o < outputs; ++o) {
      const int64_t column = wanted.First(all) + o * wanted.step();
      for (int64_t i = 0; i < inputs; ++i, to += size) {
        const int64_t at = (e * inputs + i) * all + column;
        std::memcpy(to, from.data.data() + static_cast<size_t>(at) * size,
                    size);
      }
    }
  }
  return TensorOf(from, *type, inputs, outputs, experts, data);
}

// Codes of neighbours in a byte to codes half a block apart.
void RepackBlock(const std::byte* codes, std::byte scale, std::byte* out) {
  const auto code = [&](int i) {
    const auto byte = std::to_integer<unsigned>(codes[i / 2]);
    return i % 2 == 0 ? byte & 15 : byte >> 4;
  };
  out[0] = scale;
  for (int i = 0; i < 16; ++i) {
    out[1 + i] = static_cast<std::byte>(code(i) | code(i + 16) << 4);
  }
}

StatusOr<FileTensor> RepackBlocks(const SafetensorsTensor& blocks,
                                  const SafetensorsTensor& scales,
                                  const Outputs& wanted,
                                  HfExperts::Memory& memory) {
  if (blocks.dtype != "U8" || blocks.shape.size() != 4 ||
      blocks.num_elements == 0 || blocks.shape[3] != kBlockValues / 2 ||
      blocks.shape[1] % wanted.parts != 0) {
    return Misshapen(blocks, "[experts][outputs][blocks][16] of U8");
  }
  if (scales.dtype != "U8" ||
      scales.shape !=
          std::vector<int64_t>(blocks.shape.begin(), blocks.shape.end() - 1)) {
    return Misshapen(scales, "one scale of U8 for each block");
  }
  const int64_t experts = blocks.shape[0];
  const int64_t all = blocks.shape[1];
  const int64_t per_row = blocks.shape[2];
  const int64_t outputs = all / wanted.parts;
  std::vector<std::byte>& data = memory.emplace_back(
      static_cast<size_t>(experts * outputs * per_row * kBlockBytes));
  std::byte* to = data.data();
  for (int64_t e = 0; e < experts; ++e) {
    for (int64_t o = 0; o < outputs; ++o) {
      const int64_t row = e * all + wanted.First(all) + o * wanted.step();
      for (int64_t b = 0; b < per_row; ++b, to += kBlockBytes) {
        const auto at = static_cast<size_t>(row * per_row + b);
        RepackBlock(blocks.data.data() + at * (kBlockValues / 2),
                    scales.data[at], to);
      }
    }
  }
  return TensorOf(blocks, GgmlType::kMXFP4, per_row * kBlockValues, outputs,
                  experts, data);
}

// [experts][outputs] to [experts][some outputs].
StatusOr<FileTensor> PickBiases(const SafetensorsTensor& from,
                                const Outputs& wanted,
                                HfExperts::Memory& memory) {
  const auto type = FloatTypeOf(from.dtype);
  if (!type || from.shape.size() != 2 || from.num_elements == 0 ||
      from.shape[1] % wanted.parts != 0) {
    return Misshapen(from, "[experts][outputs] of F32, F16 or BF16");
  }
  const int64_t outputs = from.shape[1] / wanted.parts;
  const auto size = static_cast<size_t>(InfoOf(*type).block_bytes);
  std::vector<std::byte>& data =
      memory.emplace_back(static_cast<size_t>(from.shape[0] * outputs) * size);
  std::byte* to = data.data();
  for (int64_t e = 0; e < from.shape[0]; ++e) {
    for (int64_t o = 0; o < outputs; ++o, to += size) {
      const int64_t at =
          e * from.shape[1] + wanted.First(from.shape[1]) + o * wanted.step();
      std::memcpy(to, from.data.data() + static_cast<size_t>(at) * size, size);
    }
  }
  return TensorOf(from, *type, outputs, from.shape[0], 0, data);
}

}  // namespace

bool HasExpertBlocks(std::string_view architecture) {
  return architecture == "gpt-oss" || architecture == "llama4";
}

HfExperts::HfExperts(std::string_view architecture)
    : part_(architecture == "llama4" ? ".feed_forward.experts."
                                     : ".mlp.experts."),
      alternate_(architecture != "llama4") {}

bool HfExperts::Take(std::string_view name, const SafetensorsTensor& tensor) {
  if (!name.starts_with(kLayers)) return false;
  const size_t part = name.find(part_, kLayers.size());
  if (part == std::string_view::npos) return false;
  const std::string_view what = name.substr(part + part_.size());
  if (!what.starts_with("gate_up_proj") && !what.starts_with("down_proj")) {
    return false;
  }
  tensors_.emplace(name, &tensor);
  return true;
}

StatusOr<HfExperts::Made> HfExperts::Make(Memory& memory) const {
  Made made;
  for (const auto& [name, tensor] : tensors_) {
    const size_t part = name.find(part_);
    const std::string blk =
        "blk." + name.substr(kLayers.size(), part - kLayers.size()) + ".";
    std::string_view what(name);
    what.remove_prefix(part + part_.size());
    const bool both = what.starts_with("gate_up_proj");
    const std::string_view kind = what.substr(
        std::string_view(both ? "gate_up_proj" : "down_proj").size());
    if (kind == "_scales") continue;  // read with the blocks
    for (const Outputs& wanted : !both ? std::span<const Outputs>(kDown)
                                 : alternate_
                                     ? std::span<const Outputs>(kGateUp)
                                     : std::span<const Outputs>(kHalves)) {
      if (kind == "_blocks") {
        const std::string scales_name =
            name.substr(0, name.size() - kind.size()) + "_scales";
        const auto scales = tensors_.find(scales_name);
        if (scales == tensors_.end()) {
          return InvalidArgument("the folder has no tensor '" + scales_name +
                                 "'");
        }
        ASSIGN_OR_RETURN(
            const FileTensor out,
            RepackBlocks(*tensor, *scales->second, wanted, memory));
        made.emplace_back(blk + std::string(wanted.ours) + ".weight", out);
      } else if (kind.empty()) {
        ASSIGN_OR_RETURN(const FileTensor out,
                         TurnFloats(*tensor, wanted, memory));
        made.emplace_back(blk + std::string(wanted.ours) + ".weight", out);
      } else if (kind == "_bias") {
        ASSIGN_OR_RETURN(const FileTensor out,
                         PickBiases(*tensor, wanted, memory));
        made.emplace_back(blk + std::string(wanted.ours) + ".bias", out);
      } else {
        return Unimplemented("tensor '" + name +
                             "' belongs to no family that is served");
      }
    }
  }
  return made;
}

}  // namespace millrace::models
