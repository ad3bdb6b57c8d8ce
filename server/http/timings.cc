// Names and meaning as in llama.cpp's tools/server/README.md: prompt_n leaves
// out what the cache had, and the first token counts as generated although its
// time is the prompt's.
#include "server/http/timings.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace millrace::server::http {
namespace {

double Milliseconds(double seconds) { return std::max(seconds, 0.0) * 1e3; }

std::string PartJson(const char* name, int64_t count, double ms) {
  const double per_token = count > 0 ? ms / static_cast<double>(count) : 0;
  const double per_second = per_token > 0 ? 1e3 / per_token : 0;
  char text[240];
  std::snprintf(text, sizeof text,
                "\"%s_n\":%lld,\"%s_ms\":%.3f,\"%s_per_token_ms\":%.3f,"
                "\"%s_per_second\":%.3f",
                name, static_cast<long long>(count), name, ms, name, per_token,
                name, per_second);
  return text;
}

}  // namespace

std::string TimingsJson(const handlers::Usage& usage, const Trace& trace,
                        Clock::Time now) {
  const double prompt = trace.Seconds(Stage::kScheduled, Stage::kFirstToken);
  const int64_t first =
      trace.stamps[static_cast<size_t>(Stage::kFirstToken)].load(
          std::memory_order_relaxed);
  const double completion =
      first == 0
          ? 0
          : static_cast<double>(now.time_since_epoch().count() - first) * 1e-9;
  return "{\"cache_n\":" + std::to_string(usage.cached_tokens) + "," +
         PartJson("prompt", usage.prompt_tokens - usage.cached_tokens,
                  Milliseconds(prompt)) +
         "," +
         PartJson("predicted", usage.completion_tokens,
                  Milliseconds(completion)) +
         "}";
}

std::string ProgressJson(const handlers::PromptProgress& progress) {
  return "{\"total\":" + std::to_string(progress.total) +
         ",\"cache\":" + std::to_string(progress.cached) +
         ",\"processed\":" + std::to_string(progress.processed) +
         ",\"time_ms\":" +
         std::to_string(std::llround(Milliseconds(progress.seconds))) + "}";
}

std::string TimingsJson(const handlers::PromptProgress& progress) {
  return "{\"cache_n\":" + std::to_string(progress.cached) + "," +
         PartJson("prompt", progress.processed - progress.cached,
                  Milliseconds(progress.seconds)) +
         "," + PartJson("predicted", 0, 0) + "}";
}

}  // namespace millrace::server::http
