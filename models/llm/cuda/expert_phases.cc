// A mixture of experts, load time and run time. The rows of each role go
// through it together. The device chooses and orders, so the host launches what
// they need at most; tiles that are left over are empty.
#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "models/llm/cuda/cuda_backend.h"
#include "models/llm/cuda/cuda_linear.h"
#include "models/llm/cuda/pack_rows.h"

namespace millrace::models {
namespace {

// A grid has 65,535 tiles at most, of eight uses each.
constexpr int64_t kMostUses = 500'000;

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
  const int64_t num_read_at = num_counts();
  Experts& own = *experts_.emplace_back(std::make_unique<Experts>());
  own.num_read_at = num_read_at;
  own.options = experts;
  own.competing = count - (experts.shared ? 1 : 0);
  CheckExperts(experts, own.competing);
  own.gate_up_bias = AddBiases(own, &Expert::gate_up);
  own.down_bias = AddBiases(own, &Expert::down);
  if (waiting_) unsupported_ = "experts beside attention (parallel residual)";
  const bool kept = own.kept = keeping_;
  const bool normalises = !options.post_norm.weight.empty();
  has_branch_ = has_branch_ || normalises;
  Enter(StepPhase::kGateUp);  // all of it, as on cores
  Record([=, this, &own, at = AddNorm(norm), post = AddNorm(options.post_norm),
          scale = options.scale](const Step& step) {
    const RowsOnDevice& out = normalises ? branch_ : x(step, kept);
    for (const RowSet& rows : RowSets(step, kept, HasRoles(own))) {
      if (rows.count == 0) continue;
      const int error = RunExperts(own, rows, Normed(at, x(step, kept)),
                                   out.From(0), !normalises, scale);
      if (error != 0) return error;
    }
    if (!normalises) return 0;
    return AddBranch(post, RowsOf(step, kept), scale, x(step, kept));
  });
}

void CudaBackend::ForMatrices(
    const Experts& experts,
    const std::function<void(const CudaLinear&, bool)>& body) {
  const Expert& first = experts.options.experts.front();
  body(static_cast<const CudaLinear&>(*first.gate_up), false);
  body(static_cast<const CudaLinear&>(*first.down), false);
  if (!experts.options.shared) return;
  const Expert& shared = experts.options.experts.back();
  body(static_cast<const CudaLinear&>(*shared.gate_up), true);
  body(static_cast<const CudaLinear&>(*shared.down), true);
}

bool CudaBackend::HasRoles(const Experts& experts) const {
  bool any = false;
  ForMatrices(experts, [&](const CudaLinear& linear, bool) {
    any = any || HasRoles(linear);
  });
  return any;
}

int64_t CudaBackend::SharedFfn() const {
  int64_t widest = 0;
  for (const auto& experts : experts_) {
    if (!experts->options.shared) continue;
    widest = std::max(widest, experts->options.experts.back().down->inputs());
  }
  return widest;
}

int32_t CudaBackend::UsedExperts() const {
  int32_t used = 0;
  for (const auto& each : experts_) used = std::max(used, each->options.used);
  return used;
}

int64_t CudaBackend::RoundedUseBytes() const {
  int64_t bytes = 0;
  for (const auto& experts : experts_) {
    for (const UseMatrix matrix : {kGate, kUp, kDown}) {
      if (matrix != kDown && !experts->options.sigmoid_inputs) continue;
      const int64_t inputs =
          CudaInputs(matrix == kDown ? DownOf(*experts).inputs()
                                     : int64_t{shape().hidden});
      for (const bool prompt : {false, true}) {
        const cuda::InputFormat input = InputOfUses(*experts, matrix, prompt);
        if (input == cuda::InputFormat::kF32) continue;
        bytes = std::max(bytes, cuda::RoundedBytes(input, inputs));
      }
    }
  }
  return bytes;
}

Status CudaBackend::BindExperts(int64_t rows) {
  if (experts_.empty()) return OkStatus();
  const int32_t used = UsedExperts();
  const int64_t uses = rows * used;
  if (uses > kMostUses) {
    return InvalidArgument("max_num_batched_tokens is " +
                           std::to_string(limits_.max_tokens) +
                           ", a GPU takes " + std::to_string(kMostUses / used) +
                           " at most where a token uses " +
                           std::to_string(used) + " experts; lower it")
        .At("max_num_batched_tokens");
  }
  const std::string what = "the buffers of a step";
  std::vector<std::vector<const std::byte*>> tables;
  int64_t outputs = 0, ffn = 0, ffn_in_f32 = 0;
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
    }
    const auto bytes = static_cast<int64_t>(table.size() * sizeof(table[0]));
    ASSIGN_OR_RETURN(experts->matrices, context_->Allocate(bytes, what));
    RETURN_IF_ERROR(
        context_->Upload(experts->matrices.data(), table.data(), bytes));
    const int64_t inputs = DownOf(*experts).inputs();
    ffn = std::max(ffn, inputs);
    for (const bool prompt : {false, true}) {
      if (InputOfUses(*experts, kDown, prompt) == cuda::InputFormat::kF32) {
        ffn_in_f32 = std::max(ffn_in_f32, inputs);
      }
    }
    most = std::max(most, experts->competing);
    outputs = std::max(outputs, experts->options.router->outputs());
  }
  RETURN_IF_ERROR(AllocateRows(router_logits_, rows, outputs));
  RETURN_IF_ERROR(AllocateRows(use_gate_up_, uses, 2 * ffn));
  if (ffn_in_f32 > 0) RETURN_IF_ERROR(AllocateRows(use_ffn_, uses, ffn_in_f32));
  RETURN_IF_ERROR(AllocateRows(use_out_, uses, shape().hidden));
  const bool weighs = std::ranges::any_of(experts_, [](const auto& experts) {
    return experts->options.sigmoid_inputs;
  });
  if (weighs) RETURN_IF_ERROR(AllocateRows(use_in_, uses, shape().hidden));
  if (SharedFfn() > 0) {
    RETURN_IF_ERROR(AllocateRows(shared_out_, rows, shape().hidden));
  }
  ASSIGN_OR_RETURN(chosen_, context_->Allocate(uses * 4, what));
  ASSIGN_OR_RETURN(use_weights_, context_->Allocate(uses * 4, what));
  ASSIGN_OR_RETURN(use_order_, context_->Allocate(uses * 4, what));
  ASSIGN_OR_RETURN(use_counts_, context_->Allocate(int64_t{most} * 4, what));
  // A step of one row has a tile for each use; others have fewer.
  const auto tile_bytes = static_cast<int64_t>(sizeof(cuda::ExpertTile));
  ASSIGN_OR_RETURN(use_tiles_,
                   context_->Allocate((uses + most) * tile_bytes, what));
  // The tables are copied before they go.
  return context_->Wait();
}

const CudaBackend::CudaLinear& CudaBackend::DownOf(const Experts& experts) {
  return static_cast<const CudaLinear&>(*experts.options.experts[0].down);
}

cuda::InputFormat CudaBackend::InputOfUses(const Experts& experts,
                                           UseMatrix matrix,
                                           bool prompt) const {
  const auto& gate_up =
      static_cast<const CudaLinear&>(*experts.options.experts[0].gate_up);
  if (matrix == kDown) {
    const CudaLinear& down = DownOf(experts);
    return InputOf(down, down.parts[0].format, prompt);
  }
  return InputOf(gate_up, gate_up.parts[matrix].format, prompt);
}

int CudaBackend::OrderUses(const Experts& experts, const RowSet& rows,
                           int32_t tile_rows) {
  const int32_t uses = rows.count * experts.options.used;
  return module_.order_uses(
      context_->device().stream,
      {.chosen = chosen_.as<int32_t>(),
       .uses = uses,
       .experts = experts.competing,
       .tile_rows = tile_rows,
       .order = use_order_.as<int32_t>(),
       .counts = use_counts_.as<int32_t>(),
       .num_read =
           ids_.as<int32_t>() + experts.num_read_at + (rows.prompt ? 1 : 0),
       .tiles = use_tiles_.as<cuda::ExpertTile>(),
       .num_tiles = cuda::MostTiles(uses, experts.competing, tile_rows)});
}

int CudaBackend::MultiplyUses(const Experts& experts, UseMatrix matrix,
                              const RowSet& rows, const RowsAt& x,
                              int32_t& tile_rows) {
  using cuda::InputFormat;
  const bool down = matrix == kDown;
  // Of x; else all uses of a row read the row.
  const bool row_a_use = down || experts.options.sigmoid_inputs;
  const int32_t used = experts.options.used;
  const int32_t uses = rows.count * used;
  const InputFormat input = InputOfUses(experts, matrix, rows.prompt);
  const bool on_tensors =
      input == InputFormat::kF16 || input == InputFormat::kBF16;
  const int32_t wanted = on_tensors
                             ? cuda::TensorTileRows(uses, experts.competing)
                             : cuda::TileRows(rows.count);
  if (tile_rows != wanted) {
    if (const int error = OrderUses(experts, rows, wanted)) return error;
    tile_rows = wanted;
  }
  const auto& linear =
      down
          ? DownOf(experts)
          : static_cast<const CudaLinear&>(*experts.options.experts[0].gate_up);
  const size_t part = matrix == kUp ? 1 : 0;
  const RowsOnDevice& y = down ? use_out_ : use_gate_up_;
  const auto multiply = on_tensors ? module_.multiply_on_tensors
                        : input == InputFormat::kInt8 ? module_.multiply_int8
                                                      : module_.multiply_rows;
  return multiply(
      context_->device().stream,
      {.weights = WeightsOf(linear, part),
       .x = x.data,
       .pitch = x.pitch,
       .rounded = rounded_.data(),
       .rounded_bytes = cuda::RoundedBytes(input, CudaInputs(linear.inputs())),
       .row_ids = row_a_use ? nullptr : rows.ids,
       .rows = tile_rows,
       .y = y.data() + linear.parts[part].first_output,
       .out_pitch = y.pitch,
       .tiles = use_tiles_.as<cuda::ExpertTile>(),
       .num_tiles = cuda::MostTiles(uses, experts.competing, tile_rows),
       .order = use_order_.as<int32_t>(),
       .matrices =
           experts.matrices.as<const std::byte*>() + matrix * experts.competing,
       .uses_of_row = row_a_use ? 1 : used});
}

int CudaBackend::RunSharedExpert(const Experts& experts, const RowSet& rows,
                                 const RowsAt& normed) {
  const Expert& shared = experts.options.experts.back();
  const auto& down = static_cast<const CudaLinear&>(*shared.down);
  const int error =
      MultiplySet(rows, static_cast<const CudaLinear&>(*shared.gate_up),
                  {.rows = normed}, gate_up_.From(0), false, 1);
  if (error != 0) return error;
  return MultiplySet(rows, down,
                     {.rows = ffn_.From(0),
                      .norm = {},
                      .activation = Activated(experts, gate_up_, down)},
                     shared_out_.From(0), false, 1);
}

cuda::ActivateArgs CudaBackend::Activated(const Experts& experts,
                                          const RowsOnDevice& gate_up,
                                          const CudaLinear& down) {
  return {.x = gate_up.data(),
          .pitch = gate_up.pitch,
          .width = static_cast<int32_t>(down.inputs()),
          .function = RowFunctionOf(experts.options.activation)};
}

int CudaBackend::ChooseExperts(const Experts& experts, const RowSet& rows,
                               const RowsAt& normed) {
  const ExpertsOptions& options = experts.options;
  const int error =
      MultiplySet(rows, static_cast<const CudaLinear&>(*options.router),
                  {.rows = normed}, router_logits_.From(0), false, 1);
  if (error != 0) return error;
  return module_.route_rows(context_->device().stream,
                            {.logits = router_logits_.data(),
                             .pitch = router_logits_.pitch,
                             .row_ids = rows.ids,
                             .rows = rows.count,
                             .experts = experts.competing,
                             .used = options.used,
                             .normalise = options.normalise,
                             .sigmoid = options.sigmoid_inputs,
                             .chosen = chosen_.as<int32_t>(),
                             .weights = use_weights_.as<float>()});
}

int CudaBackend::WeighInputs(const Experts& experts, const RowSet& rows,
                             const RowsAt& normed) {
  const int32_t used = experts.options.used;
  const RowsAt to = use_in_.From(0);
  return module_.gather_rows(context_->device().stream,
                             {.from = normed.data,
                              .rows = rows.ids,
                              .repeats = used,
                              .weights = use_weights_.as<float>(),
                              .num_rows = rows.count * used,
                              .width = static_cast<int32_t>(to.pitch),
                              .pitch = to.pitch,
                              .to = to.data});
}

int CudaBackend::RunExperts(const Experts& experts, const RowSet& rows,
                            const Input& x, const RowsAt& out, bool adds,
                            float scale) {
  const ExpertsOptions& options = experts.options;
  const auto input_of = [&](UseMatrix matrix) {
    return InputOfUses(experts, matrix, rows.prompt);
  };
  const int64_t inputs = CudaInputs(shape().hidden);
  const bool weighs = options.sigmoid_inputs;
  // The router reads f32.
  int error =
      MakeInput(rows, x, inputs,
                weighs ? cuda::InputFormat::kF32 : input_of(kGate), true);
  if (error == 0) error = ChooseExperts(experts, rows, x.rows);
  if (error != 0) return error;
  const RowSet read =
      weighs ? RowSet{.count = rows.count * options.used} : rows;
  Input in = {.rows = x.rows};
  if (weighs) {
    in.rows = use_in_.From(0);
    error = WeighInputs(experts, rows, x.rows);
    if (error != 0) return error;
    error = MakeInput(read, in, inputs, input_of(kGate),
                      input_of(kGate) == cuda::InputFormat::kF32);
    if (error != 0) return error;
  }

  int32_t tile_rows = 0;  // of use_tiles_
  error = MultiplyUses(experts, kGate, rows, in.rows, tile_rows);
  if (error == 0 && input_of(kUp) != input_of(kGate)) {
    error = Round(read, in.rows, inputs, input_of(kUp));
  }
  if (error != 0) return error;
  error = MultiplyUses(experts, kUp, rows, in.rows, tile_rows);
  if (error != 0) return error;

  const CudaLinear& down = DownOf(experts);
  Input between = {.rows = use_ffn_.From(0),
                   .norm = {},
                   .activation = Activated(experts, use_gate_up_, down)};
  between.activation->bias = constant(experts.gate_up_bias);
  between.activation->bias_of = chosen_.as<int32_t>();
  error = MakeInput({.count = rows.count * options.used}, between,
                    CudaInputs(down.inputs()), input_of(kDown),
                    input_of(kDown) == cuda::InputFormat::kF32);
  if (error != 0) return error;
  error = MultiplyUses(experts, kDown, rows, between.rows, tile_rows);
  if (error == 0 && options.shared) {
    error = RunSharedExpert(experts, rows, x.rows);
  }
  if (error != 0) return error;
  return module_.combine_experts(
      context_->device().stream,
      {.row_ids = rows.ids,
       .y = use_out_.data(),
       .pitch = use_out_.pitch,
       .weights = weighs ? nullptr : use_weights_.as<float>(),
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
       .rows = rows.count,
       .adds = adds,
       .scale = scale,
       .out = out.data,
       .out_pitch = out.pitch});
}

}  // namespace millrace::models
