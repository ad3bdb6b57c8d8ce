#include "server/cli/inspect_encoder.h"

#include <cstdint>
#include <cstdio>
#include <utility>

#include "config/task_settings.h"
#include "handlers/texts/text_files.h"
#include "models/encoder/encoder_files.h"
#include "models/graph/compiled_graph.h"
#include "server/cli/clean_text.h"
#include "server/lifecycle/encoder_parts.h"

namespace millrace::server {
namespace {

using models::encoder::Encoder;

const char* RouteOf(config::TaskKind kind) {
  switch (kind) {
    case config::TaskKind::kRerank:
      return "/v1/rerank";
    case config::TaskKind::kClassifyText:
      return "/classify";
    default:
      return "/v1/embeddings";
  }
}

const char* NameOf(handlers::Pooling pooling) {
  switch (pooling) {
    case handlers::Pooling::kMean:
      return "mean";
    case handlers::Pooling::kCls:
      return "cls";
    case handlers::Pooling::kMax:
      return "max";
    case handlers::Pooling::kLast:
      return "last";
  }
  return "";
}

long long Wide(int64_t value) { return static_cast<long long>(value); }

void PrintConfig(const Encoder& encoder) {
  const models::encoder::EncoderConfig& config = encoder.config;
  int64_t bytes = 0;
  int64_t parameters = 0;
  for (const models::graph::Value& value : encoder.graph.values) {
    if (!value.constant) continue;
    bytes += value.constant->num_bytes();
    parameters += value.constant->num_elements();
  }
  std::printf(
      "\nencoder        %s: %lld layers, %lld numbers a token, %lld heads, "
      "vocabulary of %lld\n"
      "constants      %lld values, %.1f MiB\n",
      Clean(config.architecture).c_str(), Wide(config.layers),
      Wide(config.hidden), Wide(config.heads), Wide(config.vocabulary),
      Wide(parameters), static_cast<double>(bytes) / (1 << 20));
}

StatusOr<handlers::TextFiles> FilesOf(const std::string& path,
                                      const Encoder& encoder,
                                      const config::TaskSettings& task) {
  if (encoder.file != nullptr) return TextFilesOf(*encoder.file, task.text);
  handlers::TaskParts parts;
  parts.model = path;
  parts.path = TaskPath(path);
  parts.settings = std::make_shared<const config::TaskSettings>(task);
  return handlers::ReadTextFiles(parts);
}

// All that loading checks but packing weights.
Status WhyNotServable(const std::string& path) {
  ASSIGN_OR_RETURN(const Encoder encoder, models::encoder::LoadEncoder(path));
  PrintConfig(encoder);
  ASSIGN_OR_RETURN(
      const config::TaskSettings task,
      WithActivation(TaskOf(encoder.config), path, encoder.file != nullptr));
  std::printf("task           %s, where its config.yaml says none: POST %s\n",
              std::string(config::TaskName(task.kind)).c_str(),
              RouteOf(task.kind));
  ASSIGN_OR_RETURN(const handlers::TextFiles files,
                   FilesOf(path, encoder, task));
  std::printf("texts          at most %lld tokens\n", Wide(files.max_tokens));
  if (task.kind == config::TaskKind::kEmbed) {
    std::printf("pooling        %s%s\n", NameOf(files.pooling),
                files.normalize ? ", then to length 1" : "");
  } else {
    std::printf("classes        %lld\nactivation     %s\n",
                Wide(encoder.config.classes), task.activation.c_str());
  }
  return models::graph::CompiledGraph::Create(encoder.graph.Copy(),
                                              {.interpret = true})
      .status();
}

}  // namespace

Status InspectEncoder(const std::string& path) {
  const Status why_not = WhyNotServable(path);
  if (why_not.ok()) {
    std::printf("\nservable       yes: millrace serve %s\n", path.c_str());
    return OkStatus();
  }
  std::printf("\nservable       no: %s\n",
              Clean(why_not.message(), 1000).c_str());
  return FailedPrecondition("'" + path + "' cannot be served");
}

}  // namespace millrace::server
