// Each check has one place, so that a wrong id or length reads the same from
// every protocol.
#include "scheduler/request.h"

namespace millrace::scheduler {
namespace {

bool Exists(int32_t id, int32_t num_ids) { return id >= 0 && id < num_ids; }

// `place` names where the id stands, such as "prompt[3]".
Status NoSuchToken(const std::string& place, int32_t id, int32_t num_ids,
                   std::string_view model) {
  return InvalidArgument(place + " is token " + std::to_string(id) +
                         " but model '" + std::string(model) +
                         "' has tokens 0 to " + std::to_string(num_ids - 1));
}

}  // namespace

Status CheckTokenIds(std::span<const int32_t> ids, int32_t num_ids,
                     const char* field, std::string_view model) {
  for (size_t i = 0; i < ids.size(); ++i) {
    if (Exists(ids[i], num_ids)) continue;
    return NoSuchToken(field + ("[" + std::to_string(i) + "]"), ids[i], num_ids,
                       model)
        .At(field);
  }
  return OkStatus();
}

Status CheckContext(const PromptSize& prompt, int64_t max_tokens,
                    int64_t max_context, std::string_view model) {
  const int64_t room = max_context - prompt.num_tokens;
  if (room < 1) {
    return InvalidArgument(
               std::string(prompt.field) + " has " +
               (prompt.at_least ? "at least " : "") +
               std::to_string(prompt.num_tokens) + " tokens but model '" +
               std::string(model) + "' takes at most " +
               std::to_string(max_context) +
               " tokens, prompt and completion together; shorten it")
        .At(prompt.field)
        .Because("context_length_exceeded");
  }
  if (max_tokens > room) {
    return InvalidArgument(
               "max_tokens is " + std::to_string(max_tokens) +
               " but the prompt has " + std::to_string(prompt.num_tokens) +
               " tokens and model '" + std::string(model) + "' takes at most " +
               std::to_string(max_context) +
               ", prompt and completion together; ask for at most " +
               std::to_string(room))
        .At("max_tokens")
        .Because("context_length_exceeded");
  }
  return OkStatus();
}

Status CheckTask(const GenerateTask& task, const models::RunnerInfo& info,
                 std::string_view model) {
  if (task.prompt.empty()) {
    return InvalidArgument("the prompt is empty; send one token at least")
        .At("prompt");
  }
  if (task.max_tokens < 1) {
    return InvalidArgument("max_tokens is " + std::to_string(task.max_tokens) +
                           " but must be 1 at least")
        .At("max_tokens");
  }
  RETURN_IF_ERROR(
      CheckContext({.num_tokens = static_cast<int64_t>(task.prompt.size())},
                   task.max_tokens, info.max_context, model));
  const models::SamplingParams& sampling = task.sampling;
  RETURN_IF_ERROR(CheckTokenIds(task.prompt, info.vocab_size, "prompt", model));
  RETURN_IF_ERROR(CheckTokenIds(sampling.stop_ids, info.vocab_size,
                                "stop_token_ids", model));
  RETURN_IF_ERROR(CheckTokenIds(sampling.allowed_token_ids, info.vocab_size,
                                "allowed_token_ids", model));
  RETURN_IF_ERROR(CheckTokenIds(sampling.suppress_tokens, info.vocab_size,
                                "suppress_tokens", model));
  RETURN_IF_ERROR(
      CheckTokenIds(task.prediction, info.vocab_size, "prediction", model));
  for (const std::vector<int32_t>& word : sampling.bad_words) {
    for (const int32_t id : word) {
      if (Exists(id, info.vocab_size)) continue;
      return NoSuchToken("a part of bad_words", id, info.vocab_size, model)
          .At("bad_words");
    }
  }
  for (const auto& [id, bias] : sampling.logit_bias) {
    if (Exists(id, info.vocab_size)) continue;
    return NoSuchToken("a key of logit_bias", id, info.vocab_size, model)
        .At("logit_bias");
  }
  return OkStatus();
}

}  // namespace millrace::scheduler
