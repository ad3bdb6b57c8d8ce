// Packing goes group by group so that any thread can pack any group. Parts are
// not blocks of columns of one kernel call; each part is a matrix of its own
// and Run cuts the range of outputs along them, which is why every part but the
// last has a multiple of 16 rows.
#include "models/llm/cpu/linear.h"

#include <algorithm>
#include <cstring>

#include "models/cpu/can_pack.h"

namespace millrace::models {
namespace {

// Integer formats follow the float ones.
bool IsInteger(WeightFormat format) { return format > WeightFormat::kBF16; }

int64_t RoundUp(int64_t n, int64_t unit) {
  return (n + unit - 1) / unit * unit;
}

}  // namespace

WeightFormat FormatOf(GgmlType type) {
  switch (type) {
    case GgmlType::kF16:
      return WeightFormat::kF16;
    case GgmlType::kBF16:
      return WeightFormat::kBF16;
    case GgmlType::kQ8_0:
      return WeightFormat::kQ8_0;
    case GgmlType::kQ4_0:
      return WeightFormat::kQ4_0;
    case GgmlType::kQ4_1:
      return WeightFormat::kQ4_1;
    case GgmlType::kQ5_0:
      return WeightFormat::kQ5_0;
    case GgmlType::kQ5_1:
      return WeightFormat::kQ5_1;
    case GgmlType::kQ2_K:
      return WeightFormat::kQ2_K;
    case GgmlType::kQ3_K:
      return WeightFormat::kQ3_K;
    case GgmlType::kQ4_K:
      return WeightFormat::kQ4_K;
    case GgmlType::kQ5_K:
      return WeightFormat::kQ5_K;
    case GgmlType::kQ6_K:
      return WeightFormat::kQ6_K;
    case GgmlType::kIQ4_NL:
      return WeightFormat::kIQ4_NL;
    case GgmlType::kIQ4_XS:
      return WeightFormat::kIQ4_XS;
    case GgmlType::kMXFP4:
      return WeightFormat::kMXFP4;
    default:
      return WeightFormat::kF32;
  }
}

void ActBuffer::Allocate(int64_t rows, int64_t k) {
  ld_f32_ = RoundUp(k, 16);
  // Rows a multiple of 4 KiB apart would meet few sets of the caches.
  ld_bf16_ = RoundUp(k, 32) + 32;
  ld_q_ = RoundUp(k, 64);
  ld_block_ = RoundUp(k, 512) / 32;
  f32_.assign(static_cast<size_t>(rows * ld_f32_), 0.0f);
  bf16_.assign(static_cast<size_t>(rows * ld_bf16_), 0);
  q_.assign(static_cast<size_t>(2 * rows * ld_q_), 0);
  d_.assign(static_cast<size_t>(2 * rows * ld_block_), 0.0f);
  s_ = d_;
  sum_.assign(d_.size(), 0);
  half_.assign(2 * d_.size(), 0);
}

ActRows ActBuffer::F32Rows(int64_t first_row) const {
  ActRows rows;
  rows.f32 = f32_.data() + first_row * ld_f32_;
  rows.ld_f32 = ld_f32_;
  return rows;
}

ActRows ActBuffer::Bf16Rows(int64_t first_row) const {
  ActRows rows;
  rows.bf16 = bf16_.data() + first_row * ld_bf16_;
  rows.ld_bf16 = ld_bf16_;
  return rows;
}

ActRows ActBuffer::Q8Rows(int64_t first_row) const {
  ActRows rows;
  rows.q = q_.data() + first_row * ld_q_;
  rows.d = d_.data() + first_row * ld_block_;
  rows.s = s_.data() + first_row * ld_block_;
  rows.sum = sum_.data() + first_row * ld_block_;
  rows.half = half_.data() + 2 * first_row * ld_block_;
  rows.ld_q = ld_q_;
  rows.ld_block = ld_block_;
  return rows;
}

CpuLinear::CpuLinear(int64_t inputs, int64_t outputs,
                     const KernelTable& kernels, bool f32, Rounding rounding)
    : Linear(inputs, outputs),
      kernels_(kernels),
      f32_(f32),
      rounding_(rounding) {}

CpuLinear::Part& CpuLinear::PartFor(GgmlType source_type,
                                    GgmlType packed_type) {
  if (!parts_.empty() && parts_.back().source_type == source_type &&
      parts_.back().packed_type == packed_type) {
    return parts_.back();
  }
  CHECK(num_rows_ % 16 == 0, "matrices of two formats meet at 16 rows");
  Part part{};
  part.source_type = source_type;
  part.packed_type = packed_type;
  part.first_output = num_rows_;
  part.matrix.format = f32_ ? WeightFormat::kF32 : FormatOf(packed_type);
  part.matrix.k = inputs();
  part.kernels = CanPack(kernels_, part.matrix.format, inputs())
                     ? &kernels_
                     : ScalarKernels();
  part.matrix.group_bytes =
      part.kernels->group_bytes(part.matrix.format, inputs());
  (IsInteger(part.matrix.format) ? needs_q8_
   : ReadsBf16(part)             ? needs_bf16_
                                 : needs_f32_) = true;
  parts_.push_back(std::move(part));
  return parts_.back();
}

bool CpuLinear::ReadsBf16(const Part& part) const {
  return part.matrix.format == WeightFormat::kBF16 &&
         part.kernels->round_row != nullptr;
}

void CpuLinear::AddRows(const WeightRows& rows) {
  Part& part = PartFor(rows.type, rows.quantize.value_or(rows.type));
  for (int64_t i = 0; i < rows.num_rows; ++i) {
    part.rows.push_back(rows.Part(i, 1).data);
  }
  part.matrix.n += rows.num_rows;
  num_rows_ += rows.num_rows;
  sources_.push_back(rows);
}

void CpuLinear::AddPadding(int64_t num_rows) {
  Part& part = parts_.back();
  part.rows.insert(part.rows.end(), static_cast<size_t>(num_rows), nullptr);
  part.matrix.n += num_rows;
  num_rows_ += num_rows;
}

int64_t CpuLinear::num_groups() const {
  int64_t groups = 0;
  for (const Part& part : parts_) {
    groups +=
        (part.matrix.n + part.kernels->row_group - 1) / part.kernels->row_group;
  }
  return groups;
}

int64_t CpuLinear::packed_bytes() const {
  int64_t bytes = 0;
  for (const Part& part : parts_) {
    const int64_t groups =
        (part.matrix.n + part.kernels->row_group - 1) / part.kernels->row_group;
    bytes += RoundUp(groups * part.matrix.group_bytes, 64);
  }
  return bytes;
}

std::string CpuLinear::Layout() const {
  std::string out = std::to_string(inputs());
  for (const Part& part : parts_) {
    out += " " + std::to_string(part.matrix.n) + "x" +
           std::string(part.kernels->packing) +
           (ReadsBf16(part) ? "-bf16:" : ":") +
           std::to_string(static_cast<int32_t>(part.matrix.format)) + ":" +
           std::to_string(part.matrix.group_bytes);
  }
  return out;
}

void CpuLinear::Place(std::byte* memory) {
  for (Part& part : parts_) {
    part.matrix.data = memory;
    const int64_t groups =
        (part.matrix.n + part.kernels->row_group - 1) / part.kernels->row_group;
    memory += RoundUp(groups * part.matrix.group_bytes, 64);
  }
}

void CpuLinear::PackGroup(int64_t group) {
  size_t at = 0;
  while (true) {
    const Part& part = parts_[at];
    const int64_t groups =
        (part.matrix.n + part.kernels->row_group - 1) / part.kernels->row_group;
    if (group < groups) break;
    group -= groups;
    ++at;
  }
  const Part& part = parts_[at];
  const int64_t k = inputs();
  const int64_t first = group * part.kernels->row_group;
  const int64_t end =
      std::min<int64_t>(first + part.kernels->row_group, part.matrix.n);
  const void* rows[64];
  std::vector<float> values;
  std::vector<std::byte> blocks;
  int32_t num_rows = 0;
  const bool quantize = part.source_type != part.packed_type;
  const GgmlTypeInfo& packed = InfoOf(part.packed_type);
  const int64_t block_row_bytes = k / packed.block_values * packed.block_bytes;
  if (quantize)
    blocks.resize(static_cast<size_t>((end - first) * block_row_bytes));
  const bool convert = part.matrix.format == WeightFormat::kF32 &&
                       part.packed_type != GgmlType::kF32;
  if (convert || quantize)
    values.resize(static_cast<size_t>((end - first) * k));
  for (int64_t i = first; i < end && part.rows[i] != nullptr; ++i, ++num_rows) {
    rows[num_rows] = part.rows[i];
    float* const row = values.empty() ? nullptr : values.data() + num_rows * k;
    if (quantize) {
      std::byte* const out = blocks.data() + num_rows * block_row_bytes;
      CHECK(DequantizeRow(part.source_type, part.rows[i], k, row) &&
                QuantizeRow(part.packed_type, row, k, out),
            "floats become blocks that can be made");
      rows[num_rows] = out;
    }
    if (convert) {
      CHECK(DequantizeRow(part.packed_type, rows[num_rows], k, row),
            "weights have a served type");
      rows[num_rows] = row;
    }
  }
  auto* out = static_cast<std::byte*>(const_cast<void*>(part.matrix.data)) +
              group * part.matrix.group_bytes;
  CHECK(part.kernels->pack_group(part.matrix.format, rows, num_rows, k, out),
        "the table said it packs this format");
}

PackedMatrix CpuLinear::ViewOf(const Part& part, int64_t begin, int64_t end,
                               int64_t* first) {
  const int64_t from = std::max<int64_t>(begin - part.first_output, 0);
  const int64_t to = std::min(end - part.first_output, part.matrix.n);
  PackedMatrix view = part.matrix;
  view.n = std::max<int64_t>(to - from, 0);
  view.data = static_cast<const std::byte*>(view.data) +
              from / part.kernels->row_group * view.group_bytes;
  *first = part.first_output + from;
  return view;
}

void CpuLinear::Run(int64_t begin, int64_t end, const ActBuffer& act,
                    int64_t first_row, int32_t num_rows, float* y,
                    int64_t ld_y) const {
  for (const Part& part : parts_) {
    int64_t first;
    const PackedMatrix view = ViewOf(part, begin, end, &first);
    if (view.n == 0) continue;
    const int64_t group = part.kernels->row_group;
    const ActRows rows = IsInteger(part.matrix.format) ? act.Q8Rows(first_row)
                         : ReadsBf16(part)             ? act.Bf16Rows(first_row)
                                                       : act.F32Rows(first_row);
    const int64_t groups = (view.n + group - 1) / group;
    const int64_t step = std::max<int64_t>(
        pass_bytes_ / std::max<int64_t>(view.group_bytes, 1), 1);
    for (int64_t g = 0; g < groups; g += step) {
      part.kernels->linear(view, g, std::min(g + step, groups), rows, num_rows,
                           y + first - begin, ld_y);
    }
  }
}

void CpuLinear::ChoosePromptWay(bool wanted) {
  const auto has_way = [&](const Part& part) {
    if (part.kernels->prompt_linear == nullptr) return false;
    // Asked with no rows. BF16 weights have the same bits either way.
    return ReadsBf16(part) ||
           part.kernels->prompt_linear(part.matrix, 0, 0, {}, 0, nullptr, 0,
                                       nullptr);
  };
  prompts_in_bf16_ =
      wanted && std::all_of(parts_.begin(), parts_.end(), has_way);
}

int64_t CpuLinear::prompt_scratch_bytes(int32_t num_rows) const {
  int64_t bytes = 0;
  for (const Part& part : parts_) {
    bytes = std::max(bytes, part.kernels->prompt_linear_scratch_bytes(
                                part.matrix, num_rows));
  }
  return bytes;
}

void CpuLinear::RunPrompt(int64_t begin, int64_t end, const ActBuffer& act,
                          int64_t first_row, int32_t num_rows, float* y,
                          int64_t ld_y, std::byte* scratch) const {
  const ActRows rows = act.Bf16Rows(first_row);
  for (const Part& part : parts_) {
    int64_t first;
    const PackedMatrix view = ViewOf(part, begin, end, &first);
    if (view.n == 0) continue;
    const int64_t groups =
        (view.n + part.kernels->row_group - 1) / part.kernels->row_group;
    float* out = y + first - begin;
    if (part.kernels->prompt_linear(view, 0, groups, rows, num_rows, out, ld_y,
                                    scratch)) {
      continue;
    }
    part.kernels->linear(view, 0, groups, rows, num_rows, out, ld_y);
  }
}

void CpuLinear::UnpackRow(int64_t row, float* out) const {
  for (const Part& part : parts_) {
    if (row >= part.first_output + part.matrix.n) continue;
    part.kernels->unpack_row(part.matrix, row - part.first_output, out);
    return;
  }
}

}  // namespace millrace::models
