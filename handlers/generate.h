// Chat and completions over one engine: render the template, encode, submit,
// then turn tokens into valid UTF-8 text, hold back what may be the
// start of a stop string, and end.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "config/base/clock.h"
#include "config/base/metrics.h"
#include "handlers/handler.h"
#include "handlers/parsers/formats.h"
#include "handlers/pool.h"
#include "models/grammar/grammar_compiler.h"
#include "models/grammar/reasoning_grammar.h"
#include "models/text/chat_template.h"
#include "models/text/generation_defaults.h"
#include "models/text/tokenizer.h"
#include "models/vision/image_encoder.h"
#include "scheduler/engine.h"

namespace millrace::handlers {

struct GenerateParts {
  std::string model;  // for messages
  std::shared_ptr<const models::Tokenizer> tokenizer;
  std::shared_ptr<const models::ChatTemplate> chat_template;  // or null
  // Asked for each request as it begins; where there is none or it says null,
  // the model is as it is.
  std::function<std::shared_ptr<const models::LoraAdapter>()> adapter = {};
  models::GenerationDefaults defaults = {};
  OutputFormats formats = {};  // how the model writes calls and reasoning
  // Of the tokenizer's vocabulary; shared by all that have this tokenizer.
  std::shared_ptr<models::TagEnds> tag_ends =
      std::make_shared<models::TagEnds>();
  // Those that requests may name (logits_processor_fields.h).
  std::vector<std::string> logits_processors = {};
  std::string bos_text;
  std::string eos_text;
  scheduler::Engine* engine = nullptr;  // outlives the handler
  Pool* pool = nullptr;                 // outlives the handler
  // Outlives the handler; null: constraints of the text are refused.
  models::GrammarCompiler* grammars = nullptr;
  // For calls of tools: its vocabulary has the text of special tokens where the
  // completion shows it. Maybe the same; null: calls are as the model writes
  // them.
  models::GrammarCompiler* call_grammars = nullptr;
  // Outlives the handler; null: the model takes no images.
  models::vision::ImageEncoder* images = nullptr;
  int64_t max_images = 0;  // of a request
  const Clock* clock = &Clock::Real();
};

std::unique_ptr<GenerateHandler> MakeGenerateHandler(GenerateParts parts);

}  // namespace millrace::handlers
