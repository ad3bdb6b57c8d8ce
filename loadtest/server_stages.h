// What a server of KServe v2 says of its own times: the statistics extension of
// Triton, over REST or gRPC, read before and after a measurement.
//
//   const ServerStages before = ReadServerStages(options, model);
//   ...
//   MeanStagesMs(before, ReadServerStages(options, model));
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "loadtest/options.h"

namespace millrace::loadtest {

struct StageTotal {
  int64_t count = 0;  // requests
  int64_t ns = 0;
};
using ServerStages = std::map<std::string, StageTotal>;

// Empty where the endpoint is not kserve or the server has no such statistics.
ServerStages ReadServerStages(const Options& options, const std::string& model);
// The same by gRPC's ModelStatistics.
ServerStages ReadGrpcStages(const Options& options, const std::string& model);
// The sums over all versions in the body of GET /v2/models/{model}/stats.
ServerStages ParseServerStages(std::string_view json);

// Of the requests counted between the two; empty if there were none.
std::map<std::string, double> MeanStagesMs(const ServerStages& before,
                                           const ServerStages& after);

}  // namespace millrace::loadtest
