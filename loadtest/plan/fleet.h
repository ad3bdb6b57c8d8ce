// A discrete-event simulation of replicas behind a router.
//
//   const FleetResult result = Simulate(fleet, requests, slo);
//
// The same arguments give the same result on every machine.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "loadtest/histogram.h"
#include "loadtest/plan/replica.h"
#include "loadtest/plan/server_model.h"
#include "loadtest/slo.h"

namespace millrace::loadtest {

enum class Routing {
  kRoundRobin,
  kLeastLoaded,  // the fewest requests under way
  kPrefix,       // by the request's group, while that replica's load is at most
                 // 1.25 times the mean (Mirrokni et al. 2017)
};

// Every `interval` as many replicas are wanted as hold `target` requests each.
struct Autoscale {
  int64_t least = 1;
  int64_t most = 1;
  double target = 32;
  Ns interval = 10'000'000'000;
};

// A share of the replicas stops at `at` and is back after `lasts`. Their
// requests start again elsewhere.
struct Loss {
  double share = 0;
  Ns at = 0;
  Ns lasts = kNever;
};

struct FleetSpec {
  ServerModel model;
  int64_t replicas = 1;  // at the start
  Routing routing = Routing::kLeastLoaded;
  Ns start_time = 60'000'000'000;  // until a new replica takes requests
  std::optional<Autoscale> autoscale;
  std::optional<Loss> loss;
  int64_t prefix_tokens = 0;  // that the requests of a group have in common
};

struct FleetPoint {  // of the time line
  Ns at = 0;
  int64_t replicas = 0;  // that take requests
  int64_t outstanding = 0;
};

struct FleetResult {
  Histogram ttft_ns, itl_ns, tpot_ns, latency_ns;
  int64_t num_done = 0;
  int64_t num_refused = 0;  // too long for the memory, or no replica was left
  int64_t num_good = 0;
  int64_t num_restarted = 0;  // by the loss of a replica
  int64_t output_tokens = 0;
  Ns end = 0;                  // of the last request
  double replica_seconds = 0;  // paid for, starts included
  int64_t most_replicas = 0;
  int64_t num_events = 0;
  std::vector<FleetPoint> timeline;
};

// `requests` rise by arrival.
FleetResult Simulate(const FleetSpec& fleet,
                     const std::vector<SimRequest>& requests, const Slo& slo);

}  // namespace millrace::loadtest
