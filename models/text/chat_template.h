// A model's chat template: Jinja text that turns messages into a prompt, as
// transformers renders it (trim_blocks, lstrip_blocks, loop controls,
// raise_exception, strftime_now, tojson without HTML escapes).
//
// User text must not become special tokens. So rendering keeps track of which
// characters came out of the messages: the prompt comes back in parts, and only
// the template's own text may hold special tokens.
//
// Immutable after Create; thread-safe.
#pragma once

#include <ctime>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "config/base/status.h"

namespace millrace::models {

struct ChatInput {
  const nlohmann::ordered_json* messages = nullptr;  // array of objects
  const nlohmann::ordered_json* tools = nullptr;     // array, or null: none
  const nlohmann::ordered_json* extra = nullptr;     // chat_template_kwargs
  bool add_generation_prompt = true;
  std::string bos_token;
  std::string eos_token;
  std::time_t now = 0;  // what strftime_now sees, local time; 0: the present
};

struct PromptPart {
  std::string text;
  bool from_user;  // came out of a value of the request
};

class ChatTemplate {
 public:
  struct Limits {
    int64_t max_steps = 2'000'000;  // evaluated nodes of one rendering
    int64_t max_output_bytes = 64 << 20;
    int max_depth = 100;  // of expressions, macros and loops
    int64_t max_source_bytes = 1 << 20;
  };
  // INVALID_ARGUMENT names line and construct when the text is no template we
  // can render.
  static StatusOr<std::unique_ptr<ChatTemplate>> Create(std::string_view source,
                                                        const Limits& limits);
  static StatusOr<std::unique_ptr<ChatTemplate>> Create(
      std::string_view source) {
    return Create(source, Limits{});
  }
  ~ChatTemplate();

  // Parts in order, neighbours of the same kind joined. raise_exception and
  // every other error of the template is INVALID_ARGUMENT; the former's
  // message is the template's text, letter for letter.
  StatusOr<std::vector<PromptPart>> Render(const ChatInput& input) const;
  // The parts joined.
  StatusOr<std::string> RenderText(const ChatInput& input) const;

  const std::string& source() const;

 private:
  struct Impl;
  explicit ChatTemplate(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace millrace::models
