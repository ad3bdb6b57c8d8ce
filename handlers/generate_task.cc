// A chat may fill the context unless it asks for less; a raw completion has 16
// tokens, as OpenAI's.
#include "handlers/generate_task.h"

#include <algorithm>
#include <random>
#include <string>
#include <utility>

#include "config/base/utf8.h"
#include "handlers/dry_breakers.h"
#include "handlers/generate_prompt.h"

namespace millrace::handlers {
namespace {

constexpr int64_t kDefaultCompletionTokens = 16;

uint64_t DrawSeed() {
  std::random_device device;
  return (uint64_t{device()} << 32) | device();
}

// Most tokens of the completion.
StatusOr<int64_t> CompletionLimit(const GenerateParts& parts,
                                  const GenerateRequest& request,
                                  int64_t prompt_tokens) {
  const GenerateOptions& options = request.options;
  const int64_t max_context = parts.engine->info().max_context;
  const bool clips = options.clip_to_context;
  RETURN_IF_ERROR(scheduler::CheckContext(
      {.num_tokens = prompt_tokens, .field = PromptField(request.prompt)},
      clips ? 1 : options.max_tokens.value_or(1), max_context, parts.model));
  const int64_t room = max_context - prompt_tokens;
  const int64_t by_default = std::holds_alternative<ChatPrompt>(request.prompt)
                                 ? room
                                 : std::min(room, kDefaultCompletionTokens);
  const int64_t limit = clips
                            ? std::min(options.max_tokens.value_or(room), room)
                            : options.max_tokens.value_or(by_default);
  if (options.min_tokens > limit) {
    return InvalidArgument("min_tokens is " +
                           std::to_string(options.min_tokens) +
                           " but the completion has at most " +
                           std::to_string(limit) + " tokens; lower it")
        .At("min_tokens");
  }
  return limit;
}

// Each word as it is spelled at the beginning of a text, and as it is spelled
// behind a space where that is another sequence of as many tokens. As in vLLM.
std::vector<std::vector<int32_t>> EncodeBadWords(
    const models::Tokenizer& tokenizer, const std::vector<std::string>& words) {
  std::vector<std::vector<int32_t>> encoded;
  for (const std::string& word : words) {
    const std::string bare = word.substr(word.find_first_not_of(" \t\r\n"));
    const auto encode = [&](const std::string& text) {
      return tokenizer.Encode(text,
                              {.add_special = false, .parse_special = true});
    };
    std::vector<int32_t> first = encode(bare);
    std::vector<int32_t> later = encode(" " + bare);
    const bool differs = !first.empty() && later.size() == first.size() &&
                         later.front() != first.front();
    if (!first.empty()) encoded.push_back(std::move(first));
    if (differs) encoded.push_back(std::move(later));
  }
  return encoded;
}

// What llama.cpp does where a request says nothing.
models::DryParams DryOf(const models::Tokenizer& tokenizer,
                        const GenerateOptions& options) {
  static const std::vector<std::string> kBreakers = {"\n", ":", "\"", "*"};
  models::DryParams dry;
  dry.multiplier = static_cast<float>(options.dry_multiplier.value_or(0));
  if (dry.multiplier == 0) return dry;
  const auto base = static_cast<float>(options.dry_base.value_or(dry.base));
  if (base >= 1) dry.base = base;
  dry.allowed_length = options.dry_allowed_length.value_or(dry.allowed_length);
  dry.last_n = options.dry_penalty_last_n.value_or(dry.last_n);
  dry.breakers = MakeDryBreakers(
      tokenizer, options.dry_sequence_breakers.value_or(kBreakers));
  return dry;
}

void AddLlamaSamplers(const GenerateOptions& options,
                      models::SamplingParams& sampling) {
  const auto pick = [](std::optional<double> wanted, float& value) {
    if (wanted) value = static_cast<float>(*wanted);
  };
  pick(options.typical_p, sampling.typical_p);
  pick(options.top_n_sigma, sampling.top_n_sigma);
  pick(options.xtc_probability, sampling.xtc_probability);
  pick(options.xtc_threshold, sampling.xtc_threshold);
  pick(options.dynatemp_range, sampling.dynatemp_range);
  pick(options.dynatemp_exponent, sampling.dynatemp_exponent);
  sampling.min_keep = options.min_keep;
  sampling.order = options.sampler_order;
  sampling.dry_first = options.dry_first;
  sampling.mirostat.on = options.mirostat != 0;
  if (options.mirostat != 0) sampling.mirostat.version = options.mirostat;
  pick(options.mirostat_tau, sampling.mirostat.tau);
  pick(options.mirostat_eta, sampling.mirostat.eta);
}

models::SamplingParams SamplingOf(const GenerateParts& parts,
                                  const GenerateOptions& options,
                                  int64_t max_tokens) {
  models::SamplingParams sampling;
  // The request, else the model's makers, else nothing that changes a logit.
  const models::GenerationDefaults& defaults = parts.defaults;
  const auto pick = [](std::optional<double> wanted,
                       std::optional<double> usual, double otherwise) {
    return static_cast<float>(wanted.value_or(usual.value_or(otherwise)));
  };
  const int64_t top_k = options.top_k.value_or(defaults.top_k.value_or(0));
  const int64_t vocab_size = parts.engine->info().vocab_size;
  sampling.temperature = pick(options.temperature, defaults.temperature, 1);
  sampling.top_k =
      top_k <= 0 ? 0 : static_cast<int32_t>(std::min(top_k, vocab_size));
  sampling.top_p = pick(options.top_p, defaults.top_p, 1);
  sampling.min_p = pick(options.min_p, defaults.min_p, 0);
  sampling.repetition_penalty =
      pick(options.repetition_penalty, defaults.repetition_penalty, 1);
  sampling.presence_penalty = pick(options.presence_penalty, {}, 0);
  sampling.frequency_penalty = pick(options.frequency_penalty, {}, 0);
  // 0 has turned the penalties off; a text never has as many as INT32_MAX.
  const int32_t last_n = options.repeat_last_n.value_or(0);
  sampling.penalty_last_n = last_n < 0 ? INT32_MAX : last_n;
  AddLlamaSamplers(options, sampling);
  sampling.dry = DryOf(*parts.tokenizer, options);
  sampling.seed = options.seed ? *options.seed : DrawSeed();
  sampling.logprobs = options.logprobs.has_value();
  sampling.top_logprobs = options.logprobs.value_or(0);
  sampling.logit_bias = options.logit_bias;
  sampling.allowed_token_ids = options.allowed_token_ids;
  sampling.bad_words = EncodeBadWords(*parts.tokenizer, options.bad_words);
  sampling.suppress_tokens = options.suppress_tokens;
  sampling.no_repeat_ngram_size = options.no_repeat_ngram_size;
  sampling.stop_ids = options.stop_token_ids;
  if (!options.ignore_eos) {
    const auto& eog = parts.tokenizer->vocabulary().eog_ids;
    sampling.stop_ids.insert(sampling.stop_ids.end(), eog.begin(), eog.end());
  }
  sampling.min_tokens =
      static_cast<int32_t>(std::min(options.min_tokens, max_tokens));
  return sampling;
}

// Whether the operator lets requests name these.
Status CheckProcessors(const GenerateParts& parts,
                       const std::vector<std::string>& names) {
  const std::vector<std::string>& allowed = parts.logits_processors;
  for (size_t i = 0; i < names.size(); ++i) {
    if (std::ranges::find(allowed, names[i]) != allowed.end()) continue;
    std::string list;
    for (const std::string& name : allowed) {
      list += (list.empty() ? "" : ", ") + name;
    }
    return InvalidArgument("logits_processors[" + std::to_string(i) +
                           "] names \"" + names[i] +
                           "\", which logits_processor_pattern of model '" +
                           parts.model + "' does not allow; it allows " +
                           (list.empty() ? "none" : list))
        .At("logits_processors");
  }
  return OkStatus();
}

PromptEcho EchoOf(const GenerateParts& parts, const GenerateRequest& request,
                  const scheduler::GenerateTask& task) {
  PromptEcho echo;
  const auto* text = std::get_if<TextPrompt>(&request.prompt);
  echo.text = ReplaceInvalidUtf8(
      text != nullptr ? text->text
                      : parts.tokenizer->Decode(
                            task.prompt, !request.options.skip_special_tokens));
  if (request.options.logprobs) echo.ids = task.prompt;
  return echo;
}

}  // namespace

StatusOr<scheduler::GenerateTask> MakeTask(const GenerateParts& parts,
                                           const GenerateRequest& request,
                                           std::vector<int32_t> prompt) {
  const GenerateOptions& options = request.options;
  RETURN_IF_ERROR(CheckProcessors(parts, options.logits_processors));
  ASSIGN_OR_RETURN(
      const int64_t max_tokens,
      CompletionLimit(parts, request, static_cast<int64_t>(prompt.size())));
  scheduler::GenerateTask task;
  task.sampling = SamplingOf(parts, options, max_tokens);
  task.prompt_logprobs = options.echo && options.logprobs.has_value();
  task.prompt_progress = options.return_progress;
  if (parts.adapter) task.adapter = parts.adapter();
  if (!options.prediction.empty()) {
    ASSIGN_OR_RETURN(task.prediction,
                     EncodePrediction(parts, options.prediction,
                                      parts.engine->info().max_context));
  }
  task.prompt = std::move(prompt);
  task.max_tokens = static_cast<int32_t>(max_tokens);
  task.deadline = request.deadline;
  task.priority = options.priority;
  task.tenant = request.tenant;
  task.trace = request.trace;
  return task;
}

OutputProcessor::Options OutputOptionsOf(const GenerateParts& parts,
                                         const GenerateRequest& request,
                                         const scheduler::GenerateTask& task) {
  const GenerateOptions& options = request.options;
  OutputProcessor::Options output = {
      .tokenizer = parts.tokenizer.get(),
      .stop = options.stop,
      .stop_ids = task.sampling.stop_ids,
      .include_stop = options.include_stop_str_in_output,
      .ignore_eos = options.ignore_eos,
      .skip_special_tokens = options.skip_special_tokens,
      .logprobs = options.logprobs.has_value(),
      .ids = options.return_ids,
      .min_tokens = options.min_tokens};
  if (const auto* chat = std::get_if<ChatPrompt>(&request.prompt)) {
    output.parser = ParserSpecOf(parts, *chat, task.prompt);
  }
  if (options.echo) output.echo = EchoOf(parts, request, task);
  return output;
}

}  // namespace millrace::handlers
