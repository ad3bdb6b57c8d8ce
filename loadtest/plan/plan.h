// Simulates fleets of one or more sizes and says what they cost and reach.
//
//   ASSIGN_OR_RETURN(const PlanResult result, Plan(options));
//   std::fputs(PlanText(options, result).c_str(), stdout);
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "config/base/status.h"
#include "loadtest/plan/fleet.h"
#include "loadtest/plan/plan_options.h"

namespace millrace::loadtest {

struct PlanStep {
  int64_t replicas = 1;  // at the start
  FleetResult fleet;
  bool slo_met = true;
  double mean_replicas = 1;  // paid for, over the time
};

struct PlanResult {
  std::vector<PlanStep> steps;    // rising by replicas
  std::optional<int64_t> needed;  // the fewest that met the SLO, of a search
  size_t num_requests = 0;
};

StatusOr<PlanResult> Plan(const PlanOptions& options);

// Measures or reads, fits, prints and writes the server model.
Status Fit(const FitOptions& options);

// ---- texts (plan_text.cc) ---------------------------------------------------

// Cost of a million output tokens, or of a million requests to a graph.
double CostPerMillion(const PlanOptions& options, const PlanStep& step);

std::string PlanText(const PlanOptions& options, const PlanResult& result);
// The table's times and the load over the time, as bars of characters.
std::string PlanPlots(const PlanOptions& options, const PlanResult& result);
std::string PlanJson(const PlanOptions& options, const PlanResult& result);
std::string PlanHtml(const PlanOptions& options, const PlanResult& result);

}  // namespace millrace::loadtest
