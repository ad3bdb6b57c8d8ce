// OpenAI's shapes by concatenation. There is a chunk for every token, so it is
// made by one allocation and a few appends instead of a JSON tree; strings are
// escaped by one function.
#include "server/http/openai_shapes.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <set>

#include "config/base/utf8.h"
#include "server/request_id.h"
#include "server/version.h"

namespace millrace::server::http {
namespace {

using handlers::TokenLogprobs;

// JSON has no infinities: what vLLM sends in their place.
constexpr double kLeastLogprob = -9999.0;

std::string NumberJson(double value) {
  if (!std::isfinite(value)) value = kLeastLogprob;
  char text[40];
  // Nine digits give every float back.
  std::snprintf(text, sizeof text, "%.9g", value);
  return text;
}

int64_t NumChars(std::string_view utf8) {
  return std::count_if(utf8.begin(), utf8.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  });
}

std::string BytesJson(std::string_view bytes) {
  std::string json = "[";
  for (char c : bytes) {
    if (json.size() > 1) json += ',';
    json += std::to_string(static_cast<unsigned char>(c));
  }
  return json += ']';
}

std::string CandidateJson(const TokenLogprobs::Candidate& candidate) {
  return "{\"token\":" + JsonString(candidate.bytes) +
         ",\"logprob\":" + NumberJson(candidate.logprob) +
         ",\"bytes\":" + BytesJson(candidate.bytes);  // left open
}

// The legacy lists. `offset` is the position of the first token in the text,
// in characters, and becomes that behind the last one.
std::string CompletionLogprobs(const std::vector<TokenLogprobs>& tokens,
                               int64_t& offset) {
  std::string texts, logprobs, tops, offsets;
  for (const TokenLogprobs& token : tokens) {
    if (&token != &tokens.front()) {
      texts += ',';
      logprobs += ',';
      tops += ',';
      offsets += ',';
    }
    texts += JsonString(token.chosen.bytes);
    offsets += std::to_string(offset);
    offset += NumChars(ReplaceInvalidUtf8(token.chosen.bytes));
    if (!token.has_logprob) {
      logprobs += "null";
      tops += "null";
      continue;
    }
    logprobs += NumberJson(token.chosen.logprob);
    // A map by text: parts of characters may look alike, the likelier stays.
    std::set<std::string> seen;
    std::string map;
    for (const auto& other : token.top) {
      std::string key = JsonString(other.bytes);
      if (!seen.insert(key).second) continue;
      if (!map.empty()) map += ',';
      map += std::move(key) + ':' + NumberJson(other.logprob);
    }
    tops += '{' + map + '}';
  }
  return "{\"tokens\":[" + texts + "],\"token_logprobs\":[" + logprobs +
         "],\"top_logprobs\":[" + tops + "],\"text_offset\":[" + offsets + "]}";
}

std::string_view FinishName(handlers::FinishReason reason) {
  switch (reason) {
    case handlers::FinishReason::kStop:
      return "\"stop\"";
    case handlers::FinishReason::kLength:
      return "\"length\"";
    case handlers::FinishReason::kError:
      break;
  }
  return "\"error\"";
}

// finish_reason and vLLM's stop_reason, as members.
std::string FinishJson(const ChoiceText& choice) {
  std::string json = "\"finish_reason\":";
  const bool calls =
      choice.reason == handlers::FinishReason::kStop && !choice.calls.empty();
  json += calls ? "\"tool_calls\"" : FinishName(choice.reason);
  json += ",\"stop_reason\":";
  if (const auto* text = std::get_if<std::string>(&choice.stop_reason)) {
    json += JsonString(*text);
  } else if (const auto* id = std::get_if<int32_t>(&choice.stop_reason)) {
    json += std::to_string(*id);
  } else {
    json += "null";
  }
  return json;
}

std::string Prefix(const AnswerShape& shape, std::string_view object) {
  return "{\"id\":" + JsonString(shape.id) + ",\"object\":\"" +
         std::string(object) +
         "\",\"created\":" + std::to_string(shape.created_unix) +
         ",\"model\":" + JsonString(shape.model) +
         (shape.chat ? ",\"service_tier\":\"default\"" : "") +
         ",\"system_fingerprint\":\"millrace-" + std::string(Version()) +
         "\",\"choices\":[";
}

std::string FunctionJson(std::string_view name, std::string_view arguments) {
  return "{\"name\":" + JsonString(name) +
         ",\"arguments\":" + JsonString(arguments) + "}";
}

// Under llama.cpp's and DeepSeek's name, and under vLLM's newer one.
std::string ReasoningJson(std::string_view text) {
  const std::string json = JsonString(text);
  return "\"reasoning_content\":" + json + ",\"reasoning\":" + json;
}

std::string DeltaJson(const handlers::OutputDelta& delta) {
  switch (delta.kind) {
    case handlers::DeltaKind::kContent:
      break;
    case handlers::DeltaKind::kReasoning:
      return "{" + ReasoningJson(delta.text) + "}";
    case handlers::DeltaKind::kToolCall: {
      std::string call = "{\"index\":" + std::to_string(delta.call_idx);
      if (delta.call_name.empty()) {
        call += ",\"function\":{\"arguments\":" + JsonString(delta.text) + "}";
      } else {
        call += ",\"id\":" + JsonString(delta.call_id) +
                ",\"type\":\"function\",\"function\":" +
                FunctionJson(delta.call_name, delta.text);
      }
      return "{\"tool_calls\":[" + call + "}]}";
    }
  }
  return "{\"content\":" + JsonString(delta.text) + "}";
}

std::string MessageJson(const ChoiceText& choice) {
  const bool silent = choice.text.empty() && !choice.calls.empty();
  std::string json = "{\"role\":\"assistant\",\"content\":" +
                     (silent ? "null" : JsonString(choice.text)) +
                     ",\"refusal\":null,\"annotations\":[]";
  if (!choice.reasoning.empty()) json += "," + ReasoningJson(choice.reasoning);
  if (!choice.calls.empty()) json += ",\"tool_calls\":[";
  for (const ToolCallText& call : choice.calls) {
    if (&call != &choice.calls.front()) json += ',';
    json += "{\"id\":" + JsonString(call.id) +
            ",\"type\":\"function\",\"function\":" +
            FunctionJson(call.name, call.arguments) + "}";
  }
  return json + (choice.calls.empty() ? "}" : "]}");
}

}  // namespace

std::string ChatLogprobs(const std::vector<TokenLogprobs>& tokens) {
  std::string json = "{\"content\":[";
  for (const TokenLogprobs& token : tokens) {
    if (&token != &tokens.front()) json += ',';
    json += CandidateJson(token.chosen) + ",\"top_logprobs\":[";
    for (const auto& other : token.top) {
      if (&other != &token.top.front()) json += ',';
      json += CandidateJson(other) + '}';
    }
    json += "]}";
  }
  return json += "],\"refusal\":null}";
}

void ChoiceText::Add(handlers::OutputDelta& delta, std::string_view id_prefix) {
  for (handlers::TokenLogprobs& token : delta.logprobs) {
    logprobs.push_back(token);
    if (delta.kind == handlers::DeltaKind::kContent) {
      text_logprobs.push_back(token);
    }
  }
  ids.insert(ids.end(), delta.ids.begin(), delta.ids.end());
  switch (delta.kind) {
    case handlers::DeltaKind::kContent:
      text += delta.text;
      return;
    case handlers::DeltaKind::kReasoning:
      reasoning += delta.text;
      return;
    case handlers::DeltaKind::kToolCall:
      break;
  }
  if (!delta.call_name.empty()) {
    if (delta.call_id.empty()) {
      delta.call_id = std::string(id_prefix) + RandomHex(24);
    }
    calls.push_back(
        {.id = delta.call_id, .name = delta.call_name, .arguments = {}});
  }
  if (!calls.empty()) calls.back().arguments += delta.text;
}

std::string JsonString(std::string_view text) {
  if (!IsValidUtf8(text)) return JsonString(ReplaceInvalidUtf8(text));
  std::string json;
  json.reserve(text.size() + 8);
  json += '"';
  size_t begin = 0;  // of the run that needs no escape
  for (size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    if (c >= 0x20 && c != '"' && c != '\\') continue;
    json.append(text, begin, i - begin);
    begin = i + 1;
    switch (c) {
      case '"':
        json += "\\\"";
        break;
      case '\\':
        json += "\\\\";
        break;
      case '\n':
        json += "\\n";
        break;
      case '\r':
        json += "\\r";
        break;
      case '\t':
        json += "\\t";
        break;
      default:
        char escape[8];
        std::snprintf(escape, sizeof escape, "\\u%04x", unsigned{c});
        json += escape;
    }
  }
  json.append(text, begin);
  return json += '"';
}

std::string UsageJson(const handlers::Usage& usage) {
  return "{\"prompt_tokens\":" + std::to_string(usage.prompt_tokens) +
         ",\"completion_tokens\":" + std::to_string(usage.completion_tokens) +
         ",\"total_tokens\":" +
         std::to_string(usage.prompt_tokens + usage.completion_tokens) +
         ",\"prompt_tokens_details\":{\"cached_tokens\":" +
         std::to_string(usage.cached_tokens) +
         "},\"completion_tokens_details\":{\"reasoning_tokens\":" +
         std::to_string(usage.reasoning_tokens) +
         ",\"accepted_prediction_tokens\":" +
         std::to_string(usage.accepted_prediction_tokens) +
         ",\"rejected_prediction_tokens\":" +
         std::to_string(usage.rejected_prediction_tokens) + "}}";
}

ChunkMaker::ChunkMaker(const AnswerShape& shape)
    : shape_(shape),
      prefix_(Prefix(shape,
                     shape.chat ? "chat.completion.chunk" : "text_completion")),
      text_offset_(static_cast<size_t>(shape.num_choices), 0) {}

std::string ChunkMaker::Event(int index, std::string_view content,
                              std::string_view logprobs,
                              std::string_view finish,
                              const handlers::Usage* usage,
                              std::string_view timings,
                              std::string_view progress) const {
  std::string event;
  event.reserve(prefix_.size() + content.size() + logprobs.size() + 192);
  event.append("data: ").append(prefix_).append("{\"index\":");
  event.append(std::to_string(index)).append(content);
  event.append(",\"logprobs\":").append(logprobs);
  event.append(",").append(finish).append("}]");
  if (usage != nullptr) {
    event.append(",\"usage\":").append(UsageJson(*usage));
  } else if (shape_.include_usage) {
    event.append(",\"usage\":null");
  }
  if (!timings.empty()) event.append(",\"timings\":").append(timings);
  if (!progress.empty()) event.append(",\"prompt_progress\":").append(progress);
  return event.append("}\n\n");
}

constexpr std::string_view kNotFinished = "\"finish_reason\":null";

std::string ChunkMaker::Role(int index, const handlers::Usage* usage) {
  return Event(index, ",\"delta\":{\"role\":\"assistant\",\"content\":\"\"}",
               "null", kNotFinished, usage);
}

std::string ChunkMaker::Progress(int index, std::string_view progress,
                                 const handlers::Usage* usage,
                                 std::string_view timings) {
  return Event(index, shape_.chat ? ",\"delta\":{}" : ",\"text\":\"\"", "null",
               kNotFinished, usage, timings, progress);
}

std::string ChunkMaker::Text(int index, const handlers::OutputDelta& chunk,
                             const handlers::Usage* usage,
                             std::string_view timings) {
  std::string logprobs = "null";
  if (shape_.logprobs) {
    logprobs = shape_.chat ? ChatLogprobs(chunk.logprobs)
                           : CompletionLogprobs(
                                 chunk.logprobs,
                                 text_offset_[static_cast<size_t>(index)]);
  }
  return Event(index,
               shape_.chat ? ",\"delta\":" + DeltaJson(chunk)
                           : ",\"text\":" + JsonString(chunk.text),
               logprobs, kNotFinished, usage, timings);
}

std::string ChunkMaker::Finish(int index, const ChoiceText& choice,
                               const handlers::Usage* usage,
                               std::string_view timings) {
  return Event(index, shape_.chat ? ",\"delta\":{}" : ",\"text\":\"\"", "null",
               FinishJson(choice), usage, timings);
}

std::string ChunkMaker::Usage(const handlers::Usage& usage,
                              std::string_view timings) {
  std::string event = prefix_ + "],\"usage\":" + UsageJson(usage);
  if (!timings.empty()) event.append(",\"timings\":").append(timings);
  return SseEvent(event + "}");
}

std::string AnswerJson(const AnswerShape& shape,
                       const std::vector<ChoiceText>& choices,
                       const handlers::Usage& usage, std::string_view timings) {
  std::string json =
      Prefix(shape, shape.chat ? "chat.completion" : "text_completion");
  for (size_t i = 0; i < choices.size(); ++i) {
    const ChoiceText& choice = choices[i];
    if (i > 0) json += ',';
    json += "{\"index\":" + std::to_string(i);
    if (shape.chat) {
      json += ",\"message\":" + MessageJson(choice);
    } else {
      json += ",\"text\":" + JsonString(choice.text);
    }
    int64_t offset = 0;
    json += ",\"logprobs\":";
    json += !shape.logprobs ? "null"
            : shape.chat    ? ChatLogprobs(choice.logprobs)
                            : CompletionLogprobs(choice.logprobs, offset);
    json += "," + FinishJson(choice) + "}";
  }
  json += "],\"usage\":" + UsageJson(usage);
  if (!timings.empty()) json.append(",\"timings\":").append(timings);
  return json + "}";
}

std::string SseEvent(std::string_view data) {
  std::string event = "data: ";
  return event.append(data).append("\n\n");
}

}  // namespace millrace::server::http
