// What a planner reads from /metrics of a running Millrace: limits of batches,
// prices of its steps as it has learnt them, and how long the model took to
// load.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "loadtest/options.h"
#include "loadtest/plan/server_model.h"

namespace millrace::loadtest {

struct ServerFacts {
  std::map<std::string, double> limits;  // by the setting's name; seconds
  std::map<std::string, double> prices;  // "step", "row", ...: seconds
  double load_seconds = 0;

  bool known() const { return !limits.empty(); }
};

// Of the lines of one model. The prices are empty until the server has learnt
// them.
ServerFacts ParseServerFacts(std::string_view metrics,
                             const std::string& model);
// Nothing where the server has no /metrics or is another one.
ServerFacts ReadServerFacts(const Options& options, const std::string& model);

// Sets what `facts` tell, but for the limits named in `given`.
void ApplyFacts(const ServerFacts& facts, const std::vector<std::string>& given,
                ServerModel& model);

}  // namespace millrace::loadtest
