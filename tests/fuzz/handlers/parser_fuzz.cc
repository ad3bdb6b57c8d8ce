// Any text as the output of a model: every parser of tool calls and reasoning
// gives deltas that do not depend on how the text was cut, names every call,
// and loses nothing when there is neither a call nor reasoning. The first byte
// chooses the formats, the second one the cuts.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "config/base/utf8.h"
#include "handlers/parsers/formats.h"

namespace {

using millrace::handlers::DeltaKind;
using millrace::handlers::OutputDelta;
using millrace::handlers::ParserSpec;

void Require(bool condition, const char* why) {
  if (condition) return;
  std::fprintf(stderr, "parser_fuzz: %s\n", why);
  std::abort();
}

constexpr const char* kTools[] = {"none",        "hermes",  "llama3_json",
                                  "pythonic",    "mistral", "granite",
                                  "deepseek_v3", "gemma",   "harmony"};
constexpr const char* kReasonings[] = {"none", "think", "deepseek_r1",
                                       "granite"};

// Kinds, names and texts, neighbours of one kind joined.
struct Found {
  std::string shown;
  std::string content;
  bool only_content = true;
  bool operator==(const Found&) const = default;
};

Found Read(const ParserSpec& spec, std::string_view text, size_t stride) {
  millrace::handlers::ParsedOutput out(spec.most_calls);
  const auto parser = MakeOutputParser(spec, out);
  Found found;
  int last_kind = -1;
  int32_t num_calls = 0;
  const auto take = [&] {
    for (const OutputDelta& delta : out.Take()) {
      Require(!delta.text.empty() || !delta.call_name.empty(),
              "a delta holds something");
      if (delta.kind != DeltaKind::kContent) found.only_content = false;
      if (delta.kind == DeltaKind::kContent) found.content += delta.text;
      if (delta.kind == DeltaKind::kToolCall) {
        if (!delta.call_name.empty()) ++num_calls;
        Require(delta.call_idx == num_calls - 1, "calls are in order");
      }
      if (last_kind != static_cast<int>(delta.kind)) {
        last_kind = static_cast<int>(delta.kind);
        found.shown += "\n" + std::to_string(last_kind) + " ";
      }
      if (!delta.call_name.empty()) found.shown += "\n@" + delta.call_name;
      found.shown += delta.text;
    }
  };
  for (size_t i = 0; i < text.size(); ++i) {
    if (parser != nullptr) parser->Step(text[i]);
    if (i % stride == 0) take();
  }
  if (parser != nullptr) parser->End();
  out.Finish();
  take();
  Require(num_calls <= spec.most_calls, "no more calls than asked for");
  return found;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const char* tools = kTools[data[0] % std::size(kTools)];
  const char* reasoning =
      kReasonings[data[0] / std::size(kTools) % std::size(kReasonings)];
  const auto formats = millrace::handlers::ChooseFormats(tools, reasoning, "");
  Require(formats.ok(), "the table has these names");
  ParserSpec spec;
  spec.tools = formats->tools;
  spec.reasoning = formats->reasoning;
  spec.tool_names = {"f", "get_weather"};
  spec.in_reasoning = (data[1] & 1) != 0;
  if ((data[1] & 2) != 0) spec.most_calls = 1;
  const std::string text = millrace::ReplaceInvalidUtf8(
      std::string_view(reinterpret_cast<const char*>(data) + 2, size - 2));
  const Found whole = Read(spec, text, text.size() + 1);
  Require(Read(spec, text, 1) == whole, "cuts change nothing");
  Require(Read(spec, text, 2 + data[1] % 7u) == whole, "cuts change nothing");
  // Harmony's headers are dropped.
  if (whole.only_content && spec.tools != nullptr &&
      spec.reasoning == nullptr && !spec.tools->has_reasoning &&
      spec.tools->name != "deepseek_v3") {
    Require(whole.content == text, "text without a call is content");
  }
  return 0;
}
