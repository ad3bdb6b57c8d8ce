// A mixture of experts, load time and run time. Rows go through it in runs, so
// that buffers of their uses stay small. The device chooses and orders, so the
// host launches what the run needs at most; tiles that are left over are empty.
//
// All rows are computed as generated ones, whatever their role.
#include <algorithm>
#include <utility>
#include <vector>

#include "models/llm/cuda/cuda_backend.h"
#include "models/llm/cuda/cuda_linear.h"
#include "models/llm/cuda/pack_rows.h"

namespace millrace::models {
namespace {

// Uses of one expert that share a reading of its weights: what the products
// compute at once. An expert has one use of a row at most.
int32_t TileRows(int32_t rows) { return rows == 1 ? 1 : rows <= 4 ? 4 : 8; }

}  // namespace

void CudaBackend::CheckExperts(const ExpertsOptions& experts,
                               int32_t competing) {
  if (experts.used > cuda::kMostExpertsUsed || competing > cuda::kMostExperts) {
    unsupported_ = "more than " + std::to_string(cuda::kMostExperts) +
                   " experts, or " + std::to_string(cuda::kMostExpertsUsed) +
                   " of a row";
  }
  const auto same = [](const Linear* a, const Linear* b) {
    const auto& left = static_cast<const CudaLinear&>(*a);
    const auto& right = static_cast<const CudaLinear&>(*b);
    return left.inputs() == right.inputs() &&
           std::ranges::equal(left.parts, right.parts, {},
                              &CudaLinear::Part::format,
                              &CudaLinear::Part::format);
  };
  const Expert& first = experts.experts[0];
  for (int32_t e = 1; e < competing; ++e) {
    const Expert& other = experts.experts[static_cast<size_t>(e)];
    if (!same(first.gate_up, other.gate_up) || !same(first.down, other.down)) {
      unsupported_ = "experts of several sizes or types in a layer";
    }
  }
}

int64_t CudaBackend::AddBiases(const Experts& experts,
                               const Linear* Expert::*matrix) {
  std::vector<float> all;
  bool any = false;
  for (int32_t e = 0; e < experts.competing; ++e) {
    const auto& linear = static_cast<const CudaLinear&>(
        *(experts.options.experts[static_cast<size_t>(e)].*matrix));
    const size_t before = all.size();
    all.resize(before + static_cast<size_t>(linear.outputs()));
    if (linear.bias < 0) continue;
    any = true;
    std::copy_n(constants_.begin() + linear.bias, linear.outputs(),
                all.begin() + static_cast<std::ptrdiff_t>(before));
  }
  return any ? AddConstant(all) : -1;
}

void CudaBackend::DoNormExperts(const Norm& norm, const ExpertsOptions& experts,
                                const ResidualOptions& options) {
  const auto count = static_cast<int32_t>(experts.experts.size());
  Experts& own = *experts_.emplace_back(std::make_unique<Experts>());
  own.options = experts;
  own.competing = count - (experts.shared ? 1 : 0);
  CheckExperts(experts, own.competing);
  own.gate_up_bias = AddBiases(own, &Expert::gate_up);
  own.down_bias = AddBiases(own, &Expert::down);
  if (waiting_) unsupported_ = "experts beside attention (parallel residual)";
  const bool kept = keeping_;
  const bool normalises = !options.post_norm.weight.empty();
  has_branch_ = has_branch_ || normalises;
  Record([=, this, &own, at = AddNorm(norm), post = AddNorm(options.post_norm),
          scale = options.scale](const Step& step) {
    const int32_t rows = RowsOf(step, kept);
    const Input made = Normed(at, x(step, kept));
    const RowsAt& in = made.rows;
    int error = MakeInput({.count = rows}, made, CudaInputs(shape().hidden),
                          cuda::InputFormat::kF32, true);
    const RowsOnDevice& out = normalises ? branch_ : x(step, kept);
    for (int32_t row = 0; row < rows && error == 0; row += kExpertRows) {
      error = RunExperts(own, {in.data + row * in.pitch, in.pitch},
                         std::min(kExpertRows, rows - row), out.From(row),
                         !normalises, scale);
    }
    if (error != 0 || !normalises) return error;
    return AddBranch(post, rows, scale, x(step, kept));
  });
}

Status CudaBackend::BindExperts() {
  if (experts_.empty()) return OkStatus();
  const std::string what = "the buffers of a step";
  std::vector<std::vector<const std::byte*>> tables;
  int64_t outputs = 0, ffn = 0, shared_ffn = 0;
  int32_t most = 0;  // experts
  for (const auto& experts : experts_) {
    const auto competing = static_cast<size_t>(experts->competing);
    std::vector<const std::byte*>& table = tables.emplace_back(3 * competing);
    for (size_t e = 0; e < competing; ++e) {
      const Expert& expert = experts->options.experts[e];
      const auto& gate_up = static_cast<const CudaLinear&>(*expert.gate_up);
      const auto& down = static_cast<const CudaLinear&>(*expert.down);
      table[e] = weights_.data() + gate_up.parts[0].at;
      table[competing + e] = weights_.data() + gate_up.parts[1].at;
      table[2 * competing + e] = weights_.data() + down.parts[0].at;
      ffn = std::max(ffn, down.inputs());
    }
    const auto bytes = static_cast<int64_t>(table.size() * sizeof(table[0]));
    ASSIGN_OR_RETURN(experts->matrices, context_->Allocate(bytes, what));
    RETURN_IF_ERROR(
        context_->Upload(experts->matrices.data(), table.data(), bytes));
    most = std::max(most, experts->competing);
    outputs = std::max(outputs, experts->options.router->outputs());
    if (experts->options.shared) {
      shared_ffn =
          std::max(shared_ffn, experts->options.experts.back().down->inputs());
    }
  }
  const int64_t hidden = shape().hidden;
  const int64_t uses = int64_t{kExpertRows} * shape().experts_used;
  RETURN_IF_ERROR(AllocateRows(router_logits_, kExpertRows, outputs));
  RETURN_IF_ERROR(AllocateRows(use_gate_up_, uses, 2 * ffn));
  RETURN_IF_ERROR(AllocateRows(use_ffn_, uses, ffn));
  RETURN_IF_ERROR(AllocateRows(use_out_, uses, hidden));
  const bool weighs = std::ranges::any_of(experts_, [](const auto& experts) {
    return experts->options.sigmoid_inputs;
  });
  if (weighs) RETURN_IF_ERROR(AllocateRows(use_in_, uses, hidden));
  if (shared_ffn > 0) {
    RETURN_IF_ERROR(AllocateRows(shared_gate_up_, kExpertRows, 2 * shared_ffn));
    RETURN_IF_ERROR(AllocateRows(shared_ffn_, kExpertRows, shared_ffn));
    RETURN_IF_ERROR(AllocateRows(shared_out_, kExpertRows, hidden));
  }
  ASSIGN_OR_RETURN(chosen_, context_->Allocate(uses * 4, what));
  ASSIGN_OR_RETURN(use_weights_, context_->Allocate(uses * 4, what));
  ASSIGN_OR_RETURN(use_order_, context_->Allocate(uses * 4, what));
  // A step of one row has a tile for each use; others have fewer.
  const auto tile_bytes = static_cast<int64_t>(sizeof(cuda::ExpertTile));
  ASSIGN_OR_RETURN(use_tiles_,
                   context_->Allocate((uses + most) * tile_bytes, what));
  // The tables are copied before they go.
  return context_->Wait();
}

int CudaBackend::MultiplyUses(const Experts& experts, int32_t matrix,
                              const Input& x, int32_t rows, const RowsAt& y,
                              bool makes) {
  const bool down = matrix == 2;
  const Expert& first = experts.options.experts[0];
  const auto& linear =
      static_cast<const CudaLinear&>(down ? *first.down : *first.gate_up);
  const size_t part = matrix == 1 ? 1 : 0;
  const cuda::InputFormat input =
      InputOf(linear, linear.parts[part].format, false);
  const int64_t inputs = CudaInputs(linear.inputs());
  const int32_t used = experts.options.used;
  const bool row_a_use = down || experts.options.sigmoid_inputs;
  if (makes) {
    const int32_t read = row_a_use ? rows * used : rows;
    const int error = MakeInput({.count = read}, x, inputs, input,
                                input == cuda::InputFormat::kF32);
    if (error != 0) return error;
  }
  const int32_t tile_rows = TileRows(rows);
  const auto multiply = input == cuda::InputFormat::kF32
                            ? module_.multiply_rows
                            : module_.multiply_int8;
  return multiply(
      context_->device().stream,
      {.weights = WeightsOf(linear, part),
       .x = x.rows.data,
       .pitch = x.rows.pitch,
       .rounded = rounded_.data(),
       .rounded_bytes = cuda::RoundedBytes(input, inputs),
       .rows = tile_rows,
       .y = y.data + linear.parts[part].first_output,
       .out_pitch = y.pitch,
       .tiles = use_tiles_.as<cuda::ExpertTile>(),
       .num_tiles = cuda::MostTiles(rows * used, experts.competing, tile_rows),
       .order = use_order_.as<int32_t>(),
       .matrices =
           experts.matrices.as<const std::byte*>() + matrix * experts.competing,
       .uses_of_row = row_a_use ? 1 : used});
}

int CudaBackend::RunSharedExpert(const Experts& experts, const RowsAt& normed,
                                 int32_t rows) {
  const Expert& shared = experts.options.experts.back();
  const auto& down = static_cast<const CudaLinear&>(*shared.down);
  const RowSet all = {.count = rows};
  const int error =
      MultiplySet(all, static_cast<const CudaLinear&>(*shared.gate_up),
                  {.rows = normed}, shared_gate_up_.From(0), false, 1);
  if (error != 0) return error;
  const Input between = {
      .rows = shared_ffn_.From(0),
      .norm = {},
      .activation = Activated(experts, shared_gate_up_, down)};
  return MultiplySet(all, down, between, shared_out_.From(0), false, 1);
}

cuda::ActivateArgs CudaBackend::Activated(const Experts& experts,
                                          const RowsOnDevice& gate_up,
                                          const CudaLinear& down) {
  return {.x = gate_up.data(),
          .pitch = gate_up.pitch,
          .width = static_cast<int32_t>(down.inputs()),
          .function = RowFunctionOf(experts.options.activation)};
}

int CudaBackend::RunExperts(const Experts& experts, const RowsAt& normed,
                            int32_t rows, const RowsAt& out, bool adds,
                            float scale) {
  const ExpertsOptions& options = experts.options;
  const cuda::Stream stream = context_->device().stream;
  const int32_t uses = rows * options.used;
  const int32_t tile_rows = TileRows(rows);
  int error = MultiplySet({.count = rows},
                          static_cast<const CudaLinear&>(*options.router),
                          {.rows = normed}, router_logits_.From(0), false, 1);
  if (error != 0) return error;
  error = module_.route_rows(stream, {.logits = router_logits_.data(),
                                      .pitch = router_logits_.pitch,
                                      .rows = rows,
                                      .experts = experts.competing,
                                      .used = options.used,
                                      .normalise = options.normalise,
                                      .sigmoid = options.sigmoid_inputs,
                                      .chosen = chosen_.as<int32_t>(),
                                      .weights = use_weights_.as<float>()});
  if (error != 0) return error;
  error = module_.order_uses(
      stream,
      {.chosen = chosen_.as<int32_t>(),
       .uses = uses,
       .experts = experts.competing,
       .tile_rows = tile_rows,
       .order = use_order_.as<int32_t>(),
       .tiles = use_tiles_.as<cuda::ExpertTile>(),
       .num_tiles = cuda::MostTiles(uses, experts.competing, tile_rows)});
  if (error != 0) return error;

  const auto& down = static_cast<const CudaLinear&>(*options.experts[0].down);
  const auto& gate_up =
      static_cast<const CudaLinear&>(*options.experts[0].gate_up);
  const auto input_of = [&](size_t part) {
    return InputOf(gate_up, gate_up.parts[part].format, false);
  };
  RowsAt in = normed;
  if (options.sigmoid_inputs) {
    in = use_in_.From(0);
    error =
        module_.gather_rows(stream, {.from = normed.data,
                                     .repeats = options.used,
                                     .weights = use_weights_.as<float>(),
                                     .num_rows = uses,
                                     .width = static_cast<int32_t>(in.pitch),
                                     .pitch = in.pitch,
                                     .to = in.data});
    if (error != 0) return error;
  }
  const RowsAt between = use_gate_up_.From(0);
  error = MultiplyUses(experts, 0, {.rows = in}, rows, between, true);
  if (error != 0) return error;
  error = MultiplyUses(experts, 1, {.rows = in}, rows, between,
                       input_of(0) != input_of(1));
  if (error != 0) return error;
  Input activated = {.rows = use_ffn_.From(0),
                     .norm = {},
                     .activation = Activated(experts, use_gate_up_, down)};
  activated.activation->bias = constant(experts.gate_up_bias);
  activated.activation->bias_of = chosen_.as<int32_t>();
  error = MultiplyUses(experts, 2, activated, rows, use_out_.From(0), true);
  if (error == 0 && options.shared) {
    error = RunSharedExpert(experts, normed, rows);
  }
  if (error != 0) return error;
  const float* weights =
      options.sigmoid_inputs ? nullptr : use_weights_.as<float>();
  return module_.combine_experts(
      stream, {.y = use_out_.data(),
               .pitch = use_out_.pitch,
               .weights = weights,
               .used = options.used,
               .bias = constant(experts.down_bias),
               .chosen = chosen_.as<int32_t>(),
               .shared = options.shared ? shared_out_.data() : nullptr,
               .shared_pitch = shared_out_.pitch,
               .shared_logits = options.shared && options.shared_gate
                                    ? router_logits_.data() + experts.competing
                                    : nullptr,
               .logits_pitch = router_logits_.pitch,
               .width = shape().hidden,
               .rows = rows,
               .adds = adds,
               .scale = scale,
               .out = out.data,
               .out_pitch = out.pitch});
}

}  // namespace millrace::models
