// Recording: what each phase launches.
#include <algorithm>
#include <utility>

#include "models/llm/cuda/cuda_backend.h"
#include "models/llm/cuda/cuda_linear.h"
#include "models/llm/cuda/pack_rows.h"

namespace millrace::models {

cuda::Weights CudaBackend::WeightsOf(const CudaLinear& linear,
                                     size_t part) const {
  const CudaLinear::Part& rows = linear.parts[part];
  return {.data = weights_.data() + rows.at,
          .row_bytes = rows.row_bytes,
          .inputs = static_cast<int32_t>(CudaInputs(linear.inputs())),
          .outputs = static_cast<int32_t>(rows.source.num_rows),
          .format = rows.format};
}

cuda::KvCache CudaBackend::Kv() const {
  return cuda::KvCacheOf(kv_format_, shape().layers, shape().kv_heads,
                         shape().head_dim, pages_.data());
}

cuda::InputFormat CudaBackend::InputOf(const CudaLinear& linear,
                                       cuda::WeightFormat format,
                                       bool prompt) const {
  using cuda::WeightFormat;
  if (compute_ == CudaCompute::kF32 || linear.exact ||
      format == WeightFormat::kF32) {
    return cuda::InputFormat::kF32;
  }
  const bool quantised = format > WeightFormat::kBF16;
  if (quantised && (!prompt || compute_ == CudaCompute::kInt8)) {
    return linear.rounding == Rounding::kTwice ? cuda::InputFormat::kF32
                                               : cuda::InputFormat::kInt8;
  }
  if (!prompt) return cuda::InputFormat::kF32;
  return format == WeightFormat::kBF16 ? cuda::InputFormat::kBF16
                                       : cuda::InputFormat::kF16;
}

bool CudaBackend::HasRoles(const CudaLinear& linear) const {
  return std::ranges::any_of(linear.parts, [&](const CudaLinear::Part& part) {
    return InputOf(linear, part.format, true) !=
           InputOf(linear, part.format, false);
  });
}

bool CudaBackend::HasRoles() const {
  // Attention on tensor cores has a way of its own for prompts.
  return kv_format_ != cuda::KvFormat::kF32 ||
         std::ranges::any_of(
             linears_, [&](const auto& linear) { return HasRoles(*linear); });
}

std::array<CudaBackend::RowSet, 2> CudaBackend::RowSets(const Step& step,
                                                        bool kept,
                                                        bool has_roles) const {
  if (kept || step.num_prompt_rows == 0 || !has_roles) {
    return {RowSet{.count = RowsOf(step, kept)}};
  }
  const int32_t* ids = step.message + message_.rows_by_role;
  return {RowSet{.ids = ids,
                 .count = step.num_prompt_rows,
                 .prompt = true,
                 .first = step.first_prompt_row,
                 .end = step.end_prompt_row},
          RowSet{.ids = ids + step.num_prompt_rows,
                 .count = step.num_tokens - step.num_prompt_rows}};
}

int CudaBackend::Multiply(const Step& step, bool kept, const CudaLinear& w,
                          const Input& x, const RowsOnDevice& y, bool adds,
                          float scale) {
  w.rows = kept ? CudaLinear::Rows::kKept : CudaLinear::Rows::kAll;
  for (const RowSet& rows : RowSets(step, kept, HasRoles(w))) {
    if (rows.count == 0) continue;
    const int error = MultiplySet(rows, w, x, y.From(0), adds, scale);
    if (error != 0) return error;
  }
  return AddAdapters(kept, w, x.rows, y, adds ? scale : 1);
}

cuda::RoundedRows CudaBackend::Rounded(cuda::InputFormat input,
                                       int64_t inputs) const {
  return {.format = input,
          .inputs = static_cast<int32_t>(inputs),
          .data = rounded_.data(),
          .bytes = cuda::RoundedBytes(input, inputs)};
}

int CudaBackend::Round(const RowSet& rows, const RowsAt& x, int64_t inputs,
                       cuda::InputFormat input) {
  if (input == cuda::InputFormat::kF32) return 0;
  return module_.round_rows(context_->device().stream,
                            {.x = x.data,
                             .pitch = x.pitch,
                             .row_ids = rows.ids,
                             .rows = rows.count,
                             .rounded = Rounded(input, inputs)});
}

int CudaBackend::MakeInput(const RowSet& rows, const Input& x, int64_t inputs,
                           cuda::InputFormat input, bool floats) {
  const cuda::Stream stream = context_->device().stream;
  const auto fill = [&](auto args) {
    args.row_ids = rows.ids;
    args.rows = rows.count;
    args.out = floats ? x.rows.data : nullptr;
    args.out_pitch = x.rows.pitch;
    args.rounded = Rounded(input, inputs);
    return args;
  };
  if (x.norm) return module_.norm_rows(stream, fill(*x.norm));
  if (x.activation) return module_.activate(stream, fill(*x.activation));
  return Round(rows, x.rows, inputs, input);
}

int CudaBackend::MultiplySet(const RowSet& rows, const CudaLinear& w,
                             const Input& x, const RowsAt& y, bool adds,
                             float scale) {
  using cuda::InputFormat;
  const int64_t inputs = CudaInputs(w.inputs());
  // Rows are rounded as they are made. As f32 they are stored only for a part
  // that reads them so, or one that reads another format, and for adapters.
  InputFormat rounded = InputFormat::kF32;  // what rounded_ holds
  bool floats = IsAdapted(w);
  for (const CudaLinear::Part& part : w.parts) {
    const InputFormat input = InputOf(w, part.format, rows.prompt);
    if (rounded == InputFormat::kF32) rounded = input;
    floats = floats || input == InputFormat::kF32 || input != rounded;
  }
  if (const int error = MakeInput(rows, x, inputs, rounded, floats)) {
    return error;
  }
  for (size_t i = 0; i < w.parts.size(); ++i) {
    const InputFormat input = InputOf(w, w.parts[i].format, rows.prompt);
    if (input != InputFormat::kF32 && input != rounded) {
      if (const int error = Round(rows, x.rows, inputs, input)) return error;
      rounded = input;
    }
    const auto multiply = input == InputFormat::kF32 ? module_.multiply_rows
                          : input == InputFormat::kInt8
                              ? module_.multiply_int8
                              : module_.multiply_on_tensors;
    const int64_t first = w.parts[i].first_output;
    const cuda::LinearArgs args = {
        .weights = WeightsOf(w, i),
        .bias = w.bias < 0 ? nullptr : constant(w.bias) + first,
        .x = x.rows.data,
        .pitch = x.rows.pitch,
        .rounded = rounded_.data(),
        .rounded_bytes = cuda::RoundedBytes(input, inputs),
        .row_ids = rows.ids,
        .rows = rows.count,
        .adds = adds,
        .scale = scale,
        .y = y.data + first,
        .out_pitch = y.pitch};
    const BlasProduct* blas = rows.prompt ? w.parts[i].blas : nullptr;
    const int error = blas != nullptr
                          ? blas_->Multiply(*blas, args, rows.first, rows.end)
                          : multiply(context_->device().stream, args);
    if (error != 0) return error;
  }
  return 0;
}

cuda::NormArgs CudaBackend::NormOf(const NormAt& norm,
                                   const RowsOnDevice& x) const {
  return {.x = x.data(),
          .pitch = x.pitch,
          .weight = constant(norm.weight),
          .bias = constant(norm.bias),
          .eps = shape().norm_eps,
          .width = shape().hidden};
}

CudaBackend::Input CudaBackend::Normed(const NormAt& norm,
                                       const RowsOnDevice& x) const {
  if (norm.weight < 0) return Input{.rows = x.From(0)};
  return Input{.rows = normed_.From(0), .norm = NormOf(norm, x)};
}

int CudaBackend::AddBranch(const NormAt& norm, int32_t rows, float scale,
                           const RowsOnDevice& y) {
  if (norm.weight < 0) {
    return module_.add_rows(context_->device().stream, {.x = branch_.data(),
                                                        .pitch = branch_.pitch,
                                                        .width = shape().hidden,
                                                        .rows = rows,
                                                        .scale = scale,
                                                        .y = y.data()});
  }
  cuda::NormArgs args = NormOf(norm, branch_);
  args.rows = rows;
  args.adds = true;
  args.scale = scale;
  args.out = y.data();
  args.out_pitch = y.pitch;
  return module_.norm_rows(context_->device().stream, args);
}

void CudaBackend::DoEmbed(const Linear& table, const EmbedOptions& options) {
  const auto& rows = static_cast<const CudaLinear&>(table);
  const auto* positions = static_cast<const CudaLinear*>(options.positions);
  Enter(StepPhase::kEmbed);
  Record([this, &rows, positions, scale = options.scale](const Step& step) {
    const int error =
        module_.copy_pages(context_->device().stream,
                           {.base = pages_.data(),
                            .page_bytes = CudaPageBytes(shape(), kv_format_),
                            .copies = step.message + message_.copies,
                            .num_copies = step.num_copies});
    if (error != 0) return error;
    if (message_.names_drawn) {
      // The ids of the step before are there until this one draws.
      const int taken =
          module_.take_drawn(context_->device().stream,
                             {.tokens = step_.as<int32_t>() + message_.tokens,
                              .drawn = drawn_ids(),
                              .rows = step.num_tokens});
      if (taken != 0) return taken;
    }
    return module_.embed(
        context_->device().stream,
        {.table = WeightsOf(rows, 0),
         .positions =
             positions == nullptr ? cuda::Weights{} : WeightsOf(*positions, 0),
         .tokens = step.message + message_.tokens,
         .row_positions = step.message + message_.positions,
         .scale = scale,
         .rows = step.num_tokens,
         .x = x_.data(),
         .pitch = x_.pitch});
  });
  if (positions != nullptr &&
      positions->parts[0].format > cuda::WeightFormat::kBF16) {
    unsupported_ = "quantised rows of positions";
  }
}

void CudaBackend::DoNormLinear(const Norm& norm, const Linear& qkv) {
  CHECK(!keeping_, "keys and values are kept of every row");
  ++layer_;
  Enter(StepPhase::kQkv);
  Adapt(qkv, kQkvTargets);
  NotePrompts(qkv);
  Record([this, at = AddNorm(norm),
          &w = static_cast<const CudaLinear&>(qkv)](const Step& step) {
    return Multiply(step, false, w, Normed(at, x_), qkv_);
  });
}

int CudaBackend::RopeRows(const Step& step, int32_t layer,
                          const RopeOptions& options, int64_t frequencies,
                          int64_t q_norm, int64_t k_norm) {
  const cuda::Stream stream = context_->device().stream;
  const auto head_dim = static_cast<size_t>(shape().head_dim);
  if (options.q_norm.size() > head_dim) {
    // One norm of all heads of q, and of k.
    cuda::NormArgs args = {.x = qkv_.data(),
                           .pitch = qkv_.pitch,
                           .weight = constant(q_norm),
                           .eps = shape().norm_eps,
                           .width = static_cast<int32_t>(q_dim_),
                           .rows = step.num_tokens,
                           .out = qkv_.data(),
                           .out_pitch = qkv_.pitch};
    if (const int error = module_.norm_rows(stream, args)) return error;
    args.x = args.out = qkv_.data() + q_dim_;
    args.weight = constant(k_norm);
    args.width = shape().kv_heads * shape().head_dim;
    if (const int error = module_.norm_rows(stream, args)) return error;
    q_norm = k_norm = -1;
  }
  return module_.rope_write_kv(
      stream,
      {.kv = Kv(),
       .layer = layer,
       .heads = shape().heads,
       .qkv = qkv_.data(),
       .pitch = qkv_.pitch,
       .rows = step.num_tokens,
       .row_positions = step.message + message_.positions,
       .row_pages = step.message + message_.row_pages,
       .frequencies = constant(frequencies),
       .magnitude =
           options.rope < 0
               ? 1
               : shape().ropes[static_cast<size_t>(options.rope)].magnitude,
       .rope_dims =
           shape().rope_dims > 0 ? shape().rope_dims : shape().head_dim,
       .interleaved = shape().rope_interleaved,
       .q_norm = constant(q_norm),
       .k_norm = constant(k_norm),
       .eps = shape().norm_eps,
       .q_scale = options.q_scale,
       .temper_length = options.q_temperature.length,
       .temper_scale = options.q_temperature.scale});
}

void CudaBackend::DoRopeWriteKv(int32_t layer, const RopeOptions& options) {
  const int64_t frequencies =
      options.rope < 0 ? -1 : frequencies_[static_cast<size_t>(options.rope)];
  const NormAt q = AddNorm({.weight = options.q_norm});
  const NormAt k = AddNorm({.weight = options.k_norm});
  Enter(StepPhase::kQkv);
  Record([=, this](const Step& step) {
    return RopeRows(step, layer, options, frequencies, q.weight, k.weight);
  });
}

void CudaBackend::DoAttend(int32_t layer, const AttendOptions& options) {
  const int64_t sinks = options.sinks.empty() ? -1 : AddConstant(options.sinks);
  const size_t index = message_.AddWindow(options.window, options.chunked);
  Enter(StepPhase::kAttention);
  Record([=, this](const Step& step) {
    const StepMessage::Work& work = message_.work(index);
    return module_.attend(
        context_->device().stream,
        {.kv = Kv(),
         .layer = layer,
         .heads = shape().heads,
         .q = qkv_.data(),
         .pitch = qkv_.pitch,
         .row_positions = step.message + message_.positions,
         .pages = step.message + message_.pages,
         .items = reinterpret_cast<const cuda::AttendItem*>(step.message +
                                                            work.items),
         .num_items = work.num_items,
         .prompt_items = reinterpret_cast<const cuda::AttendItem*>(
             step.message + work.prompt_items),
         .num_prompt_items = work.num_prompt_items,
         .merges = reinterpret_cast<const cuda::AttendMerge*>(step.message +
                                                              work.merges),
         .num_merges = work.num_merges,
         .window = options.window,
         .chunked = options.chunked,
         .softcap = options.softcap,
         .sinks = constant(sinks),
         .partial_max = partial_max_.as<float>(),
         .partial_sum = partial_sum_.as<float>(),
         .partial_out = partial_out_.as<float>(),
         .out = attn_.data(),
         .out_pitch = attn_.pitch});
  });
}

void CudaBackend::DoKeepSampleRows() {
  keeping_ = true;
  Enter(StepPhase::kAttentionOutput);
  Record([this](const Step& step) {
    if (step.all_sample) return 0;
    const auto gather = [&](const RowsOnDevice& from, const RowsOnDevice& to) {
      return module_.gather_rows(context_->device().stream,
                                 {.from = from.data(),
                                  .rows = step.message + message_.sample_rows,
                                  .num_rows = step.num_samples,
                                  .width = static_cast<int32_t>(from.pitch),
                                  .pitch = from.pitch,
                                  .to = to.data()});
    };
    const int error = gather(x_, x_kept_);
    return error != 0 ? error : gather(attn_, attn_kept_);
  });
}

cuda::RowFunction RowFunctionOf(Activation activation) {
  switch (activation) {
    case Activation::kSilu:
      break;
    case Activation::kGelu:
      return cuda::RowFunction::kGelu;
    case Activation::kGeluErf:
      return cuda::RowFunction::kGeluErf;
    case Activation::kClampedSwiglu:
      return cuda::RowFunction::kClampedSwiglu;
  }
  return cuda::RowFunction::kSilu;
}

void CudaBackend::DoLinearResidual(Branch branch, const Linear& linear,
                                   const ResidualOptions& options) {
  const bool kept = keeping_;
  const bool apart = !options.post_norm.weight.empty() || gpus_ != nullptr;
  has_branch_ = has_branch_ || apart;
  Adapt(linear, branch == Branch::kAttention
                    ? std::span<const LoraTarget>(kOutputTargets)
                    : std::span<const LoraTarget>(kDownTargets));
  NotePrompts(linear);
  auto add = [=, this, &w = static_cast<const CudaLinear&>(linear),
              scale = options.scale, at = AddNorm(options.post_norm),
              activation = activation_](const Step& step) {
    Input from;
    if (branch == Branch::kFfn) {
      from = {.rows = ffn_.From(0), .norm = {}, .activation = activation};
      from.activation->x = gate_up_.data();
      from.activation->pitch = gate_up_.pitch;
    } else {
      from.rows = attn(step, kept).From(0);
    }
    if (!apart) {
      return Multiply(step, kept, w, from, x(step, kept), true, scale);
    }
    const int error = Multiply(step, kept, w, from, branch_);
    if (error != 0 || !SumBranch(RowsOf(step, kept))) return error;
    return AddBranch(at, RowsOf(step, kept), scale, x(step, kept));
  };
  // It reads what attention left, so it may be launched once the feed-forward
  // has read x as it is.
  if (options.waits) {
    waiting_ = std::move(add);
    return;
  }
  Enter(StepPhase::kAttentionOutput);
  if (waiting_) Record(std::exchange(waiting_, nullptr));
  if (branch == Branch::kFfn) Enter(StepPhase::kDown);
  Record(std::move(add));
}

void CudaBackend::DoNormGateUpAct(const Norm& norm, const Linear& gate_up,
                                  Activation activation) {
  const bool kept = keeping_;
  Enter(StepPhase::kGateUp);
  const auto targets = std::span(kGateUpTargets);
  Adapt(gate_up, gate_up.outputs() == shape().ffn ? targets.last(1) : targets);
  NotePrompts(gate_up);
  Record([=, this, at = AddNorm(norm),
          &w = static_cast<const CudaLinear&>(gate_up)](const Step& step) {
    return Multiply(step, kept, w, Normed(at, x(step, kept)), gate_up_);
  });
  // The product behind this one makes its rows by it.
  activation_ = {.width = shape().ffn,
                 .gated = gate_up.outputs() != shape().ffn,
                 .function = RowFunctionOf(activation)};
}

void CudaBackend::DoHiddenRows(const Norm& norm) {
  CHECK(keeping_, "only rows that sample leave");
  Enter(StepPhase::kHead);
  Record([=, this, at = AddNorm(norm)](const Step& step) {
    cuda::NormArgs args = NormOf(at, x(step, true));
    args.rows = step.num_samples;
    args.out = logits_.data();
    args.out_pitch = logits_.pitch;
    return module_.norm_rows(context_->device().stream, args);
  });
}

void CudaBackend::DoHead(const Norm& norm, const Linear& linear,
                         const HeadOptions& options) {
  CHECK(keeping_, "only rows that sample go through the head");
  const CudaLinear& w = HeadOf(static_cast<const CudaLinear&>(linear));
  Enter(StepPhase::kHead);
  Record([=, this, at = AddNorm(norm), &w](const Step& step) {
    const int error = MultiplyHead(step, w, Normed(at, x(step, true)));
    if (error != 0 || rank() > 0) return error;
    return module_.finish_logits(context_->device().stream,
                                 {.logits = logits_.data(),
                                  .pitch = logits_.pitch,
                                  .vocab = shape().vocab,
                                  .rows = step.num_samples,
                                  .scale = options.scale,
                                  .softcap = options.softcap,
                                  .parts = head_parts_.as<cuda::Greatest>(),
                                  .ids = drawn_ids()});
  });
  Enter(StepPhase::kSample);
  Record([this](const Step& step) {
    if (message_.draws < 0 || rank() > 0) return 0;
    return module_.draw_tokens(context_->device().stream,
                               {.logits = logits_.data(),
                                .pitch = logits_.pitch,
                                .vocab = shape().vocab,
                                .rows = step.num_samples,
                                .draws = reinterpret_cast<const cuda::DrawRow*>(
                                    step.message + message_.draws),
                                .ids = drawn_ids()});
  });
}

}  // namespace millrace::models
