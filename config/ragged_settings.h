// Inputs of a graph whose requests are joined to one batch although their
// lengths differ, and what stands where a request has no values:
//
//   ragged_inputs:
//     input_ids: 0             # shorter requests are padded with 0
//     attention_mask: mask     # ones where a request has values, else zeros
//
// A parameter of config.pbtxt has the same as
// "input_ids=0,attention_mask=mask".
#pragma once

#include <string>
#include <vector>

#include "config/base/status.h"

namespace YAML {
class Node;
}

namespace millrace::config {

struct RaggedInput {
  std::string name;
  double padding = 0;    // finite
  bool is_mask = false;  // made by the server where a request leaves it out
};

struct RaggedSettings {
  std::vector<RaggedInput> inputs;
};

// The value of the key `ragged_inputs` in config.yaml. May throw what yaml-cpp
// throws for values of another kind. INVALID_ARGUMENT names what is neither a
// number nor "mask", or stands there twice; the same of text.
StatusOr<RaggedSettings> ReadRagged(const YAML::Node& node);
StatusOr<RaggedSettings> ParseRagged(const std::string& text);

// What ParseRagged reads again.
std::string RaggedText(const RaggedSettings& settings);

}  // namespace millrace::config
