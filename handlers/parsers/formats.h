// How the models of each family write tool calls and reasoning: one table of
// each, and which of them a model uses.
//
//   ASSIGN_OR_RETURN(OutputFormats formats,
//                    ChooseFormats("auto", "auto", template_source));
//   auto parser = MakeOutputParser(spec, out);
//
// Immutable tables; thread-safe.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "config/base/status.h"
#include "handlers/parsers/output_parser.h"

namespace millrace::handlers {

// Tool calls of a family.
struct ToolFormat {
  std::string_view name;
  std::unique_ptr<OutputParser> (*make)(ParsedOutput& out,
                                        std::vector<std::string> tools);
  // The tags are special tokens, so that their text must be kept.
  bool special_tokens = true;
  // How a call begins, up to its function's name; then up to its arguments,
  // where the name is known. A completion that must be a call starts with it.
  std::string_view before_name;
  std::string_view behind_name;
  // How the arguments are written (models/grammar/literal_grammar.h); empty:
  // as a JSON object.
  std::string_view notation = {};
  // It reads reasoning, too (harmony).
  bool has_reasoning = false;
  // The beginning of `before_name` that no other text starts with: behind it
  // comes a call. Empty: other texts may start like a call.
  std::string_view trigger = {};
  // Behind the arguments; between there and the name of another call (empty:
  // one call comes); behind the last call.
  std::string_view behind_arguments = {};
  std::string_view between_calls = {};
  std::string_view behind_calls = {};
};

// Reasoning between two tags at the start of a completion.
struct ReasoningFormat {
  std::string_view name;
  std::string_view open;
  std::string_view close;
  // The completion begins inside, although the prompt does not say so.
  bool always = false;
  bool special_tokens = false;
};

// Of one model; null: none.
struct OutputFormats {
  const ToolFormat* tools = nullptr;
  const ReasoningFormat* reasoning = nullptr;
  // The chat template writes the request's tools into the prompt.
  bool template_has_tools = false;
};

// By the settings tool_call_parser and reasoning_parser: a name of the tables,
// or of vLLM's parsers, "none", or "auto" for what the text of the chat
// template shows. INVALID_ARGUMENT lists the names.
StatusOr<OutputFormats> ChooseFormats(std::string_view tool_parser,
                                      std::string_view reasoning_parser,
                                      std::string_view template_source);

// What one completion is read with.
struct ParserSpec {
  const ToolFormat* tools = nullptr;           // null: no calls are looked for
  const ReasoningFormat* reasoning = nullptr;  // null: it is content
  std::vector<std::string> tool_names = {};
  bool in_reasoning = false;  // the prompt ends inside
  int32_t most_calls = INT32_MAX;
  // What the prompt was given beyond the template: the start of a call.
  std::string forced = {};

  bool special_tokens() const {
    return (tools != nullptr && tools->special_tokens) ||
           (reasoning != nullptr && reasoning->special_tokens);
  }
};
// Null: the text is content as it is.
std::unique_ptr<OutputParser> MakeOutputParser(const ParserSpec& spec,
                                               ParsedOutput& out);

// One a source file, for the table.
std::unique_ptr<OutputParser> MakePythonic(ParsedOutput& out,
                                           std::vector<std::string> tools);
std::unique_ptr<OutputParser> MakeGemma(ParsedOutput& out);
std::unique_ptr<OutputParser> MakeHarmony(ParsedOutput& out);
std::unique_ptr<OutputParser> MakeReasoning(ParsedOutput& out,
                                            const ReasoningFormat& format,
                                            bool begun,
                                            std::unique_ptr<OutputParser> rest);

}  // namespace millrace::handlers
