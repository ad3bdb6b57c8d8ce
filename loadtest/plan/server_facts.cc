#include "loadtest/plan/server_facts.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "loadtest/fetch.h"

namespace millrace::loadtest {
namespace {

constexpr double kNsPerSecond = 1e9;

// The value of a label; empty if there is none. Our labels hold no quotes.
std::string_view Label(std::string_view labels, std::string_view name) {
  const std::string key = std::string(name) + "=\"";
  const size_t at = labels.find(key);
  if (at == labels.npos) return {};
  const std::string_view rest = labels.substr(at + key.size());
  return rest.substr(0, rest.find('"'));
}

}  // namespace

ServerFacts ParseServerFacts(std::string_view metrics,
                             const std::string& model) {
  ServerFacts facts;
  while (!metrics.empty()) {
    const size_t end = std::min(metrics.find('\n'), metrics.size());
    const std::string_view line = metrics.substr(0, end);
    metrics.remove_prefix(std::min(end + 1, metrics.size()));
    const size_t open = line.find('{');
    const size_t close = line.rfind("} ");
    if (open == line.npos || close == line.npos || close < open) continue;
    const std::string_view name = line.substr(0, open);
    const std::string_view labels = line.substr(open + 1, close - open - 1);
    if (Label(labels, "model") != model) continue;
    double value = 0;
    const std::string_view text = line.substr(close + 2);
    const auto parsed =
        std::from_chars(text.data(), text.data() + text.size(), value);
    if (parsed.ec != std::errc() || !std::isfinite(value) || value < 0) {
      continue;
    }
    if (name == "millrace_scheduler_limit") {
      facts.limits[std::string(Label(labels, "limit"))] = value;
    } else if (name == "millrace_step_price_seconds" && value > 0) {
      facts.prices[std::string(Label(labels, "of"))] = value;
    } else if (name == "millrace_model_load_seconds") {
      facts.load_seconds = value;
    }
  }
  return facts;
}

ServerFacts ReadServerFacts(const Options& options, const std::string& model) {
  // gRPC's port has no /metrics.
  if (options.endpoint == EndpointType::kKserveGrpc) return {};
  const StatusOr<FetchReply> reply = Fetch(options, "GET", "/metrics");
  if (!reply.ok() || reply->status != 200) return {};
  return ParseServerFacts(reply->body, model);
}

void ApplyFacts(const ServerFacts& facts, const std::vector<std::string>& given,
                ServerModel& model) {
  const auto limit = [&](const char* name, int64_t least, double scale,
                         int64_t* out) {
    const auto at = facts.limits.find(name);
    const bool told =
        std::find(given.begin(), given.end(), name) != given.end();
    if (at == facts.limits.end() || told) return;
    const double value = std::min(at->second * scale, 1e15);
    *out = std::max(least, static_cast<int64_t>(std::llround(value)));
  };
  limit("max_num_seqs", 1, 1, &model.max_num_seqs);
  limit("max_num_batched_tokens", 1, 1, &model.max_num_batched_tokens);
  limit("kv_cache_tokens", 0, 1, &model.kv_tokens);
  limit("target_itl", 0, kNsPerSecond, &model.target_itl_ns);
  limit("max_batch_size", 1, 1, &model.max_batch_size);
  limit("instance_count", 1, 1, &model.instance_count);
  limit("max_queue_delay", 0, kNsPerSecond, &model.max_queue_delay_ns);
  model.start_ns = std::llround(std::min(facts.load_seconds, 1e5) * 1e9);
  const auto price = [&](const char* of) {
    const auto at = facts.prices.find(of);
    return at == facts.prices.end() ? 0 : at->second * kNsPerSecond;
  };
  if (model.graph || facts.prices.empty()) return;
  model.step_base_ns = price("step");
  model.prefill_token_ns = price("row");
  model.decode_sequence_ns = price("row") + price("sample");
  model.attended_key_ns = price("key");
}

}  // namespace millrace::loadtest
