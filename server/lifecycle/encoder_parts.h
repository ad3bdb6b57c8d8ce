// What an encoder of texts has beside its graph: a task, a tokenizer.
#pragma once

#include <string>

#include "config/base/status.h"
#include "config/task_settings.h"
#include "handlers/texts/text_files.h"
#include "models/encoder/encoder_config.h"
#include "models/files/gguf.h"

namespace millrace::server {

// What it is made for, where its config.yaml says nothing.
config::TaskSettings TaskOf(const models::encoder::EncoderConfig& config);

// The same task, its activation no longer "auto": of texts what the files
// beside the model say. `path` is the model's; a GGUF says nothing of it.
StatusOr<config::TaskSettings> WithActivation(config::TaskSettings task,
                                              const std::string& path,
                                              bool is_gguf);

// The tokenizer of its GGUF, and how many tokens its graph takes.
StatusOr<handlers::TextFiles> TextFilesOf(const models::GgufFile& file,
                                          const config::TextTaskSettings& text);

// A file of the model's folder (or the model's file), beside which those of a
// task stand.
std::string TaskPath(const std::string& path);

}  // namespace millrace::server
