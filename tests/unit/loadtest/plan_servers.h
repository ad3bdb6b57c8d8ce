// Simulated servers and requests with numbers to check by hand: what the tests
// of the fleet and of the fit share.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "loadtest/arrivals.h"
#include "loadtest/plan/fleet.h"
#include "loadtest/plan/server_model.h"

namespace millrace::loadtest {

inline constexpr Ns kMs = 1'000'000;
inline constexpr Ns kSecond = 1000 * kMs;

inline ServerModel Llm() {
  ServerModel model;
  model.step_base_ns = 10 * kMs;
  model.prefill_token_ns = 1 * kMs;
  model.decode_sequence_ns = 2 * kMs;
  return model;
}

inline ServerModel Graph(std::vector<std::pair<int64_t, double>> batch_ns) {
  ServerModel model;
  model.graph = true;
  model.batch_ns = std::move(batch_ns);
  return model;
}

inline std::vector<SimRequest> Poisson(double rate, int64_t count,
                                       SimRequest request = {}) {
  Arrivals arrivals({.kind = ArrivalKind::kPoisson, .rate = rate, .seed = 7});
  std::vector<SimRequest> requests;
  for (int64_t i = 0; i < count; ++i) {
    request.arrival = arrivals.Next()->count();
    requests.push_back(request);
  }
  return requests;
}

inline FleetResult RunFleet(const ServerModel& model,
                            const std::vector<SimRequest>& requests,
                            int64_t replicas = 1,
                            Routing routing = Routing::kRoundRobin) {
  FleetSpec fleet;
  fleet.model = model;
  fleet.replicas = replicas;
  fleet.routing = routing;
  return Simulate(fleet, requests, {});
}

}  // namespace millrace::loadtest
