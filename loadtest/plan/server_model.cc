#include "loadtest/plan/server_model.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

namespace millrace::loadtest {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kFormat[] = "millrace-server-model/1";
constexpr double kNsPerMs = 1e6;
constexpr double kMostMs = 3.6e6;  // an hour

Status ReadMs(const Json& json, const char* key, double* ns) {
  const auto at = json.find(key);
  if (at == json.end()) return OkStatus();
  const bool good =
      at->is_number() && at->get<double>() >= 0 && at->get<double>() <= kMostMs;
  if (good) {
    *ns = at->get<double>() * kNsPerMs;
    return OkStatus();
  }
  return InvalidArgument(std::string(key) + " is " + at->dump() +
                         " but must be milliseconds from 0 to 3600000");
}

Status ReadInt(const Json& json, const char* key, int64_t least,
               int64_t* value) {
  constexpr int64_t kMost = int64_t{1} << 50;
  const auto at = json.find(key);
  if (at == json.end()) return OkStatus();
  if (at->is_number_integer() && at->get<int64_t>() >= least &&
      at->get<int64_t>() <= kMost) {
    *value = at->get<int64_t>();
    return OkStatus();
  }
  return InvalidArgument(std::string(key) + " is " + at->dump() +
                         " but must be a whole number of at least " +
                         std::to_string(least));
}

Status ReadBatches(const Json& json, ServerModel& model) {
  const auto at = json.find("batch_ms");
  const Status wrong = InvalidArgument(
      "batch_ms must be a list of [rows, milliseconds] with rising rows, as in "
      "[[1, 4.2], [8, 20.1]]");
  if (at == json.end() || !at->is_array() || at->empty()) return wrong;
  for (const Json& point : *at) {
    if (!point.is_array() || point.size() != 2 ||
        !point[0].is_number_integer() || !point[1].is_number()) {
      return wrong;
    }
    const auto rows = point[0].get<int64_t>();
    const auto ms = point[1].get<double>();
    const int64_t last =
        model.batch_ns.empty() ? 0 : model.batch_ns.back().first;
    if (rows <= last || !(ms >= 0) || ms > kMostMs) return wrong;
    model.batch_ns.emplace_back(rows, ms * kNsPerMs);
  }
  return OkStatus();
}

Status ReadTokensPerStep(const Json& json, ServerModel& model) {
  const auto at = json.find("tokens_per_step");
  if (at == json.end()) return OkStatus();
  constexpr double kMost = 1000;
  const Status wrong = InvalidArgument(
      "tokens_per_step must be a list of [sequences, tokens] with rising "
      "sequences and 1 to 1000 tokens, as in [[1, 2.5], [16, 1.8]]");
  if (!at->is_array()) return wrong;
  for (const Json& point : *at) {
    if (!point.is_array() || point.size() != 2 ||
        !point[0].is_number_integer() || !point[1].is_number()) {
      return wrong;
    }
    const auto sequences = point[0].get<int64_t>();
    const auto tokens = point[1].get<double>();
    const int64_t last =
        model.tokens_per_step.empty() ? 0 : model.tokens_per_step.back().first;
    if (sequences <= last || !(tokens >= 1 && tokens <= kMost)) return wrong;
    model.tokens_per_step.emplace_back(sequences, tokens);
  }
  return OkStatus();
}

}  // namespace

Ns ServerModel::StepNs(int64_t prefill_tokens, int64_t sequences,
                       double keys) const {
  const double ns = step_base_ns + (prefill_tokens > 0 ? prompt_step_ns : 0) +
                    prefill_token_ns * static_cast<double>(prefill_tokens) +
                    decode_sequence_ns * static_cast<double>(sequences) *
                        TokensPerStep(sequences) +
                    attended_key_ns * keys;
  return std::max<Ns>(1, std::llround(ns));
}

double ServerModel::TokensPerStep(int64_t sequences) const {
  if (tokens_per_step.empty()) return 1;
  const auto right = std::lower_bound(
      tokens_per_step.begin(), tokens_per_step.end(), sequences,
      [](const auto& point, int64_t n) { return point.first < n; });
  if (right == tokens_per_step.begin()) return right->second;
  if (right == tokens_per_step.end()) return tokens_per_step.back().second;
  const auto left = right - 1;
  const double share = static_cast<double>(sequences - left->first) /
                       static_cast<double>(right->first - left->first);
  return left->second + share * (right->second - left->second);
}

int64_t ServerModel::MostPromptTokens(Ns decode_ns) const {
  // Prompts go on by so much, whatever the target, as in Millrace's scheduler.
  constexpr int64_t kLeast = 16;
  if (target_itl_ns <= 0 || prefill_token_ns <= 0)
    return max_num_batched_tokens;
  const double left = static_cast<double>(target_itl_ns - decode_ns);
  return std::clamp<int64_t>(static_cast<int64_t>(left / prefill_token_ns),
                             kLeast, std::max(kLeast, max_num_batched_tokens));
}

Ns ServerModel::BatchNs(int64_t rows) const {
  const auto at = [&](size_t i) {
    return std::pair(static_cast<double>(batch_ns[i].first),
                     batch_ns[i].second);
  };
  double ns = batch_ns.front().second;
  if (batch_ns.size() > 1) {
    size_t right = 1;
    while (right + 1 < batch_ns.size() && batch_ns[right].first < rows) ++right;
    const auto [x0, y0] = at(right - 1);
    const auto [x1, y1] = at(right);
    const double x = std::max(static_cast<double>(rows), at(0).first);
    ns = y0 + (y1 - y0) * (x - x0) / (x1 - x0);
    if (x > x1) {
      // Noise of small batches would make large ones free.
      for (const auto& [fewer, took] : batch_ns) ns = std::max(ns, took);
    }
  }
  return std::max<Ns>(1, std::llround(ns));
}

StatusOr<ServerModel> ParseServerModel(std::string_view text) {
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object() || json.value("format", Json()) != kFormat) {
    return InvalidArgument(std::string("this is no server model; it is JSON "
                                       "with \"format\": \"") +
                           kFormat + "\", as plan fit writes it");
  }
  ServerModel model;
  const Json kind = json.value("kind", Json());
  if (kind != "llm" && kind != "graph") {
    return InvalidArgument("kind is " + kind.dump() +
                           " but must be \"llm\" or \"graph\"");
  }
  model.graph = kind == "graph";
  const auto read_time = [&](const char* key, Ns* ns) {
    double value = 0;
    RETURN_IF_ERROR(ReadMs(json, key, &value));
    *ns = std::llround(value);
    return OkStatus();
  };
  RETURN_IF_ERROR(read_time("start_ms", &model.start_ns));
  if (model.graph) {
    RETURN_IF_ERROR(ReadBatches(json, model));
    RETURN_IF_ERROR(read_time("max_queue_delay_ms", &model.max_queue_delay_ns));
    RETURN_IF_ERROR(ReadInt(json, "max_batch_size", 1, &model.max_batch_size));
    RETURN_IF_ERROR(ReadInt(json, "instance_count", 1, &model.instance_count));
    return model;
  }
  RETURN_IF_ERROR(ReadMs(json, "step_base_ms", &model.step_base_ns));
  RETURN_IF_ERROR(ReadMs(json, "prefill_token_ms", &model.prefill_token_ns));
  RETURN_IF_ERROR(ReadMs(json, "prompt_step_ms", &model.prompt_step_ns));
  RETURN_IF_ERROR(
      ReadMs(json, "decode_sequence_ms", &model.decode_sequence_ns));
  RETURN_IF_ERROR(ReadMs(json, "attended_key_us", &model.attended_key_ns));
  model.attended_key_ns *= 1e-3;  // the key's unit is a thousandth of ms
  RETURN_IF_ERROR(read_time("request_overhead_ms", &model.request_overhead_ns));
  RETURN_IF_ERROR(read_time("target_itl_ms", &model.target_itl_ns));
  RETURN_IF_ERROR(ReadTokensPerStep(json, model));
  RETURN_IF_ERROR(ReadInt(json, "kv_tokens", 0, &model.kv_tokens));
  RETURN_IF_ERROR(ReadInt(json, "max_num_seqs", 1, &model.max_num_seqs));
  RETURN_IF_ERROR(ReadInt(json, "max_num_batched_tokens", 1,
                          &model.max_num_batched_tokens));
  if (model.step_base_ns + model.prefill_token_ns + model.decode_sequence_ns >
      0) {
    return model;
  }
  return InvalidArgument(
      "all prices of a step are 0; set step_base_ms, prefill_token_ms or "
      "decode_sequence_ms");
}

std::string ServerModelJson(const ServerModel& model) {
  Json out = {{"format", kFormat}, {"kind", model.graph ? "graph" : "llm"}};
  if (model.graph) {
    Json points = Json::array();
    for (const auto& [rows, ns] : model.batch_ns) {
      points.push_back(Json::array({rows, ns / kNsPerMs}));
    }
    out["batch_ms"] = std::move(points);
    out["max_batch_size"] = model.max_batch_size;
    out["max_queue_delay_ms"] =
        static_cast<double>(model.max_queue_delay_ns) / kNsPerMs;
    out["instance_count"] = model.instance_count;
  } else {
    out["step_base_ms"] = model.step_base_ns / kNsPerMs;
    out["prefill_token_ms"] = model.prefill_token_ns / kNsPerMs;
    out["prompt_step_ms"] = model.prompt_step_ns / kNsPerMs;
    out["decode_sequence_ms"] = model.decode_sequence_ns / kNsPerMs;
    out["attended_key_us"] = model.attended_key_ns / 1e3;
    if (!model.tokens_per_step.empty()) {
      Json points = Json::array();
      for (const auto& [sequences, tokens] : model.tokens_per_step) {
        points.push_back(Json::array({sequences, tokens}));
      }
      out["tokens_per_step"] = std::move(points);
    }
    out["request_overhead_ms"] =
        static_cast<double>(model.request_overhead_ns) / kNsPerMs;
    out["target_itl_ms"] = static_cast<double>(model.target_itl_ns) / kNsPerMs;
    out["kv_tokens"] = model.kv_tokens;
    out["max_num_seqs"] = model.max_num_seqs;
    out["max_num_batched_tokens"] = model.max_num_batched_tokens;
  }
  if (model.start_ns > 0) {
    out["start_ms"] = static_cast<double>(model.start_ns) / kNsPerMs;
  }
  return out.dump(2) + "\n";
}

}  // namespace millrace::loadtest
