// The words of the formats are facts of the models' chat templates. Names are
// those of vLLM's --tool-call-parser and --reasoning-parser where it has one.
#include "handlers/parsers/formats.h"

#include <utility>

#include "handlers/parsers/json_calls.h"

namespace millrace::handlers {
namespace {

using Tools = std::vector<std::string>;
using Parser = std::unique_ptr<OutputParser>;

class Plain final : public OutputParser {
 public:
  using OutputParser::OutputParser;
  void Step(char byte) override { out_.Content(std::string_view(&byte, 1)); }
  void End() override {}
  size_t num_held() const override { return 0; }
};

// <tool_call>{"name": "f", "arguments": {}}</tool_call>
Parser MakeHermes(ParsedOutput& out, Tools tools) {
  return MakeJsonCalls(out,
                       {.open = {"<tool_call>"}, .close = {"</tool_call>"}},
                       std::move(tools));
}

// {"name": "f", "parameters": {}}, also behind <|python_tag|>; several are
// parted by semicolons.
Parser MakeLlamaJson(ParsedOutput& out, Tools tools) {
  return MakeJsonCalls(out, {.open = {"<|python_tag|>"}, .without_tag = true},
                       std::move(tools));
}

// <|tool_call|>[{"name": "f", "arguments": {}}], older ones <function_call>,
// Granite 4 as Hermes.
Parser MakeGranite(ParsedOutput& out, Tools tools) {
  return MakeJsonCalls(
      out,
      {.open = {"<|tool_call|>", "<tool_call>", "<function_call>"},
       .close = {"</tool_call>", "</function_call>"}},
      std::move(tools));
}

// "f", "f[ARGS]" or "f[CALL_ID]id[ARGS]".
std::optional<CallHeader> MistralHeader(std::string_view text) {
  constexpr std::string_view kArgs = "[ARGS]";
  constexpr std::string_view kId = "[CALL_ID]";
  while (!text.empty() && IsJsonSpace(text.back())) text.remove_suffix(1);
  if (text.ends_with(kArgs)) text.remove_suffix(kArgs.size());
  CallHeader header;
  const size_t id = text.find(kId);
  if (id != std::string_view::npos) header.id = text.substr(id + kId.size());
  header.name = text.substr(0, id);
  if (header.name.find_first_of(" \n[]\"") != std::string::npos) {
    return std::nullopt;
  }
  return header;
}

// [TOOL_CALLS][{"name": "f", "arguments": {}}], newer ones
// [TOOL_CALLS]f[ARGS]{}.
Parser MakeMistral(ParsedOutput& out, Tools tools) {
  return MakeJsonCalls(out,
                       {.open = {"[TOOL_CALLS]"}, .read_header = MistralHeader},
                       std::move(tools));
}

constexpr std::string_view kDeepSeekSeparator = "<｜tool▁sep｜>";

// V3 and R1: "function<｜tool▁sep｜>f\n```json\n"; V3.1: "f<｜tool▁sep｜>".
std::optional<CallHeader> DeepSeekHeader(std::string_view text) {
  const size_t at = text.find(kDeepSeekSeparator);
  if (at == std::string_view::npos) return std::nullopt;
  std::string_view behind = text.substr(at + kDeepSeekSeparator.size());
  behind = behind.substr(0, behind.find('\n'));
  return CallHeader{
      .name = std::string(behind.empty() ? text.substr(0, at) : behind)};
}

Parser MakeDeepSeek(ParsedOutput& out, Tools tools) {
  return MakeJsonCalls(
      out,
      {.open = {"<｜tool▁call▁begin｜>"},
       .close = {"<｜tool▁call▁end｜>"},
       .dropped = {"<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"},
       .separators = "`",
       .read_header = DeepSeekHeader},
      std::move(tools));
}

constexpr ToolFormat kToolFormats[] = {
    {.name = "hermes",
     .make = MakeHermes,
     .special_tokens = false,
     .before_name = "<tool_call>\n{\"name\": \"",
     .behind_name = "\", \"arguments\": ",
     .trigger = "<tool_call>",
     .behind_arguments = "}\n</tool_call>",
     .between_calls = "\n<tool_call>\n{\"name\": \""},
    {.name = "llama3_json",
     .make = MakeLlamaJson,
     .before_name = "<|python_tag|>{\"name\": \"",
     .behind_name = "\", \"parameters\": ",
     .trigger = "<|python_tag|>",
     .behind_arguments = "}",
     .between_calls = "; {\"name\": \""},
    {.name = "pythonic",
     .make = MakePythonic,
     .special_tokens = false,
     .before_name = "[",
     .behind_name = "(",
     .notation = "pythonic",
     .behind_arguments = ")",
     .between_calls = ", ",
     .behind_calls = "]"},
    {.name = "mistral",
     .make = MakeMistral,
     .before_name = "[TOOL_CALLS][{\"name\": \"",
     .behind_name = "\", \"arguments\": ",
     .trigger = "[TOOL_CALLS]",
     .behind_arguments = "}",
     .between_calls = ", {\"name\": \"",
     .behind_calls = "]"},
    {.name = "granite",
     .make = MakeGranite,
     .before_name = "<|tool_call|>[{\"name\": \"",
     .behind_name = "\", \"arguments\": ",
     .trigger = "<|tool_call|>",
     .behind_arguments = "}",
     .between_calls = ", {\"name\": \"",
     .behind_calls = "]"},
    {.name = "deepseek_v3",
     .make = MakeDeepSeek,
     .before_name = "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>"
                    "function<｜tool▁sep｜>",
     .behind_name = "\n```json\n",
     .trigger = "<｜tool▁calls▁begin｜>",
     .behind_arguments = "\n```<｜tool▁call▁end｜>",
     .between_calls = "\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>",
     .behind_calls = "<｜tool▁calls▁end｜>"},
    {.name = "deepseek_v31",
     .make = MakeDeepSeek,
     .before_name = "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>",
     .behind_name = "<｜tool▁sep｜>",
     .trigger = "<｜tool▁calls▁begin｜>",
     .behind_arguments = "<｜tool▁call▁end｜>",
     .between_calls = "<｜tool▁call▁begin｜>",
     .behind_calls = "<｜tool▁calls▁end｜>"},
    {.name = "gemma",
     .make = [](ParsedOutput& out, Tools) { return MakeGemma(out); },
     .before_name = "<start_function_call>call:",
     .behind_name = "{",
     .notation = "gemma",
     .trigger = "<start_function_call>",
     .behind_arguments = "}<end_function_call>",
     .between_calls = "<start_function_call>call:"},
    {.name = "gemma4",
     .make = [](ParsedOutput& out, Tools) { return MakeGemma(out); },
     .before_name = "<|tool_call>call:",
     .behind_name = "{",
     .notation = "gemma4",
     .trigger = "<|tool_call>",
     .behind_arguments = "}<tool_call|>",
     .between_calls = "<|tool_call>call:"},
    {.name = "harmony",
     .make = [](ParsedOutput& out, Tools) { return MakeHarmony(out); },
     .before_name = "<|channel|>commentary to=functions.",
     .behind_name = " <|constrain|>json<|message|>",
     .has_reasoning = true,
     .trigger = "<|channel|>commentary to=functions."},
};

constexpr ReasoningFormat kReasoningFormats[] = {
    {.name = "think", .open = "<think>", .close = "</think>"},
    {.name = "deepseek_r1",
     .open = "<think>",
     .close = "</think>",
     .always = true},
    {.name = "mistral",
     .open = "[THINK]",
     .close = "[/THINK]",
     .special_tokens = true},
    {.name = "granite",
     .open = "Here is my thought process:",
     .close = "Here is my response:"},
};

struct Alias {
  std::string_view other;
  std::string_view name;
};
constexpr Alias kToolAliases[] = {
    {"qwen", "hermes"},
    {"qwen3", "hermes"},
    {"llama", "llama3_json"},
    {"llama4_json", "llama3_json"},
    {"llama4_pythonic", "pythonic"},
    {"functiongemma", "gemma"},
    {"granite-20b-fc", "granite"},
    {"openai", "harmony"},
    {"gpt_oss", "harmony"},
    {"deepseek", "deepseek_v3"},
};
constexpr Alias kReasoningAliases[] = {
    {"qwen3", "think"},
    {"deepseek_v3", "think"},
    {"glm45", "think"},
};

// Formats by a template's text, the first row that fits. With a second text,
// both must be there.
struct Sign {
  std::string_view text;
  std::string_view name;
  std::string_view and_text = {};
};
constexpr Sign kToolSigns[] = {
    {"<|channel|>", "harmony"},
    {"<｜tool▁sep｜>", "deepseek_v3", "```json"},
    {"<｜tool▁sep｜>", "deepseek_v31"},
    {"[TOOL_CALLS]", "mistral"},
    {"<start_function_call>", "gemma"},
    {"<|tool_call>", "gemma4"},
    {"<|tool_call|>", "granite"},
    {"<tool_call>", "hermes"},
    {"func_name1(params_name1=", "pythonic"},
    {"<|python_tag|>", "llama3_json"},
    {"\"parameters\": dictionary", "llama3_json"},
};
constexpr Sign kReasoningSigns[] = {
    {"</think>", "think"},
    {"[THINK]", "mistral"},
    {"Here is my thought process:", "granite"},
};

template <typename Row, size_t kSize>
const Row* Find(const Row (&rows)[kSize], std::string_view name) {
  for (const Row& row : rows) {
    if (row.name == name) return &row;
  }
  return nullptr;
}

template <size_t kSize>
std::string_view FromSigns(const Sign (&signs)[kSize],
                           std::string_view source) {
  for (const Sign& sign : signs) {
    if (source.find(sign.text) != std::string_view::npos &&
        source.find(sign.and_text) != std::string_view::npos) {
      return sign.name;
    }
  }
  return "none";
}

template <typename Row, size_t kRows, size_t kAliases, size_t kSigns>
StatusOr<const Row*> Choose(const char* setting, std::string_view name,
                            std::string_view source, const Row (&rows)[kRows],
                            const Alias (&aliases)[kAliases],
                            const Sign (&signs)[kSigns]) {
  if (name == "auto" || name.empty()) name = FromSigns(signs, source);
  if (name == "none") return static_cast<const Row*>(nullptr);
  for (const Alias& alias : aliases) {
    if (alias.other == name) name = alias.name;
  }
  if (const Row* row = Find(rows, name)) return row;
  std::string names = "auto, none";
  for (const Row& row : rows) names.append(", ").append(row.name);
  return InvalidArgument(std::string(setting) + " is '" + std::string(name) +
                         "' but must be one of " + names)
      .At(setting);
}

}  // namespace

StatusOr<OutputFormats> ChooseFormats(std::string_view tool_parser,
                                      std::string_view reasoning_parser,
                                      std::string_view template_source) {
  OutputFormats formats;
  formats.template_has_tools =
      template_source.find("tools") != std::string_view::npos;
  ASSIGN_OR_RETURN(formats.tools,
                   Choose("tool_call_parser", tool_parser, template_source,
                          kToolFormats, kToolAliases, kToolSigns));
  ASSIGN_OR_RETURN(
      formats.reasoning,
      Choose("reasoning_parser", reasoning_parser, template_source,
             kReasoningFormats, kReasoningAliases, kReasoningSigns));
  // A template that knows no tools is given them in the words of Hermes.
  if (formats.tools == nullptr && tool_parser == "auto") {
    formats.tools = Find(kToolFormats, "hermes");
  }
  return formats;
}

Parser MakeOutputParser(const ParserSpec& spec, ParsedOutput& out) {
  if (spec.tools == nullptr && spec.reasoning == nullptr) return nullptr;
  Parser rest = spec.tools == nullptr ? std::make_unique<Plain>(out)
                                      : spec.tools->make(out, spec.tool_names);
  Parser parser = spec.reasoning == nullptr
                      ? std::move(rest)
                      : MakeReasoning(out, *spec.reasoning, spec.in_reasoning,
                                      std::move(rest));
  for (const char c : spec.forced) parser->Step(c);
  return parser;
}

}  // namespace millrace::handlers
