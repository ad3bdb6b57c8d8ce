// One table: the field, where it is known, which values ask for nothing, and
// what to do instead.
// Sources: OpenAI's API reference; vLLM, vllm/entrypoints/openai/protocol.py;
// llama.cpp, tools/server/README.md.
#include "handlers/refused_fields.h"

#include <nlohmann/json.hpp>
#include <string>

#include "handlers/json_fields.h"

namespace millrace::handlers {
namespace {

using Json = nlohmann::ordered_json;

bool IsEmpty(const Json& value) {
  return value.is_boolean()  ? !value.get<bool>()
         : value.is_string() ? value.get_ref<const std::string&>().empty()
                             : value.is_structured() && value.empty();
}
bool IsNone(const Json& value) { return value == "none"; }
bool IsTrue(const Json& value) { return value == true; }
bool IsFalse(const Json& value) { return value == false; }
bool IsTextOnly(const Json& value) {
  return value.is_array() && value.size() == 1 && value[0] == "text";
}
bool IsOne(const Json& value) { return value == 1; }
bool IsNegative(const Json& value) { return value.is_number() && value < 0; }
bool Never(const Json&) { return false; }

enum : unsigned { kInChat = 1, kInCompletions = 2, kInSampling = 4, kAll = 7 };

struct Refusal {
  const char* name;
  unsigned dialects;
  bool (*harmless)(const Json&);
  const char* instead;
};

constexpr Refusal kRefusals[] = {
    {"functions", kInChat, IsEmpty, "send tools"},
    {"function_call", kInChat, IsNone, "send tool_choice"},
    {"modalities", kInChat, IsTextOnly, "leave it out or send [\"text\"]"},
    {"audio", kInChat, IsEmpty, "leave it out"},
    {"web_search_options", kInChat, Never, "leave it out"},
    {"use_beam_search", kAll, IsEmpty, "leave it out"},
    {"prompt_logprobs", kAll, Never, "use completions with echo and logprobs"},
    {"truncate_prompt_tokens", kAll, Never, "shorten the prompt"},
    {"chat_template", kInChat, IsEmpty, "set it when the server starts"},
    {"documents", kInChat, IsEmpty, "put them into messages"},
    {"suffix", kInCompletions, IsEmpty, "leave it out"},
    // A template writes its own tokens, a plain prompt gets the model's.
    {"add_special_tokens", kInChat, IsFalse, "leave it out"},
    {"add_special_tokens", kInCompletions, IsTrue, "send token ids"},
    {"spaces_between_special_tokens", kAll, IsTrue, "leave it out"},
    {"prompt_embeds", kAll, IsEmpty, "send text or token ids"},
    // Of llama.cpp.
    {"lora", kAll, IsEmpty,
     "name the adapter as 'model'; POST /lora-adapters sets scales"},
    {"post_sampling_probs", kAll, IsEmpty,
     "log-probabilities are those before sampling; POST /completion tells "
     "others"},
    {"adaptive_target", kAll, IsNegative, "leave it out"},
    {"grammar_lazy", kAll, IsEmpty,
     "send a structural tag, whose triggers begin the grammar"},
    {"tfs_z", kAll, IsOne, "send typical_p or min_p"},
};

}  // namespace

Status CheckNothingRefused(const Json& body, FieldDialect dialect) {
  const unsigned bit = 1u << static_cast<unsigned>(dialect);
  for (const Refusal& refusal : kRefusals) {
    if ((refusal.dialects & bit) == 0) continue;
    const Json* value = FindField(body, refusal.name);
    if (value == nullptr || refusal.harmless(*value)) continue;
    return InvalidArgument(std::string(refusal.name) + " is " + Shown(*value) +
                           " but is not supported yet; " + refusal.instead)
        .At(refusal.name)
        .Because("unsupported_parameter");
  }
  if (dialect == FieldDialect::kChat) {
    ASSIGN_OR_RETURN(const auto echo, ReadBool(body, "echo"));
    if (echo.value_or(false)) {
      return InvalidArgument(
                 "echo is true but a chat completion never repeats the "
                 "messages; "
                 "use /v1/completions")
          .At("echo")
          .Because("unsupported_parameter");
    }
  }
  return OkStatus();
}

}  // namespace millrace::handlers
