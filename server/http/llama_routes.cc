// llama.cpp's own routes: /completion, /infill, /props and /slots; that of
// adapters is in lora_routes.cc. Sequences share one pool of memory here, so
// that a slot is only a place among those that run at once.
// Source: github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md
#include <algorithm>
#include <array>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "config/base/json.h"
#include "handlers/chat_messages.h"
#include "handlers/json_fields.h"
#include "handlers/request_fields.h"
#include "server/http/completion_reply.h"
#include "server/http/llama_prompts.h"
#include "server/http/llama_shapes.h"
#include "server/http/pool_work.h"
#include "server/http/routes.h"
#include "server/http/timings.h"
#include "server/version.h"

namespace millrace::server::http {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kMostProbs = 20;  // n_probs

class LlamaForm final : public CompletionForm {
 public:
  // What the answers to all prompts of a request have in common.
  struct Common {
    std::string model;
    Json settings;
    bool prompt_only = false;  // the one token that is computed is not shown
    bool shows_ids = false;    // of all tokens, at the end
    bool shows_probabilities = false;
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
            LlamaProbabilities(completed.choice.logprobs);
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
      piece["completion_probabilities"] = LlamaProbabilities(delta.logprobs);
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

// `logit_bias` as an object of token ids: it may be a list of pairs, and a text
// stands for each of its tokens.
StatusOr<Json> Biases(const handlers::GenerateHandler& handler,
                      const Json& bias) {
  Json map = Json::object();
  const auto add = [&](const std::string& text, const Json& value) -> Status {
    const Json number = value == false ? Json(-100) : value;
    const bool is_id = !text.empty() && std::ranges::all_of(text, [](char c) {
      return c >= '0' && c <= '9';
    });
    if (is_id) {
      map[text] = number;
      return OkStatus();
    }
    ASSIGN_OR_RETURN(const auto tokens, handler.Tokenize(text, false, false));
    for (const int32_t id : tokens.ids) map[std::to_string(id)] = number;
    return OkStatus();
  };
  if (bias.is_object()) {
    for (const auto& [key, value] : bias.items()) {
      RETURN_IF_ERROR(add(key, value));
    }
    return map;
  }
  for (size_t i = 0; i < bias.size(); ++i) {
    const Json& pair = bias[i];
    const bool is_pair = pair.is_array() && pair.size() == 2 &&
                         (pair[0].is_number_integer() || pair[0].is_string());
    if (!is_pair) {
      return handlers::WrongType("logit_bias[" + std::to_string(i) + "]",
                                 "a token id or a text with its bias", pair);
    }
    RETURN_IF_ERROR(add(pair[0].is_string()
                            ? pair[0].get<std::string>()
                            : std::to_string(pair[0].get<int64_t>()),
                        pair[1]));
  }
  return map;
}

// The body's sampling fields in the words of a completion.
StatusOr<Json> SamplingFields(const handlers::GenerateHandler& handler,
                              const Json& body) {
  Json fields = body;
  ASSIGN_OR_RETURN(const auto sampled,
                   handlers::ReadBool(body, "post_sampling_probs"));
  if (sampled.value_or(false)) {
    return InvalidArgument(
               "post_sampling_probs is true but is not supported; leave it out")
        .At("post_sampling_probs")
        .Because("unsupported_parameter");
  }
  ASSIGN_OR_RETURN(const Json* scales, handlers::ReadArray(body, "lora"));
  if (scales != nullptr && !scales->empty()) {
    return InvalidArgument(
               "lora has scales of adapters but a request chooses one by its "
               "name as 'model'; POST /lora-adapters sets scales")
        .At("lora")
        .Because("unsupported_parameter");
  }
  ASSIGN_OR_RETURN(const auto predict, handlers::ReadInt(body, "n_predict"));
  const int64_t most = predict.value_or(-1);  // negative: no limit
  fields.erase("max_tokens");
  if (most >= 0) fields["max_tokens"] = std::max<int64_t>(most, 1);
  if (const Json* penalty = handlers::FindField(body, "repeat_penalty")) {
    fields["repetition_penalty"] = *penalty;
  }
  // -1 and its unsigned form mean a seed of the server's choice.
  const Json* seed = handlers::FindField(body, "seed");
  if (seed != nullptr && (*seed == -1 || *seed == 4294967295)) {
    fields.erase("seed");
  }
  const Json* bias = handlers::FindField(body, "logit_bias");
  if (bias != nullptr && (bias->is_array() || bias->is_object())) {
    ASSIGN_OR_RETURN(fields["logit_bias"], Biases(handler, *bias));
  }
  for (const char* name : {"prompt", "n_predict", "repeat_penalty", "n",
                           "logprobs", "suffix", "echo"}) {
    fields.erase(name);
  }
  ASSIGN_OR_RETURN(
      const auto probs,
      handlers::ReadInt(body, "n_probs", {.min = 0, .max = kMostProbs}));
  if (probs.value_or(0) > 0) fields["logprobs"] = *probs;
  return fields;
}

StatusOr<std::vector<std::string>> ReadResponseFields(const Json& body) {
  std::vector<std::string> names;
  ASSIGN_OR_RETURN(const Json* list,
                   handlers::ReadArray(body, "response_fields"));
  for (size_t i = 0; list != nullptr && i < list->size(); ++i) {
    ASSIGN_OR_RETURN(
        names.emplace_back(),
        handlers::AsString((*list)[i],
                           "response_fields[" + std::to_string(i) + "]"));
  }
  return names;
}

// Starts a completion of each prompt, all with the body's sampling.
Status Complete(const Site& site, const std::shared_ptr<Exchange>& exchange,
                const Json& body, ModelHandle model,
                std::vector<LlamaPrompt> prompts) {
  ASSIGN_OR_RETURN(const handlers::GenerateHandler* handler, model->ForText());
  ASSIGN_OR_RETURN(const Json fields, SamplingFields(*handler, body));
  ASSIGN_OR_RETURN(handlers::GenerateOptions options,
                   handlers::ReadGenerateOptions(
                       fields, handlers::FieldDialect::kCompletions));
  options.clip_to_context = true;
  ASSIGN_OR_RETURN(const auto stream, handlers::ReadBool(body, "stream"));
  ASSIGN_OR_RETURN(const auto ids, handlers::ReadBool(body, "return_tokens"));
  ASSIGN_OR_RETURN(const auto predict, handlers::ReadInt(body, "n_predict"));
  auto common = std::make_shared<LlamaForm::Common>();
  common->model = exchange->facts().model;
  common->settings = LlamaSettings(
      {.stream = stream.value_or(false), .n_predict = predict.value_or(-1)},
      options, *model->text_facts());
  // It only fills the cache with the prompt; the engine makes a token anyway.
  common->prompt_only = predict == 0;
  common->shows_ids = ids.value_or(false);
  common->shows_probabilities = options.logprobs.has_value();
  ASSIGN_OR_RETURN(const auto timings,
                   handlers::ReadBool(body, "timings_per_token"));
  common->timings_per_token = timings.value_or(false);
  ASSIGN_OR_RETURN(common->fields, ReadResponseFields(body));
  // As there, pieces of a stream have theirs anyway.
  options.return_ids = common->shows_ids || stream.value_or(false);
  std::vector<CompletionPart> parts;
  for (LlamaPrompt& prompt : prompts) {
    CompletionPart& part = parts.emplace_back();
    part.request.prompt = std::move(prompt.prompt);
    part.request.options = options;
    part.form = std::make_unique<LlamaForm>(parts.size() - 1, common,
                                            std::move(prompt.shown));
  }
  return StartCompletions(site, exchange, std::move(model), std::move(parts),
                          stream.value_or(false));
}

Status Completion(const Site& site, const std::shared_ptr<Exchange>& exchange) {
  ASSIGN_OR_RETURN(const Json body, ReadJsonBody(*exchange));
  ASSIGN_OR_RETURN(ModelHandle model, BorrowModel(site, *exchange, body));
  ASSIGN_OR_RETURN(const handlers::GenerateHandler* handler, model->ForText());
  ASSIGN_OR_RETURN(std::vector<LlamaPrompt> prompts,
                   ReadLlamaPrompts(*handler, body));
  return Complete(site, exchange, body, std::move(model), std::move(prompts));
}

// The special tokens around a gap: prefix, suffix, middle.
constexpr std::array<const char*, 3> kGapTokens[] = {
    {"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"},
    {"<fim_prefix>", "<fim_suffix>", "<fim_middle>"},
    {"<fim-prefix>", "<fim-suffix>", "<fim-middle>"},
    {"<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"},
};

// Their ids; empty where the model lacks them.
std::vector<int32_t> GapIds(const handlers::GenerateHandler& handler) {
  for (const auto& names : kGapTokens) {
    std::vector<int32_t> ids;
    for (const char* name : names) {
      const auto text = handler.Tokenize(name, false, true);
      if (text.ok() && text->ids.size() == 1) ids.push_back(text->ids[0]);
    }
    if (ids.size() == names.size()) return ids;
  }
  return {};
}

Status Infill(const Site& site, const std::shared_ptr<Exchange>& exchange) {
  ASSIGN_OR_RETURN(const Json body, ReadJsonBody(*exchange));
  ASSIGN_OR_RETURN(ModelHandle model, BorrowModel(site, *exchange, body));
  ASSIGN_OR_RETURN(const handlers::GenerateHandler* handler, model->ForText());
  const std::vector<int32_t> gap = GapIds(*handler);
  if (gap.empty()) {
    return InvalidArgument("the model '" + model->id() +
                           "' has no tokens to fill in the middle of a text; "
                           "complete text with POST /v1/completions")
        .Because("no_infill_tokens");
  }
  // What the client wrote never becomes a special token.
  std::vector<int32_t> ids;
  const auto add = [&](int32_t mark, const char* field) -> Status {
    ASSIGN_OR_RETURN(const auto text, handlers::ReadString(body, field));
    ASSIGN_OR_RETURN(const handlers::TokenizedText tokens,
                     handler->Tokenize(text.value_or(""), false, false));
    ids.push_back(mark);
    ids.insert(ids.end(), tokens.ids.begin(), tokens.ids.end());
    return OkStatus();
  };
  RETURN_IF_ERROR(add(gap[0], "input_prefix"));
  RETURN_IF_ERROR(add(gap[1], "input_suffix"));
  RETURN_IF_ERROR(add(gap[2], "prompt"));
  std::vector<LlamaPrompt> prompts;
  prompts.push_back(
      {handlers::TokenPrompt{std::move(ids)},
       std::make_shared<const Json>(body.value("prompt", Json("")))});
  return Complete(site, exchange, body, std::move(model), std::move(prompts));
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
      QueryValue(exchange->request().query, "action").substr(0, 40));
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
