// The runner, the engine around it, the handler around that. The model's files
// are closed afterwards: weights are copied into packed memory.
#include "server/lifecycle/load_language.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <utility>

#include "config/base/log.h"
#include "config/base/size_text.h"
#include "config/task_settings.h"
#include "handlers/generate.h"
#include "handlers/logits_processor_fields.h"
#include "handlers/shadow/shadow_text.h"
#include "models/cpu/isa.h"
#include "models/llm/kv_fingerprint.h"
#include "models/llm/model.h"
#include "models/llm/page_access.h"
#include "models/llm/page_files.h"
#include "models/llm/page_groups.h"
#include "scheduler/engine.h"
#include "server/lifecycle/language_model.h"
#include "server/lifecycle/load_images.h"
#include "server/lifecycle/tensor_parallel.h"

namespace millrace::server {
namespace {

// The settings do not contradict each other: the model is loaded.
scheduler::SpeculativeOptions SpeculativeOf(const config::LlmSettings& llm) {
  scheduler::SpeculativeOptions options;
  if (llm.speculative_method == "none") return options;
  options.num_tokens = static_cast<int32_t>(llm.num_speculative_tokens);
  options.prompt_lookup_min = static_cast<int32_t>(llm.prompt_lookup_min);
  options.prompt_lookup_max = static_cast<int32_t>(
      std::max(llm.prompt_lookup_min, llm.prompt_lookup_max));
  return options;
}

void LogDraftModel(const std::string& id, const std::string& path,
                   const models::LlmModel& model) {
  const models::LlmInfo& draft = model.draft_info;
  const int64_t pages = model.draft_runner->info().num_pages;
  const int64_t kv_bytes =
      pages * models::kPageTokens * draft.kv_bytes_per_token;
  LogInfo("draft model loaded",
          {{"model", id},
           {"speculative_model", path},
           {"architecture", draft.architecture},
           {"quantization", draft.quantization},
           {"parameters", draft.num_parameters},
           {"context", model.draft_runner->info().max_context},
           {"weight_mib", draft.weight_bytes >> 20},
           {"kv_pages", pages},
           {"kv_mib", kv_bytes >> 20}});
}

// The largest piece of memory after the weights, often larger than they are:
// how large, why, and what changes it. Pages are touched as they are used.
void LogKvCache(const std::string& id, const models::LlmInfo& info,
                const models::RunnerInfo& runner, bool prefix_caching) {
  const int64_t tokens = int64_t{runner.num_pages} * models::kPageTokens /
                         runner.limits.page_groups;
  LogInfo("KV cache sized",
          {{"model", id},
           {"at_most", SizeText(tokens * info.kv_bytes_per_token)},
           {"tokens", tokens},
           {"page_groups", runner.limits.page_groups},
           {"sequences_of_full_length",
            runner.num_pages / models::MostPages(runner.windows,
                                                 runner.limits.max_tokens,
                                                 runner.max_context)},
           {"bound_by", info.kv_bound_by},
           {"filled_by", prefix_caching
                             ? "requests and the prefix cache, which keeps "
                               "ended ones"
                             : "requests"},
           {"setting", "--kv-cache-memory-bytes"}});
}

// Who chose the kernel table, and why.
std::string IsaChoiceText(const std::string& wanted) {
  if (wanted != "auto") return "forced by isa: " + wanted;
  return "auto: " + models::WhyAuto(models::ListKernels());
}

// "temperature 0.2, top_p 0.9 (generation_config.json)"
std::string SamplingText(const models::LlmModel& model) {
  std::string text;
  for (const auto& [name, value] : models::NamedValues(model.generation)) {
    char number[32];
    std::snprintf(number, sizeof(number), "%g", value);
    text.append(text.empty() ? "" : ", ").append(name);
    text.append(" ").append(number);
  }
  if (text.empty()) text = "temperature 1, top_p 1";
  return text + " (" + model.generation_origin + ")";
}

// Tokens that end an answer are never part of a grammar's text. Special ones
// are where a completion's text shows them.
std::unique_ptr<models::GrammarCompiler> GrammarsOf(
    std::shared_ptr<const models::Tokenizer> tokenizer, int64_t vocab_size,
    bool with_special) {
  if (tokenizer->vocabulary().eog_ids.empty()) return nullptr;
  return models::MakeGrammarCompiler([=] {
    models::TokenTexts tokens;
    const int32_t num_texts =
        std::min(tokenizer->size(), static_cast<int32_t>(vocab_size));
    for (int32_t id = 0; id < num_texts; ++id) {
      const bool ends = tokenizer->EndsAnswer(id);
      tokens.texts.emplace_back(tokenizer->Piece(id, with_special && !ends));
      if (ends) tokens.stop_ids.push_back(id);
    }
    tokens.vocab_size = static_cast<int32_t>(vocab_size);
    return tokens;
  });
}

// Null: the settings name no folder.
StatusOr<std::unique_ptr<models::PageStore>> OpenPageStore(
    const std::string& id, const config::ModelSettings& settings,
    const models::LlmModel& model, MetricRegistry* metrics) {
  const config::LlmSettings& llm = settings.llm;
  if (llm.kv_cache_dir.empty() || !llm.enable_prefix_caching) {
    return std::unique_ptr<models::PageStore>();
  }
  const models::RunnerInfo& info = model.runner->info();
  const auto* access =
      dynamic_cast<const models::PageAccess*>(model.runner.get());
  const bool has_window = info.windows.front() > 0;
  if (access == nullptr || has_window) {
    return InvalidArgument(
               "kv_cache_dir is '" + llm.kv_cache_dir + "', but the pages of " +
               (has_window ? "a model whose layers all have a window"
                           : "device '" + settings.common.device + "'") +
               " are not kept; leave it out")
        .At("kv_cache_dir");
  }
  RETURN_IF_ERROR(models::MakePageFolder(llm.kv_cache_dir));
  ASSIGN_OR_RETURN(const std::string fingerprint,
                   models::KvFingerprint(settings.path, llm,
                                         {.isa = model.info.isa,
                                          .max_context = info.max_context,
                                          .page_bytes = access->page_bytes()}));
  ASSIGN_OR_RETURN(auto files, models::PageFiles::Open(
                                   {.dir = llm.kv_cache_dir,
                                    .fingerprint = fingerprint,
                                    .page_bytes = access->page_bytes(),
                                    .max_bytes = llm.kv_cache_dir_max_bytes,
                                    .model = id},
                                   metrics));
  LogInfo("KV pages are kept",
          {{"model", id},
           {"kv_cache_dir", llm.kv_cache_dir},
           {"found_pages", files->num_pages()},
           {"found_tokens", files->num_pages() * models::kPageTokens},
           {"at_most", SizeText(llm.kv_cache_dir_max_bytes)}});
  return std::unique_ptr<models::PageStore>(std::move(files));
}

}  // namespace

StatusOr<std::shared_ptr<Servable>> LoadLanguageModel(
    ModelFacts facts, const config::ModelSettings& settings,
    const config::CpuSet& leased, const LoaderParts& common,
    const std::shared_ptr<const config::ShadowSettings>& shadow,
    std::function<void(double)> progress) {
  const std::string& id = facts.id;
  MetricRegistry* const metrics = common.metrics;
  config::CpuSet team = leased;
  int64_t memory_limit_bytes = common.memory_limit_bytes;
  if (common.group != nullptr) {
    ASSIGN_OR_RETURN(team, CoresOfRank(*common.group, *common.topology,
                                       settings.common, leased));
    memory_limit_bytes = MemoryOfRank(*common.group, *common.topology);
  }
  if (settings.task != nullptr) {
    return InvalidArgument(
               "task is '" +
               std::string(config::TaskName(settings.task->kind)) +
               "', which graphs (ONNX, .pt2) and encoders can have, but this "
               "is a language model; leave task out, or say 'embed'")
        .At("task");
  }
  StatusOr<models::LlmModel> loaded = models::LoadLlm(
      settings.path, {.settings = settings.llm,
                      .isa = settings.common.isa,
                      .device = settings.common.device,
                      .cpus = team,
                      .memory_limit_bytes = memory_limit_bytes,
                      .progress = std::move(progress),
                      .page_groups = true,
                      .group = common.group,
                      .on_group_broken = common.on_group_broken});
  RETURN_IF_ERROR(loaded.status());
  models::LlmModel model = std::move(loaded).value();

  facts.platform = "millrace_" + model.info.architecture;
  TextFacts text = {.max_model_len = model.runner->info().max_context,
                    .trained_context = model.info.trained_context,
                    .num_parameters = model.info.num_parameters,
                    .file_bytes = model.info.file_bytes,
                    .quantization = model.info.quantization,
                    .default_sampling = model.generation,
                    .max_num_seqs = model.runner->info().limits.max_seqs,
                    .chat_template = model.chat_template == nullptr
                                         ? ""
                                         : model.chat_template->source()};
  const scheduler::EngineOptions options = {
      .model = id,
      .version = facts.version,
      .max_num_seqs = static_cast<int32_t>(settings.llm.max_num_seqs),
      .max_num_batched_tokens =
          static_cast<int32_t>(settings.llm.max_num_batched_tokens),
      .max_queue_size = static_cast<int32_t>(settings.common.max_queue_size),
      .enable_prefix_caching = settings.llm.enable_prefix_caching,
      .prefix_cache_share_generated = settings.llm.prefix_cache_share_generated,
      .target_itl = std::chrono::milliseconds(settings.llm.target_itl_ms),
      .speculative = SpeculativeOf(settings.llm),
      .has_adapters = !settings.llm.lora_modules.empty(),
      .timeline = common.timeline};
  if (model.draft_runner != nullptr) {
    LogDraftModel(id, settings.llm.speculative_model, model);
  }
  LogKvCache(id, model.info, model.runner->info(),
             settings.llm.enable_prefix_caching);
  ASSIGN_OR_RETURN(auto store, OpenPageStore(id, settings, model, metrics));
  auto engine = scheduler::Engine::Create(
      std::move(model.runner), options, metrics, std::move(model.draft_runner),
      std::move(store));
  ASSIGN_OR_RETURN(
      const handlers::OutputFormats formats,
      handlers::ChooseFormats(
          settings.llm.tool_call_parser, settings.llm.reasoning_parser,
          model.chat_template == nullptr ? "" : model.chat_template->source()));
  ASSIGN_OR_RETURN(
      auto logits_processors,
      handlers::AllowedLogitsProcessors(settings.llm.logits_processor_pattern));
  ASSIGN_OR_RETURN(
      const ChatImages images,
      LoadImages(id, settings, team, *model.tokenizer, model.hidden));
  text.takes_images = images.encoder != nullptr && images.most > 0;
  const int64_t vocab_size = engine->info().vocab_size;
  Grammars grammars;
  grammars.text = GrammarsOf(model.tokenizer, vocab_size, false);
  const bool holds_calls = formats.tools != nullptr;
  const bool shows_special =
      handlers::ParserSpec{.tools = formats.tools,
                           .reasoning = formats.reasoning}
          .special_tokens();
  if (holds_calls && shows_special) {
    grammars.calls = GrammarsOf(model.tokenizer, vocab_size, true);
  }
  const handlers::GenerateParts parts = {
      .model = id,
      .tokenizer = model.tokenizer,
      .chat_template = model.chat_template,
      .defaults = model.generation,
      .formats = formats,
      .logits_processors = std::move(logits_processors),
      .bos_text = model.bos_text,
      .eos_text = model.eos_text,
      .engine = engine.get(),
      .pool = common.pool,
      .grammars = grammars.text.get(),
      .call_grammars = holds_calls && !shows_special ? grammars.text.get()
                                                     : grammars.calls.get(),
      .images = images.encoder.get(),
      .max_images = images.most};
  auto handler = handlers::MakeGenerateHandler(parts);
  if (shadow != nullptr) {
    handler = handlers::MakeShadowTextHandler(std::move(handler),
                                              {.model = id,
                                               .version = facts.version,
                                               .settings = shadow,
                                               .runner = common.shadows,
                                               .registry = metrics});
  }

  LogInfo("model loaded",
          {{"model", id},
           {"architecture", model.info.architecture},
           {"quantization", model.info.quantization},
           {"parameters", model.info.num_parameters},
           {"context", text.max_model_len},
           {"weight_mib", model.info.weight_bytes >> 20},
           {"kv_pages", engine->info().num_pages},
           {"isa", model.info.isa},
           {"isa_choice", IsaChoiceText(settings.common.isa)},
           {"threads", model.info.threads},
           {"tensor_parallel_size", settings.llm.tensor_parallel_size},
           {"sampling", SamplingText(model)}});
  auto servable = std::make_shared<LanguageModel>(
      std::move(facts), text, std::move(engine), std::move(handler),
      std::move(grammars), AdapterHost{model.lora_base, parts});
  servable->Keep(images.encoder);
  return servable;
}

}  // namespace millrace::server
