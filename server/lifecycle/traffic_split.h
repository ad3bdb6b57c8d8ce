// Requests of a model parted between its versions, as `traffic` in its
// config.yaml says (config/traffic_settings.h).
//
// In this order: the version of the variant that a request's header names; the
// version that its pinning header's value is hashed to; the next one by weight.
// What names a version that is not ready counts as not there, and its weight as
// 0. Without weights the highest version that is ready serves.
//
// Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "config/base/metrics.h"
#include "config/traffic_settings.h"
#include "server/lifecycle/servable.h"
#include "server/lifecycle/version_choice.h"

namespace millrace::server {

class TrafficSplit final : public VersionChoice {
 public:
  // Versions are numbers (ResolveVersions). `registry` may be null.
  TrafficSplit(const std::string& model, config::TrafficSettings settings,
               MetricRegistry* registry);

  std::string Choose(const RequestFields& request,
                     std::span<const std::string> ready) override;

 private:
  struct Counts {
    Counter by_variant;
    Counter by_pin;
    Counter by_weight;
  };
  // The version into whose part of the weights `point` falls, of a range of
  // 2^64. Empty: none with a weight is ready.
  std::string AtPoint(uint64_t point, std::span<const std::string> ready) const;
  std::string Choose(const RequestFields& request,
                     std::span<const std::string> ready,
                     Counter Counts::** counter);

  const config::TrafficSettings settings_;
  std::map<std::string, Counts> counts_;  // by version; not changed later
  // Relaxed: only that each request has a number of its own matters.
  std::atomic<uint64_t> next_{0};
};

// Shows it among the parameters of the configuration that clients may ask for;
// empty: none.
void ShowTraffic(const std::string& text, Servable* servable);

}  // namespace millrace::server
