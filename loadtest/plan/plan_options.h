// The command line of `millrace-loadtest plan` and `plan fit`. What is sent
// and when is read by the flags of a measurement.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/base/status.h"
#include "loadtest/options.h"
#include "loadtest/plan/fleet.h"

namespace millrace::loadtest {

struct PlanOptions {
  FleetSpec fleet;
  std::vector<int64_t> replicas;  // to simulate in turn
  bool find_replicas = false;     // the fewest that meet the SLO
  int32_t prefix_groups = 0;
  double price_per_hour = 0;  // of one replica; 0: not given
  bool help = false;
  Options load;
};

// `args` are without "plan".
StatusOr<PlanOptions> ParsePlanOptions(const std::vector<std::string>& args);

// The requests of the simulation, rising by arrival.
StatusOr<std::vector<SimRequest>> MakeSimRequests(const PlanOptions& options);

struct FitOptions {
  std::vector<std::string> reports;  // files; empty: a server is measured
  std::vector<int64_t> loads;        // concurrencies to measure
  std::vector<int64_t> rows;         // of a graph's requests
  ServerModel limits;                // what measurements do not show
  std::vector<std::string> given;    // limits of the command line, by setting
  std::string output = "server-model.json";
  Options load;
};

// `args` are without "plan fit".
StatusOr<FitOptions> ParseFitOptions(const std::vector<std::string>& args);

std::string PlanHelpText();

}  // namespace millrace::loadtest
