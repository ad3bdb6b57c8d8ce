// LoadLlm: source → config → weights → recipe → runner. All that can be wrong
// with a file or a setting is found here, before anything is served.
#include <algorithm>
#include <filesystem>
#include <iterator>
#include <new>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "config/base/log.h"
#include "config/base/size_text.h"
#include "config/speculation.h"
#include "models/llm/config.h"
#include "models/llm/decoder.h"
#include "models/llm/device.h"
#include "models/llm/draft_model.h"
#include "models/llm/generation_config.h"
#include "models/llm/group_load.h"
#include "models/llm/group_runner.h"
#include "models/llm/kv_plan.h"
#include "models/llm/llm_plan.h"
#include "models/llm/model.h"
#include "models/llm/model_template.h"
#include "models/llm/packed.h"
#include "models/llm/page_groups.h"
#include "models/llm/sharding.h"
#include "models/llm/source.h"
#include "models/llm/weights.h"

namespace millrace::models {
namespace {

// Rows that leave through the head in one step, beyond one for each sequence,
// so that prompt log-probabilities need few steps.
constexpr int64_t kMinSamples = 32;

StatusOr<StepLimits> LimitsOf(const config::LlmSettings& settings,
                              int32_t max_context, bool hidden_rows) {
  if (settings.max_num_seqs < 1 || settings.max_num_seqs > (1 << 16)) {
    return InvalidArgument("max_num_seqs is " +
                           std::to_string(settings.max_num_seqs) +
                           ", 1 to 65536 is allowed")
        .At("max_num_seqs");
  }
  if (settings.max_num_batched_tokens < 1 ||
      settings.max_num_batched_tokens > (1 << 20)) {
    return InvalidArgument("max_num_batched_tokens is " +
                           std::to_string(settings.max_num_batched_tokens) +
                           ", 1 to 1048576 is allowed")
        .At("max_num_batched_tokens");
  }
  StepLimits limits;
  // Each running sequence has room for its next token.
  limits.max_tokens = static_cast<int32_t>(
      std::max(settings.max_num_batched_tokens, settings.max_num_seqs));
  limits.max_seqs = static_cast<int32_t>(settings.max_num_seqs);
  limits.max_pages_per_seq = (max_context + kPageTokens - 1) / kPageTokens;
  limits.max_samples = static_cast<int32_t>(std::min<int64_t>(
      std::max(settings.max_num_seqs, kMinSamples), limits.max_tokens));
  if (hidden_rows) limits.max_samples = limits.max_tokens;
  return limits;
}

std::string TextOf(const Tokenizer& tokenizer, int32_t id) {
  return id < 0 ? "" : std::string(tokenizer.Piece(id, true));
}

// llama.cpp's numbers.
StatusOr<std::string> PoolingOf(const ModelSource& source) {
  ASSIGN_OR_RETURN(const int64_t type, source.Int("pooling_type", 0));
  constexpr const char* kNames[] = {"", "mean", "cls", "last"};
  if (type >= 0 && type < static_cast<int64_t>(std::size(kNames))) {
    return std::string(kNames[type]);
  }
  return Unimplemented(source.KeyName("pooling_type") + " is " +
                       std::to_string(type) +
                       "; 0 (none), 1 (mean), 2 (first) and 3 (last) are "
                       "supported");
}

// `context`: the longest sequence that will be served.
BackendShape ShapeOf(const ModelConfig& config, const ModelTensors& tensors,
                     int32_t context) {
  BackendShape shape;
  shape.layers = config.layers;
  shape.hidden = config.hidden;
  shape.ffn = config.ffn;
  shape.heads = config.heads;
  shape.kv_heads = config.kv_heads;
  shape.head_dim = config.head_dim;
  shape.vocab = config.vocab;
  const ExpertConfig& experts = config.experts;
  shape.experts_used = experts.used + (experts.shared_ffn > 0 ? 1 : 0);
  shape.expert_ffn = std::max(experts.ffn, experts.shared_ffn);
  shape.norm_eps = config.norm_eps;
  shape.rope_interleaved = config.rope_interleaved;
  shape.rope_dims = config.rope_dims;
  shape.ropes = RopeTables(config, tensors, context);
  return shape;
}

// What a model and its draft model share.
struct DraftBytes {
  int64_t page_bytes = 0;
  int64_t weight_bytes = 0;
};
struct Shared {
  Device& device;
  // For the model: what its draft model takes of the device.
  DraftBytes draft = {};
  // For the draft model: the model it drafts for. Else null.
  const LlmModel* target = nullptr;
  // Of a model that is loaded by a group. Else null.
  GroupLoad* ranks = nullptr;
};

// A rank's part; all of the model where there is no group.
StatusOr<LlmPlan> PartOf(const ModelSource& source, const LlmPlan& plan,
                         const LlmOptions& options,
                         const QuantizeTo& quantize) {
  if (options.group == nullptr) return plan;
  return ShardOf(source, plan,
                 {.rank = options.group->rank(),
                  .size = options.group->size(),
                  .quantize = quantize.layers});
}

// What must be the same at all ranks, for people to compare.
std::string SameAtAllRanks(const LlmOptions& options, const ModelSource& source,
                           const Device& device) {
  const config::LlmSettings& settings = options.settings;
  return source.format() + " of " + std::to_string(source.file_bytes()) +
         " bytes, kernels " + device.kernels() + ", max_num_seqs " +
         std::to_string(settings.max_num_seqs) + ", max_num_batched_tokens " +
         std::to_string(settings.max_num_batched_tokens) + ", kv_cache_dtype " +
         settings.kv_cache_dtype + ", compute_dtype " + settings.compute_dtype +
         ", quantize " + settings.quantize + device.group_facts();
}

// What the weights take of the device's memory: those of a rank, or all and the
// draft model's.
int64_t WeightBytesFor(const LlmOptions& options, const ModelSource& source,
                       const LlmPlan& part, const Shared& shared) {
  if (options.group == nullptr) {
    return WeightBytesOn(shared.device, source) + shared.draft.weight_bytes;
  }
  int64_t bytes = 0;
  for (const FileTensor* tensor : TensorsOfPart(part)) {
    bytes += WeightBytesOn(shared.device, *tensor);
  }
  return bytes;
}

// A draft model has as many pages, and reaches no further.
StatusOr<KvPlan> KvPlanFor(const LlmOptions& options, const LlmPlan& part,
                           const BackendShape& shape,
                           std::span<const int32_t> windows,
                           const ModelSource& source, const Shared& shared) {
  const ModelConfig& config = part.config;
  if (shared.target == nullptr) {
    ASSIGN_OR_RETURN(
        const StepLimits limits,
        LimitsOf(options.settings, config.context, options.hidden_rows));
    const KvShare share =
        shared.device.memory_bytes() > 0
            ? ShareOfDevice(shared.device,
                            WeightBytesFor(options, source, part, shared) +
                                AdapterBytes(options.settings),
                            shape, limits)
            : ShareOfMemoryLimit(options.memory_limit_bytes);
    return PlanKv(options.settings, config,
                  shared.device.KvPageBytes(shape) + shared.draft.page_bytes,
                  share, windows, limits.max_tokens);
  }
  const RunnerInfo& target = shared.target->runner->info();
  return KvPlan{
      .max_context = std::min<int32_t>(target.max_context, config.context),
      .num_pages = target.num_pages};
}

// A draft model may come quantised where the model is not.
StatusOr<QuantizeTo> QuantizeFor(const std::string& name,
                                 const ModelSource& source,
                                 const ModelTensors& tensors,
                                 const Shared& shared) {
  const std::string type = MainWeightType(source);
  const bool floats = type == "F32" || type == "F16" || type == "BF16";
  return ReadQuantize(shared.target != nullptr && !floats ? "none" : name,
                      tensors);
}

// `left` is what the weights leave of the memory.
std::string Remedy(int64_t left) {
  return left > 0 ? "; lower --kv-cache-memory-bytes to " +
                        std::to_string(left >> 20) + "MiB at most"
                  : "; take a smaller model, or --quantize its weights";
}

Status CheckMemory(int64_t weight_bytes, int64_t kv_bytes,
                   const LlmOptions& options, const Shared& shared) {
  int64_t limit = options.memory_limit_bytes;
  if (limit <= 0) return OkStatus();
  if (shared.target != nullptr) {
    limit -= shared.target->info.weight_bytes +
             shared.target->info.kv_bytes_per_token * kPageTokens *
                 shared.target->runner->info().num_pages;
  }
  if (weight_bytes + kv_bytes <= limit) return OkStatus();
  return ResourceExhausted("weights of " + SizeText(weight_bytes) +
                           " and a KV cache of " + SizeText(kv_bytes) +
                           (shared.target == nullptr
                                ? " do not fit into the memory limit of "
                                : " do not fit into what the model leaves of "
                                  "the memory limit, ") +
                           SizeText(limit) + Remedy(limit - weight_bytes))
      .At("kv_cache_memory_bytes");
}

StatusOr<LlmModel> Load(const std::string& path, const LlmOptions& options,
                        const Shared& shared) {
  const config::LlmSettings& settings = options.settings;
  ASSIGN_OR_RETURN(const auto source, OpenModelSource(path));
  ASSIGN_OR_RETURN(const LlmPlan plan, PlanLlm(*source));
  const ModelConfig& config = plan.config;
  const ModelTensors& tensors = plan.tensors;
  ASSIGN_OR_RETURN(const QuantizeTo quantize,
                   QuantizeFor(settings.quantize, *source, tensors, shared));

  LlmModel model;
  ASSIGN_OR_RETURN(Vocabulary vocabulary, VocabularyFor(*source, config));
  const int32_t bos = vocabulary.bos_id;
  const int32_t eos = vocabulary.eos_id;
  ASSIGN_OR_RETURN(std::unique_ptr<Tokenizer> tokenizer,
                   Tokenizer::Create(std::move(vocabulary)));
  ASSIGN_OR_RETURN(model.pooling, PoolingOf(*source));
  model.hidden = config.hidden;
  ASSIGN_OR_RETURN(model.adds_eos, source->AddsEos());
  model.bos_text = TextOf(*tokenizer, bos);
  model.eos_text = TextOf(*tokenizer, eos);
  model.tokenizer = std::move(tokenizer);
  if (shared.target != nullptr) {
    RETURN_IF_ERROR(CheckSameVocabulary(shared.target->tokenizer->vocabulary(),
                                        model.tokenizer->vocabulary()));
  }
  ASSIGN_OR_RETURN(model.chat_template,
                   LoadModelTemplate(*source, settings.chat_template));
  ASSIGN_OR_RETURN(const ModelGeneration generation,
                   ReadModelGeneration(*source, settings));
  model.generation = generation.defaults;
  model.generation_origin = generation.origin;

  Device& device = shared.device;
  ASSIGN_OR_RETURN(const LlmPlan part,
                   PartOf(*source, plan, options, quantize));
  const std::optional<LoraPacking> packing = device.adapter_packing();
  if (packing && options.group == nullptr) {
    model.lora_base = std::make_shared<const LoraBase>(
        LoraBase{.config = config,
                 .as_trained = source->as_trained(),
                 .packing = *packing});
  }
  const PageGroups groups =
      PlanPageGroups(settings, config,
                     options.page_groups && device.has_page_groups() &&
                         options.group == nullptr && shared.target == nullptr);
  // A draft model, which has as many pages, gives none back.
  const bool gives_back =
      options.page_groups && settings.speculative_model.empty();
  const std::vector<int32_t> held =
      gives_back ? groups.windows : std::vector<int32_t>{0};
  const auto shape_for = [&](int32_t context) {
    BackendShape of_rank = ShapeOf(part.config, tensors, context);
    if (options.group != nullptr) {
      of_rank.logits =
          LogitsOf(config.vocab, options.group->rank(), options.group->size());
    }
    of_rank.hidden_rows = options.hidden_rows;
    of_rank.kv_places = groups.places;
    of_rank.layers_per_page = groups.layers_per_page;
    return of_rank;
  };
  BackendShape shape = shape_for(config.context);
  const int64_t page_bytes = device.KvPageBytes(shape);
  ASSIGN_OR_RETURN(KvPlan kv,
                   KvPlanFor(options, part, shape, held, *source, shared));
  if (shared.ranks != nullptr) {
    ASSIGN_OR_RETURN(GroupKey key, device.NewGroupKey());
    RETURN_IF_ERROR(shared.ranks->Agree(
        SameAtAllRanks(options, *source, device), &kv, &key));
    RETURN_IF_ERROR(device.Connect(key));
  }
  shape = shape_for(kv.max_context);
  RunnerInfo runner;
  ASSIGN_OR_RETURN(runner.limits,
                   LimitsOf(settings, kv.max_context, options.hidden_rows));
  runner.vocab_size = config.vocab;
  runner.max_context = kv.max_context;
  runner.num_pages = kv.num_pages;
  runner.windows = groups.windows;
  runner.limits.page_groups = groups.count();

  std::unique_ptr<Backend> backend = device.NewBackend(shape, runner.limits);
  ASSIGN_OR_RETURN(const ModelWeights weights,
                   LoadWeights(*source, part.config, part.tensors,
                               settings.compute_dtype == "int16", quantize,
                               *backend, options.progress));
  RecordDecoder(part.config, weights, *backend);
  const int64_t kv_bytes = kv.num_pages * page_bytes;
  RETURN_IF_ERROR(
      CheckMemory(backend->weight_bytes(), kv_bytes, options, shared));

  LlmInfo& info = model.info;
  info.architecture = config.architecture;
  info.name = config.name;
  info.quantization = quantize.layers
                          ? std::string(InfoOf(*quantize.layers).name)
                          : MainWeightType(*source);
  info.num_parameters = CountParameters(*source);
  info.file_bytes = source->file_bytes();
  info.weight_bytes = backend->weight_bytes();
  info.kv_bytes_per_token = page_bytes * groups.count() / kPageTokens;
  info.kv_bound_by = kv.bound_by;
  info.trained_context = config.context;
  info.isa = device.kernels();
  info.threads = device.threads();
  ASSIGN_OR_RETURN(model.runner, device.NewRunner(runner, std::move(backend)));
  return model;
}

StatusOr<DraftBytes> DraftBytesOf(const std::string& path,
                                  const Device& device) {
  ASSIGN_OR_RETURN(const auto source, OpenModelSource(path));
  ASSIGN_OR_RETURN(const LlmPlan plan, PlanLlm(*source));
  return DraftBytes{.page_bytes = device.KvPageBytes(ShapeOf(
                        plan.config, plan.tensors, plan.config.context)),
                    .weight_bytes = WeightBytesOn(device, *source)};
}

Status CheckGroup(const LlmOptions& options) {
  const int64_t wanted = options.settings.tensor_parallel_size;
  const int64_t size = options.group == nullptr ? 1 : options.group->size();
  if (wanted != size) {
    return InvalidArgument("tensor_parallel_size is " + std::to_string(wanted) +
                           ", but the group that loads the model has " +
                           std::to_string(size) +
                           (size == 1 ? " process" : " processes"))
        .At("tensor_parallel_size");
  }
  if (size > 1 && options.hidden_rows) {
    return Unimplemented(
               "tensor_parallel_size above 1 is not supported for models that "
               "make vectors of texts; leave it out")
        .At("tensor_parallel_size");
  }
  return OkStatus();
}

// The model, and the draft model if the settings name one. `ranks` may be null.
StatusOr<LlmModel> LoadBoth(const std::string& path, const LlmOptions& given,
                            GroupLoad* ranks) {
  LlmOptions options = given;
  ASSIGN_OR_RETURN(const config::SpeculativeMethod method,
                   config::SpeculativeMethodOf(options.settings));
  if (options.group != nullptr) {
    ASSIGN_OR_RETURN(options.device,
                     DeviceOfRank(options.device, *options.group));
  }
  ASSIGN_OR_RETURN(
      const auto device,
      OpenDevice(options.device, options.settings, options.isa, options.cpus));
  if (device->memory_bytes() > 0) {
    options.memory_limit_bytes = device->memory_bytes();
  }
  RETURN_IF_ERROR(CheckGroup(options));
  if (options.group != nullptr) {
    if (method == config::SpeculativeMethod::kDraftModel) {
      return Unimplemented(
                 "a draft model is not supported with tensor_parallel_size "
                 "above 1; leave speculative_model out")
          .At("speculative_model");
    }
    RETURN_IF_ERROR(device->Join(options.group));
    return Load(path, options, {.device = *device, .ranks = ranks});
  }
  if (method != config::SpeculativeMethod::kDraftModel) {
    return Load(path, options, {.device = *device});
  }
  const std::string& draft_path = options.settings.speculative_model;
  const std::string where = "speculative_model '" + draft_path + "'";
  const LlmOptions draft_options = DraftOptions(options);
  const auto draft_bytes = DraftBytesOf(draft_path, *device);
  if (!draft_bytes.ok()) {
    return draft_bytes.status().Prefixed(where).At("speculative_model");
  }
  ASSIGN_OR_RETURN(
      LlmModel model,
      Load(path, options, {.device = *device, .draft = *draft_bytes}));
  StatusOr<LlmModel> draft =
      Load(draft_path, draft_options, {.device = *device, .target = &model});
  if (!draft.ok()) {
    return draft.status().Prefixed(where).At("speculative_model");
  }
  model.draft_runner = std::move(draft->runner);
  model.draft_info = std::move(draft->info);
  return model;
}

// What the standard library throws when memory or threads run out.
StatusOr<LlmModel> LoadCatching(const std::string& path,
                                const LlmOptions& options, GroupLoad* ranks) {
  try {
    return LoadBoth(path, options, ranks);
  } catch (const std::bad_alloc&) {
    return ResourceExhausted(
        "no memory for the buffers of a step; lower max_num_batched_tokens (" +
        std::to_string(options.settings.max_num_batched_tokens) +
        ") or max_num_seqs (" + std::to_string(options.settings.max_num_seqs) +
        ")");
  } catch (const std::system_error& error) {
    return ResourceExhausted("no thread can be started: " +
                             std::string(error.what()));
  }
}

// One rank's part of the model. A rank that fails informs the others.
StatusOr<LlmModel> LoadRank(const std::string& path,
                            const LlmOptions& options) {
  GroupLoad ranks(*options.group);
  StatusOr<LlmModel> model = LoadCatching(path, options, &ranks);
  RETURN_IF_ERROR(ranks.End(model.status()));
  if (options.group->rank() == 0) {
    model->runner = std::make_unique<GroupRunner>(
        std::move(model->runner), options.group, options.on_group_broken);
  }
  return model;
}

Status Convert(const std::string& path, const std::string& out,
               const LlmOptions& options) {
  ASSIGN_OR_RETURN(const auto source, OpenModelSource(path));
  ASSIGN_OR_RETURN(const LlmPlan plan, PlanLlm(*source));
  ASSIGN_OR_RETURN(const std::optional<VectorForm> vectors,
                   source->ReadVectorForm());
  ASSIGN_OR_RETURN(const std::string pooling, PoolingOf(*source));
  ASSIGN_OR_RETURN(
      const auto device,
      OpenDevice(options.device, options.settings, options.isa, options.cpus));
  const StepLimits limits = {
      .max_tokens = 1, .max_seqs = 1, .max_pages_per_seq = 1, .max_samples = 1};
  BackendShape shape = ShapeOf(plan.config, plan.tensors, plan.config.context);
  // A model of vectors is loaded without its head.
  shape.hidden_rows = vectors.has_value() || !pooling.empty();
  const std::unique_ptr<Backend> backend = device->NewBackend(shape, limits);
  RETURN_IF_ERROR(LoadWeights(*source, plan.config, plan.tensors,
                              options.settings.compute_dtype == "int16",
                              QuantizeTo{}, *backend, options.progress)
                      .status());
  return WritePacked(*source, *backend, out);
}

}  // namespace

Status ConvertLlm(const std::string& path, const std::string& out,
                  const LlmOptions& options) {
  try {
    return Convert(path, out, options);
  } catch (const std::bad_alloc&) {
    return ResourceExhausted("no memory to convert '" + path + "'");
  }
}

bool MakesVectors(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error) &&
      std::filesystem::exists(path + "/modules.json", error)) {
    return true;
  }
  const auto source = OpenModelSource(path);
  if (!source.ok()) return false;
  const auto pooling = (*source)->Int("pooling_type", 0);
  return pooling.ok() && *pooling != 0;
}

StatusOr<LlmModel> LoadLlm(const std::string& path, const LlmOptions& options) {
  StatusOr<LlmModel> model = options.group != nullptr
                                 ? LoadRank(path, options)
                                 : LoadCatching(path, options, nullptr);
  if (!model.ok() &&
      model.status().message().find(path) == std::string_view::npos) {
    return model.status().Prefixed("'" + path + "'");
  }
  return model;
}

}  // namespace millrace::models
