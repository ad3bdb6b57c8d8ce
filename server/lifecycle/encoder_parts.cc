#include "server/lifecycle/encoder_parts.h"

#include <filesystem>
#include <memory>
#include <string_view>
#include <utility>

#include "models/llm/vocabulary.h"
#include "models/text/post_processor.h"
#include "models/text/tokenizer.h"

namespace millrace::server {

config::TaskSettings TaskOf(const models::encoder::EncoderConfig& config) {
  config::TaskSettings task;
  task.kind = config.head == models::encoder::Head::kNone
                  ? config::TaskKind::kEmbed
              : config.classes == 1 ? config::TaskKind::kRerank
                                    : config::TaskKind::kClassifyText;
  return task;
}

StatusOr<config::TaskSettings> WithActivation(config::TaskSettings task,
                                              const std::string& path,
                                              bool is_gguf) {
  if (task.activation != "auto") return task;
  if (is_gguf) {
    task.activation = "softmax";
    return task;
  }
  handlers::TaskParts parts;
  parts.path = TaskPath(path);
  parts.settings = std::make_shared<const config::TaskSettings>(task);
  ASSIGN_OR_RETURN(task.activation, handlers::ActivationOf(parts));
  return task;
}

StatusOr<handlers::TextFiles> TextFilesOf(
    const models::GgufFile& file, const config::TextTaskSettings& text) {
  ASSIGN_OR_RETURN(models::Vocabulary vocabulary, models::ReadVocabulary(file));
  models::PostProcessor form;
  if (vocabulary.bos_id >= 0 && vocabulary.eos_id >= 0) {
    form =
        vocabulary.model == "bert"
            ? models::PostProcessor::Bert(vocabulary.bos_id, vocabulary.eos_id)
            : models::PostProcessor::Roberta(vocabulary.bos_id,
                                             vocabulary.eos_id);
  }
  ASSIGN_OR_RETURN(std::shared_ptr<const models::Tokenizer> tokenizer,
                   models::Tokenizer::Create(std::move(vocabulary)));
  ASSIGN_OR_RETURN(const std::string_view architecture,
                   file.String("general.architecture"));
  const std::string prefix = std::string(architecture) + ".";
  ASSIGN_OR_RETURN(const int64_t pooling, file.Int(prefix + "pooling_type", 1));
  ASSIGN_OR_RETURN(const int64_t context, file.Int(prefix + "context_length"));
  return handlers::TextFilesOf(std::move(tokenizer), std::move(form), text,
                               handlers::PoolingOfGguf(pooling), context);
}

std::string TaskPath(const std::string& path) {
  return std::filesystem::is_directory(path) ? path + "/config.json" : path;
}

}  // namespace millrace::server
