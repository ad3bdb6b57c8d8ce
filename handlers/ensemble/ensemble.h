// The handler of an ensemble: each step is a request to its own model, which is
// started as soon as the tensors it needs are there, and so goes through that
// model's batcher beside the requests of others. Tensors pass from step to step
// by handle, never by copy.
//
// The place in a sequence goes to every step, so that those of models with a
// state find it. A step that is left out is not sent: its model's sequence then
// neither starts nor ends with that request.
//
// A step whose condition does not hold is left out, and so is every step that
// needs what it would have made; outputs that were not made are not in the
// response. The first failure ends the request, stops the other steps and is
// its only ending.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "config/base/clock.h"
#include "config/base/mutex.h"
#include "handlers/ensemble/ensemble_plan.h"
#include "handlers/model_lender.h"
#include "handlers/sequences/sequence_place.h"

namespace millrace::handlers {

struct EnsembleCounts {
  int64_t last_inference_ms = 0;  // Unix time
  int64_t inferences = 0;         // rows of requests that succeeded
  int64_t num_success = 0;
  int64_t num_failure = 0;
  Clock::Duration success_time{0};
  Clock::Duration failure_time{0};
  // Sums over the steps of successes.
  Clock::Duration queue{0};
  Clock::Duration compute_input{0};
  Clock::Duration compute_infer{0};
  Clock::Duration compute_output{0};
};

// All outlive the handler and its requests.
struct EnsembleParts {
  std::string model;
  ModelLender* lender = nullptr;
  const Clock* clock = &Clock::Real();
  int64_t max_in_flight = 1024;  // requests; more are refused
};

class EnsembleHandler final : public SequencedHandler {
 public:
  EnsembleHandler(EnsembleParts parts, EnsemblePlan plan);
  ~EnsembleHandler() override;

  void StartAt(SequencePlace place, TensorRequest request, Done done,
               std::stop_token stop) override;
  Status HasPlace() const override;
  const std::vector<models::TensorSpec>& inputs() const override {
    return plan_->input_specs;
  }
  const std::vector<models::TensorSpec>& outputs() const override {
    return plan_->output_specs;
  }
  const EnsemblePlan& plan() const { return *plan_; }

  // Whether all models of its steps serve; UNAVAILABLE names the one that does
  // not.
  Status Ready() const;
  // Whether they all take requests: one whose process is started again lets
  // them wait.
  Status Takes() const;
  EnsembleCounts counts() const;
  // Requests under way.
  int64_t in_flight() const;

 private:
  class Run;
  struct Books;

  Status NotReady(const Status& member) const;
  Status TryStart(SequencePlace place, TensorRequest& request, const Done& done,
                  std::stop_token stop);

  const EnsembleParts parts_;
  // Runs outlive the handler where a step ends after the request has.
  const std::shared_ptr<const EnsemblePlan> plan_;
  const std::shared_ptr<Books> books_;
};

}  // namespace millrace::handlers
