// Step prices of a language model's server from measured reports.
//
// Of each report the mean time per output token gives one equation,
//   T x tpot = base + prefill_token x P + decode_sequence x T x D,
// with T the tokens that a step gives a sequence, D the sequences that decode
// beside each other and P the prompt tokens of others that a step computes,
// both by Little's law from the report's rates;
// and a report at concurrency 1 gives a second one for its first token,
//   ttft = base x steps + prefill_token x input_tokens.
// Prices are the least squares of the relative errors, none below 0.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "config/base/status.h"
#include "loadtest/plan/server_model.h"

namespace millrace::loadtest {

// One report.
struct FitPoint {
  double concurrency = 0;  // requests under way; of an open loop by its rate
  bool closed_loop = true;
  double input_tokens = 0;
  double input_std = 0;  // standard deviation
  double output_tokens = 0;
  double output_std = 0;
  double ttft_ms = 0;  // median: users who begin all at once wait for long
  double tpot_ms = 0;  // mean, as is the latency
  double latency_ms = 0;
  double request_rate = 0;  // answered, requests/s
  // Of a stream; above 1 where draft tokens come along: its chunks with output
  // are its steps.
  double tokens_per_step = 1;
  // Median of the first token's time beside its prefill; -1: not told.
  double outside_ms = -1;
};

// Sequences that decode at once, by Little's law.
double DecodingSequences(const FitPoint& point);

// From the JSON of a report. INVALID_ARGUMENT where it is no report of a
// stream.
StatusOr<FitPoint> FitPointOf(std::string_view report_json);

// What the model says of the time per output token at that point, in ms.
double PredictedTpotMs(const ServerModel& model, const FitPoint& point);

// `limits` gives the fields that reports do not show (KV memory, batch
// limits). FAILED_PRECONDITION without points, or where no price fits.
StatusOr<ServerModel> FitServerModel(const std::vector<FitPoint>& points,
                                     const ServerModel& limits);

}  // namespace millrace::loadtest
