// Requests that nothing pins walk through the weights in steps of the golden
// ratio (a Weyl sequence): any run of them comes nearer to the weights than
// draws would, and a seed is not needed. Values that pin are hashed, so that
// every replica with the same settings chooses alike.
#include "server/lifecycle/traffic_split.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "config/base/json.h"

namespace millrace::server {
namespace {

constexpr uint64_t kGolden = 0x9E3779B97F4A7C15;  // 2^64 / golden ratio

// The finaliser of SplitMix64 (Steele, Lea, Flood 2014).
uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

// FNV-1a, 64 bits.
uint64_t HashOf(std::string_view text, uint64_t seed) {
  uint64_t hash = 0xCBF29CE484222325 ^ Mix(seed + kGolden);
  for (const char c : text) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3;
  }
  return Mix(hash);
}

bool Has(std::span<const std::string> ready, std::string_view version) {
  return std::find(ready.begin(), ready.end(), version) != ready.end();
}

}  // namespace

TrafficSplit::TrafficSplit(const std::string& model,
                           config::TrafficSettings settings,
                           MetricRegistry* registry)
    : settings_(std::move(settings)) {
  if (registry == nullptr) return;
  const auto add = [&](const std::string& version) {
    if (counts_.contains(version)) return;
    const auto counter = [&](const char* by) {
      return registry->AddCounter(
          "millrace_traffic_requests_total",
          "Requests that named no version, by the one that was chosen and what "
          "chose it: the variant of a header, a header that pins, a weight.",
          {{"model", model}, {"version", version}, {"chosen_by", by}});
    };
    counts_[version] = {counter("variant"), counter("pin"), counter("weight")};
  };
  for (const auto& [version, weight] : settings_.weights) add(version);
  for (const auto& [value, version] : settings_.variants) add(version);
}

std::string TrafficSplit::AtPoint(uint64_t point,
                                  std::span<const std::string> ready) const {
  uint64_t sum = 0;
  for (const auto& [version, weight] : settings_.weights) {
    if (Has(ready, version)) sum += static_cast<uint64_t>(weight);
  }
  if (sum == 0) return {};
  // In [0, sum): the high half of the product.
  auto at =
      static_cast<int64_t>((static_cast<unsigned __int128>(point) * sum) >> 64);
  for (const auto& [version, weight] : settings_.weights) {
    if (!Has(ready, version)) continue;
    if (at < weight) return version;
    at -= weight;
  }
  return {};
}

std::string TrafficSplit::Choose(const RequestFields& request,
                                 std::span<const std::string> ready,
                                 Counter Counts::** counter) {
  *counter = &Counts::by_variant;
  if (!settings_.variant_header.empty()) {
    const auto at = settings_.variants.find(
        std::string(request.Header(settings_.variant_header)));
    if (at != settings_.variants.end() && Has(ready, at->second)) {
      return at->second;
    }
  }
  *counter = &Counts::by_pin;
  const std::string_view pin = settings_.pin_by.empty()
                                   ? std::string_view()
                                   : request.Header(settings_.pin_by);
  if (!pin.empty()) {
    // Of all weights first: a version that comes or goes moves no user of
    // another one.
    std::vector<std::string> all;
    for (const auto& [version, weight] : settings_.weights) {
      all.push_back(version);
    }
    const uint64_t hash = HashOf(pin, static_cast<uint64_t>(settings_.seed));
    std::string version = AtPoint(hash, all);
    if (!Has(ready, version)) version = AtPoint(Mix(hash), ready);
    if (!version.empty()) return version;
  }
  *counter = &Counts::by_weight;
  const uint64_t number = next_.fetch_add(1, std::memory_order_relaxed);
  std::string version = AtPoint(number * kGolden, ready);
  return version.empty() ? ready.back() : version;
}

std::string TrafficSplit::Choose(const RequestFields& request,
                                 std::span<const std::string> ready) {
  Counter Counts::*counter = nullptr;
  std::string version = Choose(request, ready, &counter);
  const auto at = counts_.find(version);
  if (at != counts_.end()) (at->second.*counter).Add();
  return version;
}

void ShowTraffic(const std::string& text, Servable* servable) {
  auto config = ParseJson(servable->config_json());
  if (!config.ok() || !config->is_object()) return;
  auto& parameters = (*config)["parameters"];
  if (!parameters.is_object()) parameters = nlohmann::ordered_json::object();
  if (text.empty() && !parameters.contains("traffic")) return;
  parameters.erase("traffic");
  if (!text.empty()) parameters["traffic"] = {{"string_value", text}};
  servable->set_config_json(DumpJson(*config));
}

}  // namespace millrace::server
