#include "handlers/reasoning_limits.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "handlers/generate_prompt.h"
#include "handlers/json_fields.h"
#include "models/grammar/reasoning_grammar.h"

namespace millrace::handlers {
namespace {

constexpr const char* kBudget = "thinking_budget";
constexpr IntRange kBudgetRange = {-1, INT64_MAX};

// gpt-oss: reasoning is a message of its own.
constexpr ReasoningFormat kHarmony = {.name = "harmony",
                                      .open = "<|channel|>analysis<|message|>",
                                      .close = "<|end|>"};

std::optional<int64_t> BudgetOf(const ChatPrompt& chat) {
  if (chat.template_kwargs == nullptr) return std::nullopt;
  const auto* budget = FindField(*chat.template_kwargs, kBudget);
  if (budget == nullptr || *budget < 0) return std::nullopt;
  return budget->get<int64_t>();
}

// With the budget used up, the closing tag is all that may come.
Status CheckMayClose(const GenerateOptions& options, std::string_view tag,
                     const std::vector<int32_t>& ids) {
  const std::vector<int32_t>& allowed = options.allowed_token_ids;
  for (const int32_t id : ids) {
    if (allowed.empty() || std::ranges::find(allowed, id) != allowed.end()) {
      continue;
    }
    return InvalidArgument("allowed_token_ids lacks " + std::to_string(id) +
                           ", a token of '" + std::string(tag) +
                           "', with which reasoning ends after its budget; "
                           "add it or leave the budget out")
        .At("allowed_token_ids");
  }
  return OkStatus();
}

}  // namespace

Status ReadReasoningBudget(const nlohmann::ordered_json& body,
                           nlohmann::ordered_json& kwargs) {
  RETURN_IF_ERROR(ReadInt(kwargs, kBudget, kBudgetRange)
                      .status()
                      .Prefixed("chat_template_kwargs"));
  for (const char* name : {"thinking_token_budget", "thinking_budget_tokens",
                           "reasoning_budget_tokens"}) {
    ASSIGN_OR_RETURN(const auto budget, ReadInt(body, name, kBudgetRange));
    if (budget && !kwargs.contains(kBudget)) kwargs[kBudget] = *budget;
  }
  return OkStatus();
}

StatusOr<std::shared_ptr<const models::TokenGrammar>> WithReasoning(
    const GenerateParts& parts, const GenerateRequest& request,
    std::span<const int32_t> prompt,
    std::shared_ptr<const models::TokenGrammar> grammar, bool of_content) {
  const auto* chat = std::get_if<ChatPrompt>(&request.prompt);
  if (chat == nullptr) return grammar;
  const std::optional<int64_t> budget = BudgetOf(*chat);
  of_content = of_content && grammar != nullptr;
  if (!budget && !of_content) return grammar;
  const ParserSpec spec = ParserSpecOf(parts, *chat, prompt);
  // The prompt ends within a call: no reasoning comes.
  if (!spec.forced.empty()) return grammar;
  const ReasoningFormat* format = parts.formats.reasoning;
  const bool is_harmony = spec.tools != nullptr && spec.tools->has_reasoning;
  if (is_harmony) format = &kHarmony;
  if (format == nullptr) return grammar;

  models::ReasoningRules rules;
  rules.open = format->open;
  rules.close = format->close;
  rules.begun =
      !is_harmony &&
      (format->always || EndsInReasoning(*parts.tokenizer, *format, prompt));
  // Where reasoning is content, the grammar holds it, too.
  rules.delays_grammar = of_content && rules.begun && chat->parse_reasoning;
  if (!budget && !rules.delays_grammar) return grammar;
  rules.budget = budget;
  rules.close_ids =
      parts.tokenizer->Encode(format->close, {.parse_special = true});
  if (budget && rules.begun) {
    RETURN_IF_ERROR(
        CheckMayClose(request.options, format->close, rules.close_ids));
  }
  rules.stop_ids = parts.tokenizer->vocabulary().eog_ids;
  rules.num_ids = parts.tokenizer->size();
  rules.piece = [tokenizer = parts.tokenizer](int32_t id) {
    return tokenizer->Piece(id, /*with_special=*/true);
  };
  rules.tag_ends = parts.tag_ends;
  return models::MakeReasoningGrammar(std::move(rules), std::move(grammar));
}

}  // namespace millrace::handlers
