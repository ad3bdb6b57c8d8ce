// Metrics as TorchServe's Java client writes them: labels in TorchServe's
// order, a comma behind the last one, and whole numbers with a decimal.
// Prometheus reads both forms; expressions of TorchServe's users know theirs.
//
//   MetricsText("up{a=\"b\"} 1\n", {})   // up{a="b",} 1.0
//
// Pure function.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace millrace::server::torchserve {

// `text` is in Prometheus' text format 0.0.4. `names` are of families or of
// samples, and all else is left out; empty: all stays.
std::string MetricsText(std::string_view text,
                        const std::vector<std::string>& names);

}  // namespace millrace::server::torchserve
