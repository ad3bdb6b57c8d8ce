// Environment variables that look like settings and are none.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace millrace::config {

// Names and values.
using Environment = std::vector<std::pair<std::string, std::string>>;

Environment ProcessEnvironment();

// A sentence for each MILLRACE_ variable that neither is one of the settings
// (snake_case) nor belongs to our own tools, with the nearest setting. Those
// that Kubernetes sets for a service called millrace are passed over.
std::vector<std::string> UnknownVariables(
    const Environment& environment, const std::vector<std::string>& settings);

}  // namespace millrace::config
