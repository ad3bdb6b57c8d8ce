// What a request asks of the reasoning before its completion. Its budget
// travels with what the chat template reads, as `thinking_budget`, which is the
// name that templates have for it. Pure.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <span>

#include "config/base/status.h"
#include "handlers/generate.h"
#include "handlers/messages.h"
#include "models/grammar/token_grammar.h"

namespace millrace::handlers {

// Puts the budget of a body into `kwargs` and checks the one that is there:
// `thinking_token_budget` (vLLM), `thinking_budget_tokens` or
// `reasoning_budget_tokens` (llama.cpp), in tokens; -1 is no limit.
Status ReadReasoningBudget(const nlohmann::ordered_json& body,
                           nlohmann::ordered_json& kwargs);

// The grammar of a completion with what its reasoning is held to: `grammar` as
// it is (it may be null) where reasoning changes nothing. The completion's
// prompt was encoded to `prompt`. `of_content`: the grammar holds what stands
// behind the reasoning. The result keeps the parts' tokenizer. INVALID_ARGUMENT
// when allowed_token_ids lacks the tag that ends reasoning which has begun.
StatusOr<std::shared_ptr<const models::TokenGrammar>> WithReasoning(
    const GenerateParts& parts, const GenerateRequest& request,
    std::span<const int32_t> prompt,
    std::shared_ptr<const models::TokenGrammar> grammar, bool of_content);

}  // namespace millrace::handlers
