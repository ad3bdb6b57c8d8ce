// llama.cpp's own routes: /completion, /infill, /props and /slots; that of
// adapters is in lora_routes.cc. Sequences share one pool of memory here, so
// that a slot is only a place among those that run at once.
// Source: github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "config/base/json.h"
#include "config/base/utf8.h"
#include "handlers/chat_messages.h"
#include "server/http/completion_reply.h"
#include "server/http/llama_input.h"
#include "server/http/llama_prompts.h"
#include "server/http/llama_shapes.h"
#include "server/http/pool_work.h"
#include "server/http/routes.h"
#include "server/http/timings.h"
#include "server/version.h"

namespace millrace::server::http {
namespace {

using Json = nlohmann::ordered_json;

// Of the prompts of all completions of a request.
constexpr size_t kMostCopiedBytes = 64 << 20;

class LlamaForm final : public CompletionForm {
 public:
  // What the answers to all prompts of a request have in common.
  struct Common {
    std::string model;
    Json settings;
    bool prompt_only = false;  // the one token that is computed is not shown
    bool shows_ids = false;    // of all tokens, at the end
    bool shows_probabilities = false;
    std::optional<SampledProbabilities> sampled;  // post_sampling_probs
    bool timings_per_token = false;
    std::vector<std::string> fields;  // of the answer that are asked for
  };
  // `index`: of the prompt.
  LlamaForm(size_t index, std::shared_ptr<const Common> common,
            std::shared_ptr<const Json> prompt)
      : index_(index), common_(std::move(common)), prompt_(std::move(prompt)) {}

  std::string Whole(const Completed& completed) override {
    Json body = Last(completed);
    if (!common_->prompt_only) {
      body["content"] = completed.choice.text;
      if (common_->shows_ids) body["tokens"] = completed.choice.ids;
      if (common_->shows_probabilities) {
        body["completion_probabilities"] =
            Probabilities(completed.choice.logprobs);
      }
    }
    return DumpJson(ChosenFields(common_->fields, std::move(body)));
  }
  void Follow(std::shared_ptr<const Trace> trace, const Clock* clock) override {
    trace_ = std::move(trace);
    clock_ = clock;
  }
  std::string Begin(const handlers::Usage& prompt) override {
    usage_ = prompt;
    return "";
  }
  std::string Progress(const handlers::PromptProgress& progress) override {
    Json piece = Plain("", Json::array());
    if (common_->timings_per_token) {
      piece["timings"] = Json::parse(TimingsJson(progress));
    }
    piece["prompt_progress"] = Json::parse(ProgressJson(progress));
    usage_.cached_tokens = progress.cached;
    return SseEvent(DumpJson(piece));
  }
  std::string Piece(const handlers::OutputDelta& delta,
                    const ChoiceText&) override {
    if (common_->prompt_only) return "";
    usage_.completion_tokens += delta.num_tokens;
    Json piece = Plain(delta.text, delta.ids);
    if (common_->timings_per_token) {
      piece["timings"] =
          Json::parse(TimingsJson(usage_, *trace_, clock_->Now()));
    }
    if (common_->shows_probabilities) {
      piece["completion_probabilities"] = Probabilities(delta.logprobs);
    }
    return SseEvent(DumpJson(piece));
  }
  std::string End(const Completed& completed) override {
    return SseEvent(DumpJson(ChosenFields(common_->fields, Last(completed))));
  }
  std::string LateFailure(const Status& status) override {
    return "error: " + ErrorResponse(status).body + "\n\n";
  }
  HttpResponse Refusal(const Status& status) const override {
    return ErrorResponse(status);
  }

 private:
  Json Probabilities(std::span<const handlers::TokenLogprobs> tokens) const {
    return common_->sampled
               ? LlamaSampledProbabilities(*common_->sampled, tokens)
               : LlamaProbabilities(tokens);
  }

  // A piece of the stream before the last.
  Json Plain(const std::string& text, Json ids) const {
    return {{"index", index_},
            {"content", text},
            {"tokens", std::move(ids)},
            {"stop", false},
            {"id_slot", 0},
            {"tokens_predicted", usage_.completion_tokens},
            {"tokens_evaluated", usage_.prompt_tokens}};
  }

  Json Last(const Completed& completed) const {
    const ChoiceText& choice = completed.choice;
    const auto* word = std::get_if<std::string>(&choice.stop_reason);
    const bool limit = choice.reason == handlers::FinishReason::kLength;
    return {{"index", index_},
            {"content", ""},
            {"tokens", Json::array()},
            {"id_slot", 0},
            {"stop", true},
            {"model", common_->model},
            {"tokens_predicted",
             common_->prompt_only ? 0 : completed.usage.completion_tokens},
            {"tokens_evaluated", completed.usage.prompt_tokens},
            {"generation_settings", common_->settings},
            {"prompt", *prompt_},
            {"has_new_line", choice.text.find('\n') != std::string::npos},
            {"truncated", false},
            {"stop_type", limit             ? "limit"
                          : word != nullptr ? "word"
                                            : "eos"},
            {"stopping_word", word != nullptr ? *word : ""},
            {"tokens_cached", completed.usage.cached_tokens},
            {"timings", Json::parse(TimingsJson(
                            completed.usage, completed.trace, completed.now))}};
  }

  const size_t index_;
  const std::shared_ptr<const Common> common_;
  const std::shared_ptr<const Json> prompt_;
  std::shared_ptr<const Trace> trace_;
  const Clock* clock_ = nullptr;
  handlers::Usage usage_;  // so far
};

size_t BytesOf(const LlamaPrompt& prompt) {
  if (const auto* text = std::get_if<handlers::TextPrompt>(&prompt.prompt)) {
    return text->text.size();
  }
  const auto* tokens = std::get_if<handlers::TokenPrompt>(&prompt.prompt);
  return tokens == nullptr ? 0 : tokens->ids.size() * sizeof(int32_t);
}

// Starts the completions of each prompt, all with the body's sampling.
Status Complete(const Site& site, const std::shared_ptr<Exchange>& exchange,
                const Json& body, ModelHandle model,
                std::vector<LlamaPrompt> prompts) {
  ASSIGN_OR_RETURN(const handlers::GenerateHandler* handler, model->ForText());
  ASSIGN_OR_RETURN(LlamaBody wanted, ReadLlamaBody(*handler, body));
  handlers::GenerateOptions& options = wanted.options;
  const auto n = static_cast<size_t>(options.n);
  if (prompts.size() * n > kMaxPrompts) {
    return InvalidArgument("n_cmpl is " + std::to_string(n) + " for " +
                           std::to_string(prompts.size()) +
                           " prompts but a request has at most " +
                           std::to_string(kMaxPrompts) + " completions")
        .At("n_cmpl");
  }
  // Each completion has a copy of its prompt.
  size_t copied = 0;
  for (const LlamaPrompt& prompt : prompts) copied += BytesOf(prompt) * n;
  if (n > 1 && copied > kMostCopiedBytes) {
    return InvalidArgument("n_cmpl is " + std::to_string(n) +
                           ", which makes prompts of " +
                           std::to_string(copied) +
                           " bytes in all, but they may have at most " +
                           std::to_string(kMostCopiedBytes) +
                           "; send shorter prompts or a smaller n_cmpl")
        .At("n_cmpl");
  }
  auto common = std::make_shared<LlamaForm::Common>();
  common->model = exchange->facts().model;
  common->settings =
      LlamaSettings({.stream = wanted.stream, .n_predict = wanted.n_predict},
                    options, *model->text_facts());
  common->prompt_only = wanted.n_predict == 0;
  common->shows_ids = wanted.return_tokens;
  common->shows_probabilities = options.logprobs.has_value();
  if (wanted.post_sampling_probs) {
    ASSIGN_OR_RETURN(common->sampled,
                     SampledProbabilities::Create(options, *model->text_facts(),
                                                  *options.logprobs));
    options.logprobs = common->sampled->num_alternatives();
  }
  common->timings_per_token = wanted.timings_per_token;
  common->fields = std::move(wanted.response_fields);
  options.n = 1;
  std::vector<CompletionPart> parts;
  for (const LlamaPrompt& prompt : prompts) {
    for (size_t i = 0; i < n; ++i) {
      CompletionPart& part = parts.emplace_back();
      part.request.prompt = prompt.prompt;
      part.request.options = options;
      if (options.seed) *part.request.options.seed += i;
      part.form =
          std::make_unique<LlamaForm>(parts.size() - 1, common, prompt.shown);
    }
  }
  return StartCompletions(site, exchange, std::move(model), std::move(parts),
                          wanted.stream);
}

Status Completion(const Site& site, const std::shared_ptr<Exchange>& exchange) {
  ASSIGN_OR_RETURN(const Json body, ReadJsonBody(*exchange));
  ASSIGN_OR_RETURN(ModelHandle model, BorrowModel(site, *exchange, body));
  ASSIGN_OR_RETURN(const handlers::GenerateHandler* handler, model->ForText());
  ASSIGN_OR_RETURN(std::vector<LlamaPrompt> prompts,
                   ReadLlamaPrompts(*handler, body));
  return Complete(site, exchange, body, std::move(model), std::move(prompts));
}

Status Infill(const Site& site, const std::shared_ptr<Exchange>& exchange) {
  ASSIGN_OR_RETURN(const Json body, ReadJsonBody(*exchange));
  ASSIGN_OR_RETURN(ModelHandle model, BorrowModel(site, *exchange, body));
  ASSIGN_OR_RETURN(const handlers::GenerateHandler* handler, model->ForText());
  ASSIGN_OR_RETURN(handlers::TokenPrompt prompt,
                   ReadInfillPrompt(*handler, body, model->id()));
  std::vector<LlamaPrompt> prompts;
  prompts.push_back({std::move(prompt), std::make_shared<const Json>(
                                            body.value("prompt", Json("")))});
  return Complete(site, exchange, WithoutInfillSampler(body), std::move(model),
                  std::move(prompts));
}

// The only language model, for routes without a body.
StatusOr<ModelHandle> OnlyModel(const Site& site, Exchange& exchange) {
  return BorrowModel(site, exchange, Json::object());
}

Status Props(const Site& site, const std::shared_ptr<Exchange>& exchange) {
  ASSIGN_OR_RETURN(const ModelHandle model, OnlyModel(site, *exchange));
  const TextFacts& text = *model->text_facts();
  Json answer = {
      {"default_generation_settings",
       {{"n_ctx", text.max_model_len},
        {"params", LlamaSettings({}, {}, text)}}},
      {"total_slots", text.max_num_seqs},
      {"model_alias", model->id()},
      {"model_path", model->facts().path},
      {"chat_template", text.chat_template},
      {"modalities", {{"vision", text.takes_images}, {"audio", false}}},
      {"build_info", "millrace-" + std::string(Version())}};
  if (text.takes_images) answer["media_marker"] = handlers::kMediaMarker;
  exchange->Send(JsonResponse(200, DumpJson(answer)));
  return OkStatus();
}

Status Slots(const Site& site, const std::shared_ptr<Exchange>& exchange) {
  ASSIGN_OR_RETURN(const ModelHandle model, OnlyModel(site, *exchange));
  const TextFacts& text = *model->text_facts();
  const int64_t busy = model->gate().in_flight() - 1;  // but this request
  const std::string& query = exchange->request().query;
  if (busy >= text.max_num_seqs &&
      query.find("fail_on_no_slot=1") != std::string::npos) {
    return Unavailable("no slot is free: " + std::to_string(busy) +
                       " requests run or wait");
  }
  Json slots = Json::array();
  for (int32_t i = 0; i < text.max_num_seqs; ++i) {
    slots.push_back({{"id", i},
                     {"n_ctx", text.max_model_len},
                     {"is_processing", i < busy}});
  }
  exchange->Send(JsonResponse(200, DumpJson(slots)));
  return OkStatus();
}

}  // namespace

void ServeLlamaCompletion(const Site& site,
                          const std::shared_ptr<Exchange>& exchange) {
  RunOnPool(site, exchange, Completion);
}

void ServeLlamaInfill(const Site& site,
                      const std::shared_ptr<Exchange>& exchange) {
  RunOnPool(site, exchange, Infill);
}

void ServeLlamaProps(const Site& site,
                     const std::shared_ptr<Exchange>& exchange) {
  RunOnPool(site, exchange, Props);
}

void ServeLlamaSlots(const Site& site,
                     const std::shared_ptr<Exchange>& exchange) {
  RunOnPool(site, exchange, Slots);
}

// A sequence takes any slot that is free, and what it computed is found by its
// tokens, so there is nothing that a client could name to save.
void ServeLlamaSlotAction(const Site&,
                          const std::shared_ptr<Exchange>& exchange) {
  const std::string action(
      Shortened(QueryValue(exchange->request().query, "action"), 40));
  Status status;
  if (action == "save" || action == "restore" || action == "erase") {
    status = Unimplemented(
        "slots cannot be saved, restored or erased one by one: computed "
        "prompts are found by their tokens, whatever the slot; start the "
        "server with --kv-cache-dir and they are kept in a folder, also over "
        "a restart");
  } else {
    status = InvalidArgument("action is '" + action +
                             "' but may be save, restore or erase")
                 .At("action");
  }
  exchange->Send(ErrorResponse(status));
}

}  // namespace millrace::server::http
