// How texts become tokens and rows a vector is said by the files of
// sentence-transformers in a folder, and by keys of a GGUF; settings win.
#include "server/lifecycle/load_embedding.h"

#include <algorithm>
#include <filesystem>
#include <string>
#include <utility>

#include "config/base/log.h"
#include "config/task_settings.h"
#include "handlers/make_task.h"
#include "handlers/texts/decoder_tensors.h"
#include "handlers/texts/text_files.h"
#include "handlers/texts/text_parts.h"
#include "handlers/texts/text_tensors.h"
#include "models/llm/model.h"
#include "scheduler/embedding_engine.h"
#include "server/lifecycle/embedding_model.h"

namespace millrace::server {
namespace {

using handlers::Pooling;
using scheduler::RowPooling;

StatusOr<RowPooling> RowPoolingOf(Pooling pooling) {
  switch (pooling) {
    case Pooling::kMean:
      return RowPooling::kMean;
    case Pooling::kCls:
      return RowPooling::kFirst;
    case Pooling::kLast:
      return RowPooling::kLast;
    case Pooling::kMax:
      break;
  }
  return Unimplemented(
             "pooling is max, which decoders do not have; use mean, cls or "
             "last")
      .At("pooling");
}

std::shared_ptr<const config::TaskSettings> TaskOf(
    const config::ModelSettings& settings) {
  if (settings.task != nullptr) return settings.task;
  config::TaskSettings task;
  task.kind = config::TaskKind::kEmbed;
  return std::make_shared<const config::TaskSettings>(task);
}

// Of a GGUF, which has it all.
StatusOr<handlers::TextFiles> FilesOf(const models::LlmModel& model,
                                      const config::TextTaskSettings& text) {
  Pooling pooling = Pooling::kLast;
  if (!model.pooling.empty()) {
    ASSIGN_OR_RETURN(pooling, handlers::PoolingFromName(model.pooling));
  }
  const models::Vocabulary& words = model.tokenizer->vocabulary();
  return handlers::TextFilesOf(
      model.tokenizer,
      models::PostProcessor::Around(words.add_bos ? words.bos_id : -1,
                                    model.adds_eos ? words.eos_id : -1),
      text, pooling, model.runner->info().max_context);
}

}  // namespace

bool IsEmbeddingModel(const config::ModelSettings& settings) {
  if (settings.task != nullptr) {
    return settings.task->kind == config::TaskKind::kEmbed;
  }
  return models::MakesVectors(settings.path);
}

StatusOr<std::shared_ptr<Servable>> LoadEmbeddingModel(
    ModelFacts facts, const config::ModelSettings& settings,
    const config::CpuSet& team, int64_t memory_limit_bytes,
    handlers::Pool* pool, MetricRegistry* metrics,
    std::function<void(double)> progress) {
  const std::string id = facts.id;
  ASSIGN_OR_RETURN(
      models::LlmModel model,
      models::LoadLlm(settings.path, {.settings = settings.llm,
                                      .isa = settings.common.isa,
                                      .device = settings.common.device,
                                      .cpus = team,
                                      .memory_limit_bytes = memory_limit_bytes,
                                      .progress = std::move(progress),
                                      .hidden_rows = true}));
  const auto task = TaskOf(settings);
  const bool is_folder = std::filesystem::is_directory(settings.path);
  handlers::TaskParts parts = {
      .model = id,
      .path = is_folder ? settings.path + "/config.json" : settings.path,
      .settings = task,
      .pool = pool,
      .max_rows = model.runner->info().limits.max_seqs};
  ASSIGN_OR_RETURN(handlers::TextFiles files,
                   is_folder ? handlers::ReadTextFiles(parts, Pooling::kLast)
                             : FilesOf(model, task->text));
  ASSIGN_OR_RETURN(const RowPooling pooling, RowPoolingOf(files.pooling));
  const int64_t context = model.runner->info().max_context;
  auto engine = scheduler::EmbeddingEngine::Create(
      std::move(model.runner),
      {.model = id,
       .version = facts.version,
       .pooling = pooling,
       .hidden = model.hidden,
       .max_queue_size = static_cast<int32_t>(settings.common.max_queue_size)},
      metrics);
  files.max_tokens = std::min<int64_t>(files.max_tokens, engine->max_tokens());
  auto tensors = handlers::MakeDecoderTensors(
      {.model = id, .engine = engine.get(), .pool = pool});
  parts.tensors = tensors.get();
  const int64_t max_tokens = files.max_tokens;
  ASSIGN_OR_RETURN(auto texts,
                   handlers::MakeTextHandler(parts, std::move(files)));
  auto by_parts = handlers::MakeTextParts(texts.get(), tensors.get());
  tensors = handlers::MakeTextTensors(std::move(tensors), texts.get(), pool);
  facts.platform = "millrace_" + model.info.architecture;
  facts.parameters.emplace_back("task", config::TaskName(task->kind));
  LogInfo("embedding model loaded",
          {{"model", id},
           {"architecture", model.info.architecture},
           {"quantization", model.info.quantization},
           {"parameters", model.info.num_parameters},
           {"context", context},
           {"max_tokens", max_tokens},
           {"size", engine->size()},
           {"weight_mib", model.info.weight_bytes >> 20},
           {"isa", model.info.isa},
           {"threads", model.info.threads}});
  return std::make_shared<EmbeddingModel>(std::move(facts), std::move(engine),
                                          std::move(tensors), std::move(texts),
                                          std::move(by_parts));
}

}  // namespace millrace::server
