// A target, its requests and the threads of the client: measures one load
// after another over the same connections.
//
//   ASSIGN_OR_RETURN(auto session, Session::Open(options));
//   ASSIGN_OR_RETURN(const Measurement result, session->Measure(load));
//
// Called by one thread. While it measures, SIGINT ends the run early: the
// first one sends nothing more, the second one gives up what is under way.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "config/base/status.h"
#include "loadtest/options.h"
#include "loadtest/recorder.h"
#include "loadtest/requests.h"
#include "loadtest/worker.h"

namespace millrace::loadtest {

struct Measurement {
  std::vector<RunStats> runs;  // one a repetition
  RunStats total;              // of all repetitions
  double seconds = 0;          // sum over the repetitions
  double client_busy = 0;      // the busiest thread's share of one CPU
  bool interrupted = false;
  // Of KServe over REST, where the server keeps Triton's statistics: mean
  // milliseconds of a request in "queue", "compute_input", ...
  std::map<std::string, double> server_stages_ms;
};

// The load of one measurement; a sweep changes it from step to step.
struct Load {
  int64_t concurrency = 1;
  double rate = 0;  // of an open loop
};

class Session {
 public:
  // Asks the server for what the requests need to know. `*options` outlives
  // the session.
  static StatusOr<std::unique_ptr<Session>> Open(const Options* options);

  // Warm-up, then the repetitions.
  StatusOr<Measurement> Measure(const Load& load);

  const std::string& model() const { return model_; }
  // Prompt lengths are a guess: the server does not tell how it tokenizes.
  bool lengths_estimated() const { return lengths_estimated_; }
  int64_t num_prompts() const { return requests_->size(); }

 private:
  explicit Session(const Options* options) : options_(*options) {}

  Status Prepare();
  Phase PhaseOf(const Load& load) const;
  RunStats RunPhase(Phase phase, const char* name, Measurement& measurement);

  const Options& options_;
  std::string model_;
  bool lengths_estimated_ = false;
  std::vector<std::chrono::nanoseconds> trace_;
  std::unique_ptr<Requests> requests_;
  std::vector<std::unique_ptr<Worker>> workers_;
  int64_t next_index_ = 0;  // of the next phase's first conversation
};

Load LoadOf(const Options& options);

}  // namespace millrace::loadtest
