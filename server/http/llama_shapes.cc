#include "server/http/llama_shapes.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "config/base/utf8.h"

namespace millrace::server::http {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kDrawnSeed = 4294967295;

// llama.cpp has its grammar's text, ours may be a schema or a pattern.
std::string GrammarOf(const models::OutputConstraint& constraint) {
  return constraint.kind == models::ConstraintKind::kGrammar ? constraint.text
                                                             : "";
}

Json CandidateJson(const handlers::TokenLogprobs::Candidate& candidate) {
  Json bytes = Json::array();
  for (const char byte : candidate.bytes) {
    bytes.push_back(static_cast<uint8_t>(byte));
  }
  return {{"id", candidate.id},
          {"token", ReplaceInvalidUtf8(candidate.bytes)},
          {"bytes", std::move(bytes)},
          {"logprob", candidate.logprob}};
}

Json SampledJson(const SampledProbability& sampled) {
  Json json = CandidateJson(sampled.token);
  json.erase("logprob");
  json["prob"] = sampled.probability;
  return json;
}

}  // namespace

Json LlamaSampledProbabilities(
    const SampledProbabilities& sampled,
    std::span<const handlers::TokenLogprobs> tokens) {
  Json list = Json::array();
  for (const handlers::TokenLogprobs& token : tokens) {
    Json entry = SampledJson({token.chosen, sampled.OfChosen(token)});
    Json& top = entry["top_probs"] = Json::array();
    for (const SampledProbability& each : sampled.Top(token)) {
      top.push_back(SampledJson(each));
    }
    list.push_back(std::move(entry));
  }
  return list;
}

Json LlamaProbabilities(std::span<const handlers::TokenLogprobs> tokens) {
  Json list = Json::array();
  for (const handlers::TokenLogprobs& token : tokens) {
    Json entry = CandidateJson(token.chosen);
    Json& top = entry["top_logprobs"] = Json::array();
    for (const auto& other : token.top) top.push_back(CandidateJson(other));
    list.push_back(std::move(entry));
  }
  return list;
}

Json ChosenFields(const std::vector<std::string>& fields, Json answer) {
  if (fields.empty()) return answer;
  Json chosen = Json::object();
  for (const std::string& field : fields) {
    const Json* value = &answer;
    for (size_t begin = 0; value != nullptr && begin <= field.size();) {
      const size_t end = std::min(field.find('/', begin), field.size());
      const auto found = value->is_object()
                             ? value->find(field.substr(begin, end - begin))
                             : value->end();
      value = found == value->end() ? nullptr : &*found;
      begin = end + 1;
    }
    if (value != nullptr) chosen[field] = *value;
  }
  return chosen;
}

Json LlamaSettings(const LlamaRequest& request,
                   const handlers::GenerateOptions& options,
                   const TextFacts& facts) {
  const auto& model = facts.default_sampling;
  const auto pick = [](std::optional<double> wanted,
                       std::optional<double> usual, double otherwise) {
    return wanted.value_or(usual.value_or(otherwise));
  };
  Json biases = Json::array();
  for (const auto& [id, bias] : options.logit_bias) {
    biases.push_back({{"bias", bias}, {"token", id}});
  }
  Json breakers = Json::array({"\n", ":", "\"", "*"});
  if (options.dry_sequence_breakers) breakers = *options.dry_sequence_breakers;
  return {{"seed", options.seed ? Json(*options.seed) : Json(kDrawnSeed)},
          {"temperature", pick(options.temperature, model.temperature, 1)},
          {"dynatemp_range", options.dynatemp_range.value_or(0)},
          {"dynatemp_exponent", options.dynatemp_exponent.value_or(1)},
          {"top_k", std::max<int64_t>(
                        0, options.top_k.value_or(model.top_k.value_or(0)))},
          {"top_p", pick(options.top_p, model.top_p, 1)},
          {"min_p", pick(options.min_p, model.min_p, 0)},
          {"top_n_sigma", options.top_n_sigma.value_or(-1)},
          {"xtc_probability", options.xtc_probability.value_or(0)},
          {"xtc_threshold", options.xtc_threshold.value_or(0.1)},
          {"typical_p", options.typical_p.value_or(1)},
          {"repeat_penalty",
           pick(options.repetition_penalty, model.repetition_penalty, 1)},
          {"repeat_last_n", options.repeat_last_n.value_or(-1)},
          {"presence_penalty", options.presence_penalty.value_or(0)},
          {"frequency_penalty", options.frequency_penalty.value_or(0)},
          {"dry_multiplier", options.dry_multiplier.value_or(0)},
          {"dry_base", options.dry_base.value_or(1.75)},
          {"dry_allowed_length", options.dry_allowed_length.value_or(2)},
          {"dry_penalty_last_n", options.dry_penalty_last_n.value_or(-1)},
          {"dry_sequence_breakers", std::move(breakers)},
          {"mirostat", options.mirostat},
          {"mirostat_tau", options.mirostat_tau.value_or(5)},
          {"mirostat_eta", options.mirostat_eta.value_or(0.1)},
          {"min_keep", options.min_keep},
          {"stop", options.stop},
          {"max_tokens", request.n_predict},
          {"n_predict", request.n_predict},
          {"ignore_eos", options.ignore_eos},
          {"stream", request.stream},
          {"logit_bias", std::move(biases)},
          {"n_probs", options.logprobs.value_or(0)},
          {"grammar", GrammarOf(options.constraint)},
          {"lora", Json::array()}};
}

}  // namespace millrace::server::http
