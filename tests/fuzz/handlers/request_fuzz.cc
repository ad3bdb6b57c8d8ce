// Any bytes as a request: they are refused with a sentence that names what is
// wrong, or give options within the documented ranges and messages that a
// template may rely on. Then the same bytes are cut into tokens, and the text
// that comes out must be valid and must not hold a stop string.
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string_view>

#include "config/base/json.h"
#include "config/base/utf8.h"
#include "handlers/chat_messages.h"
#include "handlers/request_fields.h"
#include "handlers/text_out.h"
#include "tests/fuzz/refusal.h"

namespace {

using millrace::CheckRefusal;
using millrace::Require;
using millrace::handlers::FieldDialect;
using millrace::handlers::GenerateOptions;
using millrace::handlers::TextOut;

void CheckOptions(const GenerateOptions& options) {
  Require(options.temperature.value_or(1) >= 0 &&
              options.temperature.value_or(1) <= 2,
          "temperature");
  Require(options.top_p.value_or(1) > 0 && options.top_p.value_or(1) <= 1,
          "top_p");
  Require(options.min_p.value_or(0) >= 0 && options.min_p.value_or(0) <= 1,
          "min_p");
  Require(
      options.top_k.value_or(0) >= -1 && options.top_k.value_or(0) <= INT32_MAX,
      "top_k");
  Require(options.repetition_penalty.value_or(1) > 0, "repetition_penalty");
  Require(options.typical_p.value_or(1) > 0, "typical_p");
  Require(options.mirostat_eta.value_or(0) <= 1, "mirostat_eta");
  Require(options.mirostat >= 0 && options.mirostat <= 2, "mirostat");
  Require(options.min_keep >= 0, "min_keep");
  Require(options.repeat_last_n.value_or(-1) >= -1, "repeat_last_n");
  Require(options.sampler_order.size() <= 7, "samplers");
  Require(options.dry_multiplier.value_or(0) >= 0, "dry_multiplier");
  Require(options.dry_allowed_length.value_or(0) >= 0, "dry_allowed_length");
  Require(options.dry_penalty_last_n.value_or(-1) >= -1, "dry_penalty_last_n");
  if (options.dry_sequence_breakers) {
    Require(options.dry_sequence_breakers->size() <= 16, "dry breakers");
    for (const std::string& text : *options.dry_sequence_breakers) {
      Require(!text.empty() && text.size() <= 40, "a dry breaker");
    }
  }
  Require(options.min_tokens >= 0, "min_tokens");
  Require(!options.max_tokens || (*options.max_tokens >= 1 &&
                                  *options.max_tokens >= options.min_tokens),
          "max_tokens");
  Require(options.stop.size() <= 16, "stop");
  for (const std::string& stop : options.stop) {
    Require(!stop.empty() && millrace::IsValidUtf8(stop), "a stop string");
  }
  Require(options.logit_bias.size() <= 1024, "logit_bias");
  Require(options.bad_words.size() <= 256, "bad_words");
  for (const std::string& word : options.bad_words) {
    Require(!word.empty() && millrace::IsValidUtf8(word), "a bad word");
  }
  for (const int32_t id : options.allowed_token_ids) {
    Require(id >= 0, "an allowed token id");
  }
  for (const int32_t id : options.suppress_tokens) Require(id >= 0, "an id");
  Require(options.no_repeat_ngram_size >= 0, "no_repeat_ngram_size");
  Require(options.logits_processors.size() <= 32, "logits_processors");
  for (const auto& [id, bias] : options.logit_bias) {
    Require(id >= 0 && bias >= -100 && bias <= 100, "a logit bias");
  }
  for (const int32_t id : options.stop_token_ids) Require(id >= 0, "stop id");
  Require(
      !options.logprobs || (*options.logprobs >= 0 && *options.logprobs <= 20),
      "logprobs");
}

void CheckText(std::string_view bytes, const GenerateOptions& options) {
  TextOut out({.stop = options.stop,
               .include_stop = options.include_stop_str_in_output});
  std::string text;
  for (size_t at = 0, size = 1; at < bytes.size(); at += size) {
    size = 1 + static_cast<uint8_t>(bytes[at]) % 5;
    const bool goes_on = out.Push(bytes.substr(at, size), {});
    text += out.Take().text;
    Require(millrace::IsValidUtf8(text), "text is whole characters");
    if (!goes_on) break;
  }
  out.Finish();
  text += out.Take().text;
  if (options.include_stop_str_in_output) return;
  for (const std::string& stop : options.stop) {
    Require(text.find(stop) == text.npos, "a stop string is never shown");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto body = millrace::ParseJson(text);
  if (!body.ok()) {
    CheckRefusal(body.status());
    return 0;
  }
  for (const FieldDialect dialect :
       {FieldDialect::kChat, FieldDialect::kCompletions,
        FieldDialect::kSamplingParameters}) {
    const auto options =
        millrace::handlers::ReadGenerateOptions(*body, dialect);
    if (!options.ok()) {
      CheckRefusal(options.status());
      continue;
    }
    CheckOptions(*options);
    CheckText(text, *options);
  }
  const auto chat = millrace::handlers::ReadChatPrompt(*body);
  if (!chat.ok()) {
    CheckRefusal(chat.status());
    return 0;
  }
  Require(chat->messages->is_array() && !chat->messages->empty(), "messages");
  size_t num_images = 0;
  for (const auto& message : *chat->messages) {
    Require(message.is_object() && message["role"].is_string(), "a message");
    const auto content = message.find("content");
    if (content != message.end() && content->is_array()) {
      for (const auto& part : *content) {
        num_images += part["type"] == "image" ? 1 : 0;
        Require(part["type"] == "image" || part["text"].is_string(), "a part");
      }
      continue;
    }
    Require(
        content == message.end() || content->is_null() || content->is_string(),
        "content is text by now");
  }
  Require(num_images == chat->images.size(), "each image has its part");
  for (const auto& image : chat->images) {
    if (!image.status.ok()) {
      CheckRefusal(image.status);
    } else {
      Require(!image.bytes->empty() && !image.path.empty(), "an image");
    }
  }
  return 0;
}
