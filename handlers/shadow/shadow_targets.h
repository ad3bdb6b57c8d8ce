// Which requests of a model have shadows, and the places that these take in the
// queue of the runner.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "config/base/metrics.h"
#include "config/shadow_settings.h"
#include "handlers/shadow/shadow_runner.h"

namespace millrace::handlers {

struct ShadowParts {
  std::string model;
  std::string version;
  std::shared_ptr<const config::ShadowSettings> settings;  // never null
  ShadowRunner* runner = nullptr;                          // outlives it
  MetricRegistry* registry = nullptr;                      // may be null
};

// Places of one request's jobs; what is not posted is given back.
class EnteredShadows {
 public:
  explicit EnteredShadows(ShadowRunner* runner) : runner_(runner) {}
  EnteredShadows(const EnteredShadows&) = delete;
  EnteredShadows& operator=(const EnteredShadows&) = delete;
  ~EnteredShadows();

  // What the request had and got is filled in by its handler.
  std::vector<ShadowJob>& jobs() { return jobs_; }
  void Post();

 private:
  friend class ShadowTargets;
  ShadowRunner* const runner_;
  std::vector<ShadowJob> jobs_;
};

// Thread-safe. A target that is the model and version itself is left out.
class ShadowTargets {
 public:
  explicit ShadowTargets(const ShadowParts& parts);

  // For the next request. Null: it has no shadow.
  std::shared_ptr<EnteredShadows> Enter();

 private:
  struct Target;

  ShadowRunner* const runner_;
  std::vector<std::shared_ptr<Target>> targets_;  // not changed later
};

}  // namespace millrace::handlers
