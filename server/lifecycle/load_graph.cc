// A servable of tensors: a handler before a batcher before an execution
// context of the graph.
// Weights may stay in the mapped file, which must not change while it is
// served.
#include "server/lifecycle/load_graph.h"

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <optional>
#include <system_error>
#include <utility>

#include "config/base/log.h"
#include "config/base/read_file.h"
#include "config/base/utf8.h"
#include "config/drift_settings.h"
#include "config/micro_batching_settings.h"
#include "config/ragged_settings.h"
#include "config/sequence_settings.h"
#include "config/task_settings.h"
#include "handlers/drift/drift_handler.h"
#include "handlers/make_task.h"
#include "handlers/response_cache.h"
#include "handlers/sequences/sequence_handler.h"
#include "handlers/shadow/shadow_handler.h"
#include "handlers/task_tensors.h"
#include "handlers/tensor_reshapes.h"
#include "handlers/tensors.h"
#include "handlers/texts/text_files.h"
#include "handlers/texts/text_parts.h"
#include "handlers/texts/text_ports.h"
#include "handlers/texts/text_task.h"
#include "handlers/texts/text_tensors.h"
#include "handlers/texts/token_task.h"
#include "models/encoder/encoder_files.h"
#include "models/graph/execution_context.h"
#include "models/graph/import.h"
#include "models/graph/sample_inputs.h"
#include "models/memory/truncation_guard.h"
#include "scheduler/batch_refusals.h"
#include "scheduler/batcher.h"
#include "server/lifecycle/batching.h"
#include "server/lifecycle/encoder_parts.h"
#include "server/lifecycle/graph_model.h"
#include "server/lifecycle/graph_precision.h"
#include "server/lifecycle/instance_choice.h"
#include "server/lifecycle/warmup_samples.h"

namespace millrace::server {

bool IsGraphFile(const std::string& path) {
  std::error_code error;
  if (models::encoder::IsEncoder(path)) return true;
  if (!std::filesystem::is_regular_file(path, error)) return false;
  const std::string extension = std::filesystem::path(path).extension();
  if (extension == ".onnx" || extension == ".pt2") return true;
  const StatusOr<bool> is_graph = models::graph::IsGraphFile(path);
  return is_graph.ok() && *is_graph;
}

namespace {

using models::graph::ExecutionContext;

constexpr size_t kMaxBaselineBytes = 1 << 20;

// One row and, where it was asked for, a full batch. Inputs that cannot be made
// up leave the first request to do this work.
std::vector<scheduler::Batcher::Inputs> WarmUps(
    const ExecutionContext& context,
    const scheduler::BatchingOptions& batching) {
  std::vector<scheduler::Batcher::Inputs> warm_ups;
  const models::graph::BatchAxis& axis = context.batch_axis();
  std::vector<int64_t> sizes = {1};
  if (batching.refuse_larger) sizes.push_back(batching.max_batch_size);
  for (const int64_t rows : sizes) {
    models::graph::SampleOptions options;
    if (axis.batchable) {
      const auto& symbol = context.symbols()[static_cast<size_t>(axis.symbol)];
      options.sizes[symbol.name] =
          std::max(rows, axis.min_rows) +
          (CountsAnEnd(axis, context.inputs()) ? 1 : 0);
    }
    auto inputs =
        models::graph::SampleInputs(context.compiled_graph()->graph(), options,
                                    models::graph::LeftOutSizes::kLeast);
    if (inputs.ok()) warm_ups.push_back(*std::move(inputs));
  }
  return warm_ups;
}

// A graph and, of encoders, what they have beside it: a task without being
// told, and in a GGUF the tokenizer.
struct Source {
  models::graph::Graph graph;
  std::shared_ptr<const config::TaskSettings> task;
  std::shared_ptr<const models::GgufFile> gguf;
};
StatusOr<Source> ReadGraph(const std::string& path,
                           const config::ModelSettings& settings,
                           models::graph::ImportReport* report) {
  Source out;
  out.task = settings.task;
  if (!models::encoder::IsEncoder(path)) {
    ASSIGN_OR_RETURN(out.graph, models::graph::ImportGraph(path, report));
    return out;
  }
  ASSIGN_OR_RETURN(models::encoder::Encoder encoder,
                   models::encoder::LoadEncoder(path));
  report->format = (encoder.file == nullptr ? "Hugging Face, " : "GGUF, ") +
                   encoder.config.architecture;
  if (out.task == nullptr) {
    out.task =
        std::make_shared<const config::TaskSettings>(TaskOf(encoder.config));
  }
  out.graph = std::move(encoder.graph);
  out.gguf = std::move(encoder.file);
  return out;
}

StatusOr<scheduler::RaggedRows> RaggedOf(
    const config::PipelineSettings& pipeline,
    const scheduler::BatchingOptions& batching,
    const ExecutionContext& context) {
  if (pipeline.ragged == nullptr) return scheduler::RaggedRows();
  if (pipeline.sequences != nullptr) {
    return InvalidArgument(
               "ragged_inputs is set together with sequence_batching, but "
               "requests "
               "of sequences are of one size; leave one of them out")
        .At("ragged_inputs");
  }
  if (!context.batch_axis().jagged.empty()) {
    return InvalidArgument(
               "ragged_inputs pads the requests of a model whose features are "
               "jagged, which are joined without padding; leave it out")
        .At("ragged_inputs");
  }
  if (batching.max_batch_size == 1) {
    const std::string& reason = context.batch_axis().reason;
    return InvalidArgument(
               "ragged_inputs says how requests are joined, but those of this "
               "model are not: " +
               (reason.empty() ? "max_batch_size is 1" : reason))
        .At("ragged_inputs");
  }
  return scheduler::RaggedRows::Create(*pipeline.ragged, context.inputs(),
                                       context.outputs(), context.symbols());
}

Status CheckMicroBatching(const config::PipelineSettings& pipeline,
                          const config::TaskSettings* task) {
  if (pipeline.micro_batching == nullptr) return OkStatus();
  if (task != nullptr && config::IsImageTask(task->kind)) return OkStatus();
  return InvalidArgument(
             "micro_batching is set " +
             (task == nullptr
                  ? std::string("without a task")
                  : "beside task '" +
                        std::string(config::TaskName(task->kind)) + "'") +
             ", but it overlaps the reading of pictures with a graph; leave it "
             "out, or let task be classify, detect or segment")
      .At("micro_batching");
}

// Null: nothing is watched.
StatusOr<std::shared_ptr<handlers::DriftMonitor>> DriftOf(
    const config::PipelineSettings& pipeline, const config::TaskSettings* task,
    const std::string& model, const std::string& version,
    const std::string& path, MetricRegistry* metrics) {
  if (pipeline.drift == nullptr) {
    return std::shared_ptr<handlers::DriftMonitor>();
  }
  if (task == nullptr || (task->kind != config::TaskKind::kClassify &&
                          task->kind != config::TaskKind::kClassifyText)) {
    return InvalidArgument(
               "drift is set without 'task: classify' or 'classify_text', "
               "whose "
               "predictions it watches; add the task or leave it out")
        .At("drift");
  }
  std::optional<handlers::PredictionCounts> baseline;
  const std::string& name = pipeline.drift->baseline;
  if (!name.empty()) {
    handlers::TaskParts parts;
    parts.model = model;
    parts.path = path;
    ASSIGN_OR_RETURN(const std::string file,
                     handlers::FindTaskFile(parts, "drift.baseline", name));
    ASSIGN_OR_RETURN(const std::string text,
                     ReadFileOf("drift", file, kMaxBaselineBytes));
    ASSIGN_OR_RETURN(baseline,
                     handlers::ParseCounts(text, "the baseline " + file,
                                           pipeline.drift->max_classes));
    if (const std::string of = handlers::ModelOfCounts(text);
        !of.empty() && of != model) {
      LogWarning("the drift baseline is of another model",
                 {{"model", model},
                  {"baseline_of", Shortened(of, 100)},
                  {"file", file}});
    }
    const auto counted = std::accumulate(baseline->classes.begin(),
                                         baseline->classes.end(), int64_t{0});
    if (counted < pipeline.drift->min_predictions) {
      LogWarning("the drift baseline counts few predictions",
                 {{"model", model},
                  {"predictions", counted},
                  {"min_predictions", pipeline.drift->min_predictions},
                  {"file", file}});
    }
  }
  return handlers::DriftMonitor::Create(*pipeline.drift, model, version,
                                        std::move(baseline), metrics);
}

// Of the model's metadata: "ads: ads_offsets or ads_lengths, …".
std::string JaggedText(
    const std::vector<models::graph::JaggedFeature>& features,
    const scheduler::JaggedRows& rows,
    const std::vector<models::graph::Port>& inputs) {
  constexpr size_t kMostFeatures = 64;
  std::string text;
  for (size_t i = 0; i < features.size(); ++i) {
    if (i == kMostFeatures) {
      return text + ", and " + std::to_string(features.size() - i) + " more";
    }
    const std::string& lengths = rows.LengthsName(features[i].offsets);
    text += (i > 0 ? ", " : "") + inputs[features[i].values].name + ": " +
            inputs[features[i].offsets].name +
            (lengths.empty() ? "" : " or " + lengths);
  }
  return text;
}

// Where the files of initial states are: beside the folders of versions.
std::string StateFolder(const std::string& path) {
  return std::filesystem::path(path).parent_path().parent_path() /
         "initial_state";
}

}  // namespace

StatusOr<std::shared_ptr<Servable>> LoadGraph(
    ModelFacts facts, const config::ModelSettings& settings,
    const config::CpuSet& cpus, const config::Topology& topology,
    int64_t memory_limit_bytes, handlers::Pool* pool, MetricRegistry* metrics,
    Timeline* timeline, const config::PipelineSettings& pipeline,
    handlers::ShadowRunner* shadows) {
  const std::string id = facts.id;
  const auto num_cpus = static_cast<int64_t>(cpus.size());
  const std::vector<config::CpuSet> nodes = ByNode(cpus, topology);
  models::graph::ImportReport report;
  ASSIGN_OR_RETURN(Source source, ReadGraph(settings.path, settings, &report));
  std::shared_ptr<const config::TaskSettings> task_settings;
  if (source.task != nullptr) {
    ASSIGN_OR_RETURN(
        config::TaskSettings task,
        WithActivation(*source.task, settings.path, source.gguf != nullptr));
    task_settings =
        std::make_shared<const config::TaskSettings>(std::move(task));
  }
  const size_t num_nodes = source.graph.nodes.size();
  models::graph::InstanceOptions options;
  options.cpus =
      InstanceTeams(nodes, std::max<int64_t>(settings.graph.instance_count, 1))
          .front();
  options.isa = settings.common.isa;
  options.tiny_alone = true;
  options.max_bytes = memory_limit_bytes / 2;
  options.max_plan_bytes =
      std::min(options.max_plan_bytes, memory_limit_bytes / 8);
  ASSIGN_OR_RETURN(PreparedGraph prepared,
                   PrepareGraph(std::move(source.graph), settings, options));

  const models::graph::BatchAxis axis = prepared.context->batch_axis();
  scheduler::JaggedRows jagged(axis.jagged, prepared.context->inputs());
  ASSIGN_OR_RETURN(const scheduler::BatchingOptions batching,
                   BatchingOf(settings.graph, axis));
  ASSIGN_OR_RETURN(scheduler::RaggedRows ragged,
                   RaggedOf(pipeline, batching, *prepared.context));
  if (!axis.batchable && settings.graph.max_batch_size > 1) {
    LogWarning("requests are not joined to batches",
               {{"model", id},
                {"max_batch_size", settings.graph.max_batch_size},
                {"because", axis.reason}});
  }
  std::vector<scheduler::Batcher::Inputs> warm_ups =
      WarmUps(*prepared.context, batching);
  const auto make_contexts =
      [graphs = prepared.graphs, nodes, max_bytes = memory_limit_bytes / 2,
       cover = models::TruncationGuard::Cover()](int64_t of_device) {
        // Those that are made later answer for the files of this load, too.
        const models::TruncationGuard guard(cover);
        const auto num_devices = static_cast<int64_t>(graphs.size());
        const int64_t count = of_device * num_devices;
        GraphModel::Contexts contexts;
        for (const config::CpuSet& team : InstanceTeams(nodes, count)) {
          contexts.push_back(ExecutionContext::Create(
              graphs[contexts.size() % graphs.size()],
              {.cpus = team, .max_bytes = max_bytes / count}));
        }
        return contexts;
      };
  int64_t num_instances = settings.graph.instance_count;
  std::string why_instances;
  if (num_instances == 0) {
    const InstanceChoice choice =
        ChooseInstances(num_cpus, warm_ups, make_contexts);
    num_instances = choice.count;
    why_instances = choice.text;
  }
  GraphModel::Contexts instances = make_contexts(num_instances);
  num_instances = static_cast<int64_t>(instances.size());
  prepared.context.reset();

  facts.parameters = std::move(prepared.parameters);
  if (task_settings != nullptr) {
    facts.parameters.emplace_back("task",
                                  config::TaskName(task_settings->kind));
  }
  if (pipeline.micro_batching != nullptr) {
    facts.parameters.emplace_back(
        "micro_batching", config::MicroBatchingText(*pipeline.micro_batching));
  }
  if (jagged.any()) {
    facts.parameters.emplace_back(
        "jagged_features",
        JaggedText(axis.jagged, jagged, instances.front()->inputs()));
  }
  facts.platform =
      report.format.starts_with("ONNX") ? "millrace_onnx"
      : report.format.starts_with("Hugging") || source.gguf != nullptr
          ? "millrace_encoder"
          : "millrace_pytorch";
  const std::vector<models::TensorSpec> specs = scheduler::SpecsOf(
      instances.front()->inputs(), instances.front()->symbols());
  std::shared_ptr<const handlers::TensorReshapes> reshapes;
  if (pipeline.reshape != nullptr) {
    ASSIGN_OR_RETURN(reshapes,
                     handlers::TensorReshapes::Create(
                         *pipeline.reshape, specs,
                         scheduler::SpecsOf(instances.front()->outputs(),
                                            instances.front()->symbols())));
  }
  GraphSamples samples;
  if (pipeline.warmup != nullptr) {
    ASSIGN_OR_RETURN(samples, SamplesFor(id, pipeline, specs, reshapes.get()));
  }
  auto batcher = scheduler::Batcher::Create(
      std::move(instances),
      {.model = id,
       .version = facts.version,
       .max_queue_size = static_cast<int32_t>(settings.common.max_queue_size),
       .batching = batching,
       .ragged = std::move(ragged),
       .jagged = std::move(jagged),
       .timeline = timeline,
       .samples = std::move(samples)},
      metrics, std::move(warm_ups));
  RETURN_IF_ERROR(batcher->sample_status().At("model_warmup"));
  auto handler = handlers::MakeTensorHandler(
      {.model = id, .batcher = batcher.get(), .pool = pool});
  if (reshapes != nullptr) {
    handler = handlers::MakeReshapingHandler(std::move(handler), id, reshapes);
  }
  if (pipeline.sequences != nullptr) {
    if (settings.graph.response_cache || task_settings != nullptr) {
      return InvalidArgument(
                 "sequence_batching is set together with a " +
                 std::string(task_settings != nullptr ? "task"
                                                      : "response_cache") +
                 ", but the answers of a model with a state follow from more "
                 "than one request; leave one of them out")
          .At("sequence_batching");
    }
    config::SequenceSettings sequences = *pipeline.sequences;
    if (sequences.direct) {
      sequences.max_sequences =
          num_instances * std::max<int64_t>(batching.max_batch_size,
                                            settings.graph.max_batch_size);
    }
    ASSIGN_OR_RETURN(
        handler,
        handlers::MakeSequenceHandler(
            std::move(handler),
            {.model = id,
             .folder = StateFolder(settings.path),
             .settings = std::make_shared<const config::SequenceSettings>(
                 std::move(sequences)),
             .timeout_is_of_queue =
                 batching.default_queue_policy.allow_timeout_override,
             .registry = metrics}));
  }
  if (pipeline.shadow != nullptr) {
    if (pipeline.sequences != nullptr) {
      return InvalidArgument(
                 "shadow is set together with sequence_batching, but a shadow "
                 "has "
                 "no state of its own; leave one of them out")
          .At("shadow");
    }
    // Inside of the cache: what is not computed has no shadow.
    handler = handlers::MakeShadowHandler(std::move(handler),
                                          {.model = id,
                                           .version = facts.version,
                                           .settings = pipeline.shadow,
                                           .runner = shadows,
                                           .registry = metrics});
  }
  std::unique_ptr<handlers::ResponseCache> cache;
  if (settings.graph.response_cache) {
    cache = std::make_unique<handlers::ResponseCache>(
        settings.graph.response_cache_bytes, id, metrics);
    handler = handlers::MakeCachingHandler(std::move(handler), cache.get());
  }
  ASSIGN_OR_RETURN(const std::shared_ptr<handlers::DriftMonitor> drift,
                   DriftOf(pipeline, task_settings.get(), id, facts.version,
                           TaskPath(settings.path), metrics));
  if (drift != nullptr) {
    std::string scores = handler->outputs().front().name;
    if (task_settings->kind == config::TaskKind::kClassifyText) {
      ASSIGN_OR_RETURN(
          const handlers::TextPorts ports,
          handlers::TextPorts::Find(*handler, task_settings->kind));
      scores = ports.output;
    }
    handler = handlers::MakeDriftHandler(std::move(handler), drift,
                                         task_settings->activation, scores);
  }
  std::unique_ptr<handlers::TaskHandler> task;
  std::unique_ptr<handlers::TextHandler> texts;
  RETURN_IF_ERROR(CheckMicroBatching(pipeline, task_settings.get()));
  if (task_settings != nullptr) {
    handlers::TaskParts parts = {
        .model = id,
        .path = TaskPath(settings.path),
        .settings = task_settings,
        .tensors = handler.get(),
        .pool = pool,
        .max_rows = batching.max_batch_size,
        .micro_batching = pipeline.micro_batching,
        .max_queue_size = settings.common.max_queue_size,
        .registry = metrics};
    if (pipeline.answer != nullptr) parts.answer = *pipeline.answer;
    const bool gives_rows =
        config::IsTextTask(task_settings->kind) &&
        task_settings->kind != config::TaskKind::kTokenClassify;
    if (gives_rows) {
      if (source.gguf == nullptr) {
        ASSIGN_OR_RETURN(texts, handlers::MakeTextHandler(parts));
      } else {
        ASSIGN_OR_RETURN(handlers::TextFiles files,
                         TextFilesOf(*source.gguf, task_settings->text));
        ASSIGN_OR_RETURN(texts,
                         handlers::MakeTextHandler(parts, std::move(files)));
      }
      task = handlers::MakeTextParts(texts.get(), handler.get());
      handler =
          handlers::MakeTextTensors(std::move(handler), texts.get(), pool);
    } else {
      ASSIGN_OR_RETURN(task, handlers::MakeTaskHandler(parts));
      handler = handlers::MakeTaskTensors(std::move(handler), task.get(), pool);
      if (auto* const scores = handlers::TokenScores(task.get())) {
        handler = handlers::MakeTextTensors(std::move(handler), scores, pool);
      }
    }
  }
  LogFieldList fields;
  fields.Add("model", id);
  fields.Add("format", report.format);
  fields.Add("producer", report.producer);
  fields.Add("nodes", static_cast<int64_t>(num_nodes));
  fields.Add("threads", num_cpus);
  fields.Add("instances", num_instances);
  fields.AddText("instances_measured", why_instances);
  fields.Add("max_batch_size", batching.max_batch_size);
  fields.AddText("not_batched", axis.reason);
  LogInfo("graph loaded", fields);
  return std::make_shared<GraphModel>(
      std::move(facts), std::move(batcher), std::move(handler), make_contexts,
      std::move(task), std::move(texts), std::move(cache),
      [cpus, topology](int64_t count) {
        return PlacesOf(cpus, count, topology);
      },
      drift, static_cast<int64_t>(prepared.graphs.size()));
}

}  // namespace millrace::server
